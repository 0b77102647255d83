"""Libraries of kernels: built, verified, loaded without Numba, and what happens without them."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from unpool.build.targets import TARGETS
from unpool.kernels.cpu.machine import host, libraries

KERNEL = "max_pool.tiles._make_kernel(float32, 2"
"""Text in the names of the kernels that are built here."""

POOL = """
import sys
import numpy as np
import unpool
x = np.arange(64 * 256, dtype=np.float32).reshape(1, 1, 64, 256)
y, indices = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
assert np.array_equal(y, x[:, :, 1::2, 1::2]) and np.array_equal(indices.ravel(), y.ravel())
print(sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the libraries of this machine, of a few kernels."""
    folder = tmp_path_factory.mktemp("libraries")
    levels = sorted({"x86-64-v2", level()} if "x86" in level() else {level()})
    chosen = [word for each in levels for word in ("--level", each)]
    build(folder, *chosen)
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    """A copy of them, to be changed."""
    return Path(shutil.copytree(built, tmp_path / "libraries"))


def level() -> str:
    """The level of this processor, by LLVM."""
    features = binding.get_host_cpu_features()
    if not binding.get_process_triple().startswith("x86_64"):
        return "aarch64"
    return "x86-64-v4" if features.get("avx512vl") else "x86-64-v3" if features.get("avx2") else "x86-64-v2"


def build(folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "unpool.build", "--output", str(folder), "--only", KERNEL, "--jobs", "1", *options]
    subprocess.run(command, check=True, capture_output=True, text=True)


def run(folder: Path, code: str = POOL, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds its libraries in a folder."""
    begin = "from pathlib import Path\nfrom unpool.kernels.cpu.machine import libraries\n"
    begin += f"libraries.FOLDER = Path({str(folder)!r})\n"
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_CPU", "UNPOOL_KERNELS"))}
    command = [sys.executable, "-c", begin + code]
    return subprocess.run(command, env={**known, **environment}, capture_output=True, text=True, check=False)


def test_a_shipped_kernel_needs_no_numba(folder):
    """The first call finds its machine code, and gives the result."""
    done = run(folder, UNPOOL_KERNELS="shipped")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_library_of_the_processor_is_loaded(folder):
    """Of several levels the highest that the processor has, as LLVM knows it."""
    done = run(folder, "print(libraries.level())")
    assert done.stdout.strip() == level(), done.stderr


def test_a_verified_library_is_not_read_again(folder):
    """A note says which file was verified; another size or time of change makes it invalid."""
    assert run(folder, UNPOOL_KERNELS="shipped").returncode == 0
    notes = sorted((folder / "__pycache__").iterdir())
    assert [note.name.removesuffix(".verified") for note in notes] == sorted(
        entry["file"] for name, entry in manifest(folder).items() if name in ("x86-64-v2", level())
    )
    path = folder / manifest(folder)[level()]["file"]
    os.utime(path, ns=(1, 1))
    path.write_bytes(path.read_bytes() + b"\0")
    assert "is damaged" in run(folder, UNPOOL_KERNELS="auto").stderr


def manifest(folder: Path) -> dict[str, dict[str, str]]:
    return json.loads((folder / "manifest.json").read_text())["libraries"]


def test_a_damaged_library_is_not_loaded(folder):
    """Kernels are compiled, after a warning; with UNPOOL_KERNELS=shipped the call is refused."""
    path = folder / manifest(folder)[level()]["file"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = run(folder)
    assert (done.returncode, done.stdout.strip()) == (0, "['llvmlite', 'numba']"), done.stderr
    assert f"kernels: {path} is damaged, so kernels are compiled. Install unpool again." in done.stderr
    assert "UnpoolError: kernels: its library cannot be used" in run(folder, UNPOOL_KERNELS="shipped").stderr


def test_a_folder_may_be_read_only(folder):
    """Nothing is noted then, and the library is verified by every process."""
    (folder / "__pycache__").write_text("no folder can be made here")
    done = run(folder, UNPOOL_KERNELS="shipped")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_missing_kernel_is_compiled(folder):
    """What the library lacks is compiled and logged, or refused by its name."""
    code = f"import logging\nlogging.basicConfig(level=20)\n{POOL.replace('np.float32', 'np.float64')}"
    done = run(folder, code)
    assert (done.returncode, done.stdout.strip()) == (0, "['llvmlite', 'numba']"), done.stderr
    assert "float64, 2, True, False" in done.stderr
    assert f"is not in the library for {level()}, so it is compiled." in done.stderr
    refused = run(folder, code, UNPOOL_KERNELS="shipped").stderr
    assert "lacks unpool.kernels.cpu.max_pool.tiles._make_kernel(float64, 2, True, False" in refused


def test_a_library_of_other_sources_is_not_loaded(folder):
    """Kernels whose sources changed after the build are compiled."""
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"sources": "', '"sources": "0'))
    assert "was built from other sources, so kernels are compiled." in run(folder).stderr


def test_without_numba_a_missing_kernel_is_an_error(folder):
    """It says what is missing, and how to get it."""
    without = "sys.modules['numba'] = None"
    done = run(folder, POOL.replace("import numpy", f"{without}\nimport numpy"))
    assert done.returncode == 0, done.stderr
    code = POOL.replace("np.float32", "np.float64").replace("import numpy", f"{without}\nimport numpy")
    assert f"the library for {level()} lacks unpool.kernels.cpu.max_pool.tiles" in run(folder, code).stderr
    assert "so it is compiled: numba is not installed. In a clone of unpool, run: pip install '.[jit]'" in (
        run(folder, code).stderr
    )


@pytest.mark.parametrize(
    "environment",
    [{"UNPOOL_KERNELS": "compiled"}, {"NUMBA_CPU_NAME": "generic"}],
    ids=["compiled", "another processor"],
)
def test_no_library_is_used_where_kernels_shall_be_compiled(folder, environment):
    """By UNPOOL_KERNELS, or because Numba shall compile for another processor."""
    assert run(folder, "print(libraries.level())", **environment).stdout.strip() == "None"


def test_unknown_choices_are_refused(folder):
    """The error has the three that there are."""
    done = run(folder, UNPOOL_KERNELS="fastest")
    assert "UNPOOL_KERNELS: expected auto, shipped or compiled; got 'fastest'." in done.stderr


def test_without_libraries_kernels_are_compiled(tmp_path):
    """As in an installation from a clone."""
    assert run(tmp_path, "print(libraries.level())").stdout.strip() == "None"
    assert "this installation has no libraries" in run(tmp_path, UNPOOL_KERNELS="shipped").stderr


@pytest.mark.slow
def test_two_builds_are_equal(built, tmp_path):
    """Byte for byte."""
    build(tmp_path, "--level", level())
    name = manifest(tmp_path)[level()]["file"]
    first, second = ((folder / name).read_bytes() for folder in (built, tmp_path))
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()


EVERY_CALL = Path(__file__).parents[1] / "support" / "every_call.py"
STEP = "19"
"""Of the catalogue, every so many calls are compared."""


@pytest.mark.slow
def test_shipped_and_compiled_kernels_give_the_same_bits(built):
    """For calls of the catalogue, where Numba compiles for the level of the library.

    The library is that of the installation. Where it has none, the few kernels that are built here are compared.
    """
    folder = libraries.FOLDER if libraries.manifest() else built
    code = f"import runpy, sys\nsys.argv[1:] = [{STEP!r}]\nrunpy.run_path({str(EVERY_CALL)!r})"
    compiled = {"NUMBA_CPU_NAME": level(), "NUMBA_CPU_FEATURES": ""} if "x86" in level() else {}
    lines = []
    for environment in ({}, {"UNPOOL_KERNELS": "compiled", **compiled}):
        done = run(folder, code, **environment)
        assert done.returncode == 0, done.stderr
        lines.append([line for line in done.stdout.splitlines() if libraries.manifest() or line.startswith("max_pool")])
    assert lines[0] == lines[1]
    assert len(lines[0]) > 15


HEADERS = {
    ".so": (b"\x7fELF", {"x86_64": 62, "aarch64": 183}),
    ".dll": (b"MZ", {"AMD64": 0x8664}),
    ".dylib": (b"\xcf\xfa\xed\xfe", {"x86_64": 0x0100_0007, "arm64": 0x0100_000C}),
}
"""How files of ELF, PE and Mach-O begin, and the numbers that these formats give to processors."""


def machine_of(content: bytes, suffix: str) -> int:
    """The number of the processor in the header of a library."""
    if suffix == ".so":
        return int.from_bytes(content[18:20], "little")
    if suffix == ".dylib":
        return int.from_bytes(content[4:8], "little")
    start = int.from_bytes(content[0x3C:0x40], "little")
    return int.from_bytes(content[start + 4 : start + 6], "little")


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_every_target_links(name, tmp_path):
    """For systems and processors other than this one, too: each file says which processor its code is for."""
    target = TARGETS[name]
    chosen = list(target.processors)[-1]
    build(tmp_path, "--target", name, "--level", chosen)
    content = (tmp_path / target.file(chosen)).read_bytes()
    magic, machines = HEADERS[target.suffix]
    assert content.startswith(magic)
    assert machine_of(content, target.suffix) == machines[target.machine]


def test_levels_have_their_registers():
    """As long and as many as LLVM says of such processors."""
    sizes = {name: (each.vector_bytes, each.vector_registers) for name, each in host.LEVELS.items()}
    assert sizes == {"x86-64-v2": (16, 16), "x86-64-v3": (32, 16), "x86-64-v4": (64, 32), "aarch64": (16, 32)}


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_names_of_this_machine(folder, change):
    """Windows and macOS spell it in other ways, as AMD64 and arm64."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    code = f"import platform\nplatform.machine = lambda: {change(names[platform.machine()])!r}\n"
    done = run(folder, f"{code}print(libraries.level())", UNPOOL_KERNELS="shipped")
    assert done.stdout.strip() == level(), done.stderr


@pytest.mark.parametrize("machine", ["riscv64", "ppc64le"])
def test_other_machines_compile(folder, machine):
    """No library is for them."""
    code = f"import platform\nplatform.machine = lambda: {machine!r}\n"
    assert run(folder, f"{code}print(libraries.level())").stdout.strip() == "None"
    assert f"no library is for {machine}" in run(folder, code + POOL, UNPOOL_KERNELS="shipped").stderr
    assert machine not in libraries.MACHINE_LEVELS
