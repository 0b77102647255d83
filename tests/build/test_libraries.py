"""Libraries of kernels: built, verified, loaded without Numba, and what happens without them."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from llvmlite import binding

from tests.support.binaries import HEADERS, PRIVATE_EXTERNAL, machine_of, symbols_of_mach_o
from unpool.build.targets import TARGETS, Target
from unpool.kernels.cpu.machine import host, libraries

KERNEL = "max_pool.tiles._make_kernel(float32, 2"  # text in the names of the kernels that are built here

POOL = """
import sys
import numpy as np
import unpool
x = np.arange(64 * 256, dtype=np.float32).reshape(1, 1, 64, 256)
y, indices = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
assert np.array_equal(y, x[:, :, 1::2, 1::2]) and np.array_equal(indices.ravel(), y.ravel())
print(sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


SPELLING = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
"""This machine's name on Windows and macOS."""


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
    features = binding.get_host_cpu_features()
    if not binding.get_process_triple().startswith("x86_64"):
        return "aarch64"
    return "x86-64-v4" if features.get("avx512vl") else "x86-64-v3" if features.get("avx2") else "x86-64-v2"


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unpool.build", "--output", str(folder), "--only", KERNEL, "--jobs", "1", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def run(folder: Path, code: str = POOL, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds its libraries in a folder."""
    begin = "from pathlib import Path\nfrom unpool.kernels.cpu.machine import libraries\n"
    begin += f"libraries.FOLDER = Path({str(folder)!r})\n"
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_CPU", "UNPOOL_KERNELS"))}
    command = [sys.executable, "-c", begin + code]
    return subprocess.run(command, env={**known, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("has_cache", [True, False])
def test_a_shipped_kernel_needs_no_numba(folder, tmp_path, has_cache):
    """The first call finds its machine code, and gives the result; no note of a verified library has to be written."""
    (tmp_path / "file").write_text("no folder can be made here")
    nowhere = {} if has_cache else dict.fromkeys(("NUMBA_CACHE_DIR", "HOME"), str(tmp_path / "file"))
    done = run(folder, UNPOOL_KERNELS="shipped", **nowhere)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize(
    ("begin", "environment", "expected"),
    [
        ("", {}, level()),  # of several the highest that the processor has, as LLVM knows it
        ("", {"UNPOOL_KERNELS": "compiled"}, None),
        ("", {"NUMBA_CPU_NAME": "generic"}, None),  # Numba shall compile for another processor
        *(
            (f"import platform\nplatform.machine = lambda: {name!r}\n", {}, level())
            for name in (SPELLING, SPELLING.upper())
        ),
    ],
)
def test_the_library_of_the_processor_is_loaded(folder, begin, environment, expected):
    """Unless kernels shall be compiled; Windows and macOS spell the machine in other ways, as AMD64 and arm64."""
    done = run(folder, f"{begin}print(libraries.level())", **environment)
    assert done.stdout.strip() == str(expected), done.stderr


def test_a_lower_level_can_be_chosen(folder):
    """By a variable, as compiling a model for other processors does; a level that is none is named."""
    lowest = min(manifest(folder))
    assert run(folder, "print(libraries.level())", UNPOOL_LEVEL=lowest).stdout.strip() == lowest
    refused = run(folder, POOL, UNPOOL_LEVEL="v2").stderr.splitlines()[-1]
    assert refused.startswith("unpool.errors.UnpoolError: UNPOOL_LEVEL: expected one of x86-64-v2, ")
    assert refused.endswith("; got 'v2'.")


def test_a_verified_library_is_not_read_again(folder, tmp_path):
    """A note says which file was verified; in one that was changed since, with the same size and time, it is wrong."""
    cache = tmp_path / "cache"
    assert run(folder, UNPOOL_KERNELS="shipped", NUMBA_CACHE_DIR=str(cache)).returncode == 0
    path = folder / manifest(folder)[level()]["file"]
    notes = {note: note.stat().st_mtime_ns for note in cache.glob("*/libraries-*/*")}
    assert len(notes) == len(manifest(folder))
    assert run(folder, UNPOOL_KERNELS="shipped", NUMBA_CACHE_DIR=str(cache)).returncode == 0
    assert {note: note.stat().st_mtime_ns for note in cache.glob("*/libraries-*/*")} == notes
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "is damaged" in run(folder, UNPOOL_KERNELS="auto", NUMBA_CACHE_DIR=str(cache)).stderr


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
    refused = run(folder, UNPOOL_KERNELS="shipped").stderr.splitlines()
    forbids = "and UNPOOL_KERNELS=shipped forbids to compile them. Install unpool again."
    assert refused[-1] == f"unpool.errors.UnpoolError: kernels: {path} is damaged, {forbids}"
    assert not any("so kernels are compiled" in line for line in refused)


def test_a_missing_kernel_is_compiled(folder):
    """What the library lacks is compiled and logged, or refused by its name."""
    code = f"import logging\nlogging.basicConfig(level=20)\n{POOL.replace('np.float32', 'np.float64')}"
    done = run(folder, code)
    assert (done.returncode, done.stdout.strip()) == (0, "['llvmlite', 'numba']"), done.stderr
    assert "float64, 2, True, False" in done.stderr
    assert f"the library for {level()} lacks unpool.kernels.cpu.max_pool" in done.stderr
    assert "so it is compiled." in done.stderr
    refused = run(folder, code, UNPOOL_KERNELS="shipped").stderr
    assert "lacks unpool.kernels.cpu.max_pool.tiles._make_kernel(float64, 2, True, False" in refused


def test_a_library_of_other_sources_is_not_loaded(folder):
    """Kernels whose sources changed after the build are compiled, also when the library was used before."""
    assert run(folder, UNPOOL_KERNELS="shipped").returncode == 0
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"sources": "', '"sources": "0'))
    assert "was built from other sources, so kernels are compiled." in run(folder).stderr


def test_without_numba_a_missing_kernel_is_an_error(folder):
    """It says how to get it; a shipped one is used, whatever NUMBA_CPU_NAME says, which is set on whole clusters."""
    code = POOL.replace("import numpy", "sys.modules['numba'] = None\nimport numpy")
    done = run(folder, code, NUMBA_CPU_NAME="generic")
    assert done.returncode == 0, done.stderr
    said = run(folder, code.replace("np.float32", "np.float64")).stderr
    assert f"the library for {level()} lacks unpool.kernels.cpu.max_pool.tiles" in said
    assert "so it is compiled: numba is not installed. In a clone of unpool, run: pip install '.[jit]'" in said


def test_a_new_shape_takes_no_memory(folder):
    """A kernel of the library is one function of Python, however many shapes it is called for."""
    code = """
import gc, types
import numpy as np
import unpool
def functions():
    gc.collect()
    return sum(type(each) is types.BuiltinFunctionType for each in gc.get_objects()), len(libraries._definitions)
def call(size):
    unpool.max_pool(np.zeros((1, 1, 64, size), np.float32), kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
call(256)
before = functions()
for size in range(258, 358, 2):
    call(size)
print(functions() == before, before[1] > 0)
"""
    done = run(folder, code, UNPOOL_KERNELS="shipped")
    assert done.stdout.strip() == "True True", done.stderr


def test_unknown_choices_are_refused(folder):
    """The error has the three that there are."""
    done = run(folder, UNPOOL_KERNELS="fastest")
    assert "UNPOOL_KERNELS: expected auto, shipped or compiled; got 'fastest'." in done.stderr


def test_without_libraries_kernels_are_compiled(tmp_path):
    """As in an installation from a clone."""
    assert run(tmp_path, "print(libraries.level())").stdout.strip() == "None"
    assert "this installation has no libraries" in run(tmp_path, UNPOOL_KERNELS="shipped").stderr


BUILD = [sys.executable, "-m", "unpool.build", "--jobs", "1", "--level", "native"]


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--jobs", "0"], "--jobs: expected 1 or more, got 0"), (["--only", "nothing"], "no kernel of the catalogue has")],
)
def test_a_build_of_nothing_is_refused(tmp_path, options, message):
    """With one error, and nothing is written."""
    command = [*BUILD, "--output", str(tmp_path / "libraries"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows ends processes without a signal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", None)])
def test_a_build_that_is_ended_leaves_nothing(tmp_path, number):
    """Neither its compilers nor their folder, nor a library."""
    environment = os.environ | {"TMPDIR": str(tmp_path / "work")}
    (tmp_path / "work").mkdir()
    command = [*BUILD, "--only", KERNEL, "--output", str(tmp_path / "libraries")]
    build = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, process_group=0)
    while not list((tmp_path / "work").glob("*/*")) and build.poll() is None:
        time.sleep(0.05)
    (folder,) = (tmp_path / "work").glob("*/*")
    os.kill(build.pid, number)
    assert build.wait(60) != 0
    with pytest.raises(ProcessLookupError):  # of the group, only compilers could be left
        os.killpg(build.pid, 0)
    assert list(tmp_path.rglob("*")) == [tmp_path / "work"]
    assert not folder.exists()


@pytest.mark.parametrize(("sources", "is_kept"), [("", True), ("0", False)], ids=["same sources", "other sources"])
def test_a_second_build_keeps_what_fits(folder, sources, is_kept):
    """Libraries of the same sources stay in the manifest; others are left out, and the output says so."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["libraries"] = {"another-level": content["libraries"][level()]}
    path.write_text(json.dumps(content | {"sources": content["sources"] + sources}))
    done = build(folder, "--level", level())
    assert list(manifest(folder)) == (["another-level", level()] if is_kept else [level()])
    assert ("another-level are left out" in done.stdout) is not is_kept


EVERY_CALL = Path(__file__).parents[1] / "support" / "every_call.py"
STEP = "19"  # of the catalogue, every so many calls are compared


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


@pytest.fixture(scope="module", params=TARGETS)
def linked(request, tmp_path_factory) -> tuple[Target, list[Path]]:
    """A target, and two builds of the library for its last level, in folders with nothing else but the manifest."""
    target = TARGETS[request.param]
    chosen, paths = list(target.processors)[-1], []
    for number in range(2):
        folder = tmp_path_factory.mktemp(f"build{number}")
        build(folder, "--target", target.name, "--level", chosen)
        assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", target.file(chosen)]
        paths.append(folder / target.file(chosen))
    return target, paths


@pytest.mark.slow
def test_every_target_links(linked):
    """Each file says which processor its code is for, and is the same at any time and in any folder."""
    target, (path, again) = linked
    magic, machines = HEADERS[target.suffix]
    content = path.read_bytes()
    assert content.startswith(magic)
    assert machine_of(content, target.suffix) == machines[target.machine]
    assert content == again.read_bytes()


FOREIGN = (b"NRT_MemInfo_alloc_aligned", b"NRT_MemInfo_call_dtor", b"_CRT_INIT", b"__mingw_module_is_dll")
"""Names that other libraries may have, too."""


@pytest.mark.slow
def test_every_target_keeps_its_functions_to_itself(linked):
    """No name can be taken over by another library but those that the loader looks up; ELF and PE hold no others."""
    target, (path, _) = linked
    content = path.read_bytes()
    if target.suffix != ".dylib":
        assert not [name for name in FOREIGN if name in content]
        return
    kinds = dict(symbols_of_mach_o(content))
    assert all(kinds[b"_" + name] & PRIVATE_EXTERNAL for name in FOREIGN[:2])
    assert not any(kind & PRIVATE_EXTERNAL for name, kind in kinds.items() if name.startswith(b"_unpool_"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a library calls its own functions by default")
def test_another_library_takes_nothing_over(folder, tmp_path):
    """One that is loaded for all before, with the names of Numba's functions for memory, and of the table."""
    source = tmp_path / "other.c"
    source.write_text("""
void abort(void);
void *NRT_MemInfo_alloc_aligned(unsigned long size, unsigned alignment) { abort(); }
void NRT_MemInfo_call_dtor(void *info) { abort(); }
void *unpool_python[16];
""")
    here = "Linux", platform.machine()
    target = next(name for name, each in TARGETS.items() if (each.system, each.machine) == here)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", "-o", str(tmp_path / "other.so")]
    subprocess.run([*zig, str(source)], check=True, capture_output=True)
    code = f"import ctypes\nctypes.CDLL({str(tmp_path / 'other.so')!r}, ctypes.RTLD_GLOBAL)\n{POOL}"
    done = run(folder, code, UNPOOL_KERNELS="shipped")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_levels_have_their_registers():
    """As long and as many as LLVM says of such processors."""
    sizes = {name: (each.vector_bytes, each.vector_registers) for name, each in host.LEVELS.items()}
    wide = {"x86-64-v2": (16, 16), "x86-64-v3": (32, 16), "x86-64-v4": (64, 32), "aarch64": (16, 32)}
    assert sizes == {**wide, "generic": (16, 16)}


@pytest.mark.parametrize(("triple", "name"), [("riscv64-unknown-linux-gnu", "generic"), ("arm64-apple", "aarch64")])
def test_other_processors_have_their_level(triple, name, monkeypatch):
    """One that is neither x86 nor AArch64 counts on no more registers than any has."""
    monkeypatch.delenv("UNPOOL_BUILD_LEVEL", raising=False)
    monkeypatch.setattr(libraries, "level", lambda: None)
    monkeypatch.setattr("llvmlite.binding.get_process_triple", lambda: triple)
    assert host.level.__wrapped__().name == name


@pytest.mark.parametrize("machine", ["riscv64", "ppc64le"])
def test_other_machines_compile(folder, machine):
    """No library is for them."""
    code = f"import platform\nplatform.machine = lambda: {machine!r}\n"
    assert run(folder, f"{code}print(libraries.level())").stdout.strip() == "None"
    assert f"no library is for {machine}" in run(folder, code + POOL, UNPOOL_KERNELS="shipped").stderr
    assert machine not in libraries.MACHINE_LEVELS
