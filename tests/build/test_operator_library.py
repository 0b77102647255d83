"""The library of operators for onnxruntime: compiled for every platform, with its own names only."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.binaries import HEADERS, exports, machine_of, needs_of_elf
from unpool.build.targets import TARGETS
from unpool.onnxruntime import library

NAMES = {
    "RegisterCustomOps", "unpool_forget", "unpool_output", "unpool_run_parts", "unpool_set_kernels",
    "unpool_set_planner", "unpool_sources",
}  # fmt: skip
"""What onnxruntime and the planner look up."""

OF_MACOS = {"_mh_dylib_header", "__dso_handle"}  # names that the linker gives every library
SLOWEST = "x86_64-windows-gnu"  # for it, zig first compiles a runtime, for a minute and a half


def build(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unpool.build", "--onnxruntime", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow if name == SLOWEST else ()) for name in TARGETS]
)
def compiled(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    done = build("--target", request.param, "--output", str(folder))
    assert (done.returncode, done.stderr) == (0, "")  # no warning either
    return folder / library.NAMES[TARGETS[request.param].system]


def test_every_target_has_a_library(compiled):
    """For its processor, alone in its folder, with few names, and in need of nothing but the C library."""
    (target,) = (each for name, each in TARGETS.items() if compiled.parent.name.startswith(name))
    magic, machines = HEADERS[target.suffix]
    assert list(compiled.parent.iterdir()) == [compiled]
    assert compiled.read_bytes().startswith(magic)
    assert machine_of(compiled.read_bytes(), target.suffix) == machines[target.machine]
    assert exports(compiled) - OF_MACOS == NAMES
    needs = needs_of_elf(compiled.read_bytes()) if target.suffix == ".so" else set()
    assert {name for name in needs if not name.startswith("ld-linux-")} <= {"libc.so.6"}


def test_every_library_is_reproducible(compiled, tmp_path):
    """Byte for byte, at any time and in any folder."""
    (name,) = (each for each in TARGETS if compiled.parent.name.startswith(each))
    assert build("--target", name, "--output", str(tmp_path)).returncode == 0
    assert (tmp_path / compiled.name).read_bytes() == compiled.read_bytes()


def test_a_library_that_this_machine_cannot_load_needs_a_folder():
    """Else it would take the place of the one for this machine."""
    other = next(target.name for target in TARGETS.values() if library.NAMES[target.system] != library.PATH.name)
    done = build("--target", other)
    assert done.returncode == 2
    assert f"a library for {other} needs --output" in done.stderr.splitlines()[-1]
