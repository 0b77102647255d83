"""The kernels at every vector width of this machine, each in a process whose Numba compiles for an older CPU.

`python -m pytest -m widths -o faulthandler_timeout=0` runs all kernel tests at every width, for hours. By default a
sample runs at this machine's own width; `-m slow` adds a small one, with every kernel, at the next narrower width.
"""

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

from tests.support.guarded import beside_guard, survives
from unpool.kernels.cpu.machine import host

TESTS = Path(__file__).parent
ROOT = TESTS.parents[1]
KERNELS = (
    "test_vector_windows.py",
    "test_convert.py",
    "test_paths.py",
    "test_pool_kernels.py",
    "test_pool_tiles.py",
    "test_unpool_kernels.py",
    "test_conv_transpose_blocking.py",
    "test_conv_transpose_direct.py",
    "test_conv_transpose_gemm.py",
    "test_conv_transpose_winograd.py",
)
ALL = (*KERNELS, "../operators/test_semantics.py", "../operators/test_random.py")
ONLY_FUNCTIONS = "not test_example or function"
NEEDED = {
    "x86-64-v4": (64, ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "x86-64-v3": (32, ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")),
    "x86-64": (16, ()),
}
IS_X86 = platform.machine() in ("x86_64", "AMD64")


def supported() -> dict[str, int]:
    """CPU names that this machine can stand in for, and their register's bytes; the machine's own off x86."""
    if not IS_X86:
        return {"host": host.vector_bytes()}
    features = binding.get_host_cpu_features()
    return {name: size for name, (size, needed) in NEEDED.items() if all(features.get(each) for each in needed)}


WIDTHS = supported()
NARROWER = [name for name, size in WIDTHS.items() if size < host.vector_bytes()] or list(WIDTHS)[:1]


def environment(cpu: str, cache: Path) -> dict[str, str]:
    """This process' environment, with Numba compiling for a CPU into a cache of its own.

    Without an empty list of features Numba would add those of the machine to the named CPU.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    chosen = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""} if IS_X86 else {}
    return kept | chosen | {"NUMBA_CACHE_DIR": str(cache)}


def report_of(environ: Mapping[str, str], cases: int) -> dict[str, Any]:
    """What a sample in a process of its own reports; all of it is right."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.width_sample"]
    environ = {**environ, "UNPOOL_GUARDED_CASES": str(cases)}
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert not report["wrong"], "\n\n".join(report["wrong"])
    return report


def compiled_report(environ: Mapping[str, str], cases: int) -> dict[str, Any]:
    """The same of kernels that are compiled there, of which none was left out."""
    report = report_of({**environ, "UNPOOL_KERNELS": "compiled"}, cases)
    assert report["missed"] == []
    return report


@pytest.mark.parametrize(
    "cpu", [pytest.param(cpu, marks=pytest.mark.widths if at else pytest.mark.slow) for at, cpu in enumerate(NARROWER)]
)
def test_sample(cpu: str, tmp_path: Path) -> None:
    """At a narrower width, which our lanes and Numba's code both have, nothing beside any array is touched."""
    report = compiled_report(environment(cpu, tmp_path), 24)
    assert report["cases"] > 100
    assert report["vector_bytes"] == WIDTHS[cpu]
    assert report["compiled_bytes"] == (WIDTHS[cpu] if IS_X86 else 0)


def test_small_sample_of_this_machine() -> None:
    """With the kernels of this installation, shipped or compiled, nothing beside any array is touched."""
    assert report_of(os.environ, 60)["cases"] > 250


@pytest.mark.slow
def test_sample_of_this_machine() -> None:
    """At the width of this machine a larger sample touches nothing beside any array, and leaves out no kernel."""
    assert compiled_report(os.environ, 200)["cases"] > 700


@pytest.mark.widths
@pytest.mark.parametrize("cpu", WIDTHS)
def test_many_beside_guards(cpu: str, tmp_path: Path) -> None:
    """Ten times as many cases touch nothing beside any array at this width."""
    assert compiled_report(environment(cpu, tmp_path), 2000)["cases"] > 7000


@pytest.mark.widths
@pytest.mark.parametrize("cpu", WIDTHS)
def test_everything(cpu: str, tmp_path: Path) -> None:
    """Every kernel, the contract's examples and the random cases pass at this width."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", ONLY_FUNCTIONS]
    run = subprocess.run(
        [*command, *(str(TESTS / name) for name in ALL)],
        env=environment(cpu, tmp_path), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


def test_guards_end_the_process() -> None:
    """The protected page is real: reading one byte beyond an array does not come back."""
    x = beside_guard(np.arange(8), at_end=True)
    assert survives(lambda: ctypes.string_at(x.ctypes.data, x.nbytes))
    assert not survives(lambda: ctypes.string_at(x.ctypes.data + 1, x.nbytes))


def test_this_process_has_the_widest() -> None:
    """The width of this process is one that the machine supports."""
    assert host.vector_bytes() in WIDTHS.values()
