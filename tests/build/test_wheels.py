"""What wheels bring: the operators for onnxruntime, and Numba with every extra that runs kernels, or machine code."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.binaries import HEADERS, machine_of
from unpool.kernels.cpu.machine.checked_files import digest_files
from unpool.onnxruntime import library

ROOT = Path(__file__).parents[2]
FOR_USERS = {"run", "demo", "torch", "dask", "formats", "gpu", "openvino"}
WITH_LIBRARIES = {"UNPOOL_LIBRARIES": "libraries"}
SOURCES = [
    "src/unpool/kernels/cpu/machine/checked_files.py",
    "src/unpool/build/targets.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "src" / "unpool" / "onnxruntime").glob("*.*")),
]
NUMBA = re.compile(r"^Requires-Dist: numba\b.*extra == '(\w+)'$", re.MULTILINE)


@pytest.fixture
def clone(tmp_path):
    """The project with as little of the package as the build needs, and a folder for the libraries of a platform."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src/unpool/__init__.py", *SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "pyproject.toml").open("a") as project:  # an editable one needs the package `editables` without it
        project.write('[tool.hatch.build]\ndev-mode-dirs = ["src"]\n')
    library = tmp_path / "libraries" / "unpool.so"
    library.parent.mkdir()
    library.write_bytes(b"machine code")
    entry = {"file": library.name, "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}
    sources = digest_files(tmp_path / "src" / "unpool" / "kernels" / "cpu", ".py")
    manifest = {"platform": "manylinux_2_17_aarch64", "sources": sources, "only": "", "libraries": {"x86-64-v2": entry}}
    (library.parent / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize(
    ("hook", "environment", "expected"),
    [
        ("build_wheel", {}, FOR_USERS | {"jit"}),
        ("build_wheel", WITH_LIBRARIES, {"jit"}),  # for what the libraries lack, and for those who change unpool
        ("build_editable", WITH_LIBRARIES, FOR_USERS | {"jit"}),
        ("build_sdist", WITH_LIBRARIES, FOR_USERS | {"jit"}),
        ("prepare_metadata_for_build_wheel", WITH_LIBRARIES, FOR_USERS | {"jit"}),
    ],
)
def test_extras_bring_numba(clone, hook, environment, expected):
    """Every extra for users, one bracket in a clone; with libraries `jit` alone, but only a wheel has libraries."""
    extras = set(NUMBA.findall(metadata(make(clone, hook, **environment))))
    assert extras & (FOR_USERS | {"jit"}) == expected


def make(clone, hook, **environment):
    done = run(clone, hook, **environment)
    assert done.returncode == 0, done.stderr
    return clone / "made" / done.stdout.splitlines()[-1]


def run(clone, hook, **environment):
    """The process of a hook of the build backend."""
    (clone / "made").mkdir()
    known = {name: value for name, value in os.environ.items() if name != "UNPOOL_LIBRARIES"}
    command = [sys.executable, "-c", f"import hatchling.build as backend; print(backend.{hook}('made'))"]
    return subprocess.run(command, cwd=clone, env={**known, **environment}, capture_output=True, text=True, check=False)


def metadata(made):
    """The core metadata in a wheel, in a source distribution or in a folder."""
    if made.is_dir():
        return (made / "METADATA").read_text()
    if made.suffix == ".whl":
        with ZipFile(made) as wheel:
            (name,) = (each for each in wheel.namelist() if each.endswith("/METADATA"))
            return wheel.read(name).decode()
    with tarfile.open(made) as archive:
        return archive.extractfile(f"{made.name.removesuffix('.tar.gz')}/PKG-INFO").read().decode()


def libraries_in(wheel):
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.endswith((".so", ".dylib", ".dll"))}


def test_a_wheel_has_the_operators_for_onnxruntime(clone):
    """As a library for this machine, even if the sources hold an earlier one, with the tag of the platform."""
    old = clone / "src" / "unpool" / "onnxruntime" / "lib" / library.PATH.name
    old.parent.mkdir()
    old.write_bytes(b"earlier")
    wheel = make(clone, "build_wheel")
    (name,) = libraries_in(wheel)
    assert name == f"unpool/onnxruntime/lib/{library.PATH.name}"
    assert ZipFile(wheel).read(name) != b"earlier"
    assert wheel.stem.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}")


def test_a_wheel_for_another_platform_has_its_library(clone):
    """Beside that of the kernels and their manifest, with the tag of the platform."""
    wheel = make(clone, "build_wheel", **WITH_LIBRARIES)
    assert "unpool/libraries/manifest.json" in ZipFile(wheel).namelist()
    assert wheel.stem.endswith("-py3-none-manylinux_2_17_aarch64")
    assert libraries_in(wheel) == {"unpool/libraries/unpool.so", "unpool/onnxruntime/lib/libunpool.so"}
    content = ZipFile(wheel).read("unpool/onnxruntime/lib/libunpool.so")
    assert machine_of(content, ".so") == HEADERS[".so"][1]["aarch64"]


def test_an_installation_in_place_has_the_operators_for_onnxruntime(clone):
    """Where the sources look for them."""
    make(clone, "build_editable")
    assert (clone / "src" / "unpool" / "onnxruntime" / "lib" / library.PATH.name).stat().st_size > 10_000


def test_a_machine_without_a_target_has_a_wheel_without_the_operators(clone):
    """The build says so, and the wheel fits all platforms."""
    with (clone / "src" / "unpool" / "build" / "targets.py").open("a") as file:
        file.write("\nTARGETS.clear()\n")
    wheel = make(clone, "build_wheel")
    assert libraries_in(wheel) == set()
    assert wheel.stem.endswith("-py3-none-any")


def test_sources_that_do_not_compile_end_the_build(clone):
    """After the message of the compiler."""
    with (clone / "src" / "unpool" / "onnxruntime" / "library.c").open("a") as file:
        file.write("nonsense;\n")
    done = run(clone, "build_wheel")
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "the library for onnxruntime does not compile, see above" in done.stderr


def change_manifest(clone, **values):
    path = clone / "libraries" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


FAULTS = {
    "built from other sources": lambda clone: (clone / "src/unpool/kernels/cpu/newer.py").write_text("# newer"),
    "unpool.so is damaged": lambda clone: (clone / "libraries" / "unpool.so").write_bytes(b"x"),
    "unpool.so is missing": lambda clone: (clone / "libraries" / "unpool.so").unlink(),
    "only the kernels with 'snake' in their names": lambda clone: change_manifest(clone, only="snake"),
    "has no libraries": lambda clone: change_manifest(clone, libraries={}),
    "cannot be read": lambda clone: (clone / "libraries" / "manifest.json").write_text("{}"),
    "No such file": lambda clone: shutil.rmtree(clone / "libraries"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_libraries_that_do_not_fit_end_the_build(clone, fault):
    """Damaged ones, those that lack kernels or have other sources, with one sentence that says why and what to run."""
    FAULTS[fault](clone)
    done = run(clone, "build_wheel", **WITH_LIBRARIES)
    assert done.returncode == 1
    assert fault in done.stderr
    assert "Run python -m unpool.build" in done.stderr
