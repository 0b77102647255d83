"""What wheels bring: Numba with every extra that runs kernels, unless they hold the kernels as machine code."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from unpool.kernels.cpu.machine.checked_files import digest_files

ROOT = Path(__file__).parents[2]
FOR_USERS = {"run", "demo", "torch", "dask", "formats", "gpu", "openvino"}
SOURCES = "src/unpool/kernels/cpu/machine/checked_files.py"
NUMBA = re.compile(r"^Requires-Dist: numba\b.*extra == '(\w+)'$", re.MULTILINE)


@pytest.fixture
def clone(tmp_path):
    """The project with as little of the package as the build needs, and a folder for the libraries of a platform."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src/unpool/__init__.py", SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "pyproject.toml").open("a") as project:  # an editable one needs the package `editables` without it
        project.write('[tool.hatch.build]\ndev-mode-dirs = ["src"]\n')
    library = tmp_path / "libraries" / "unpool.so"
    library.parent.mkdir()
    library.write_bytes(b"machine code")
    entry = {"file": library.name, "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}
    sources = digest_files(tmp_path / "src" / "unpool" / "kernels" / "cpu", ".py")
    manifest = {"platform": "linux_x86_64", "sources": sources, "only": "", "libraries": {"x86-64-v2": entry}}
    (library.parent / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def extras_with_numba(clone, hook, **environment):
    """The extras that bring Numba, in the metadata of what a hook of the build backend makes."""
    (clone / "made").mkdir()
    known = {name: value for name, value in os.environ.items() if name != "UNPOOL_LIBRARIES"}
    command = [sys.executable, "-c", f"import hatchling.build as backend; print(backend.{hook}('made'))"]
    done = subprocess.run(command, cwd=clone, env={**known, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(NUMBA.findall(metadata(clone / "made" / done.stdout.splitlines()[-1])))


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


def test_a_wheel_without_libraries_brings_numba(clone):
    """With every extra for users, and `jit`: one bracket is enough in a clone."""
    assert extras_with_numba(clone, "build_wheel") >= FOR_USERS | {"jit"}


def test_a_wheel_with_libraries_brings_numba_when_asked(clone):
    """By `jit`, for what the libraries lack, and for those who change unpool."""
    assert extras_with_numba(clone, "build_wheel", UNPOOL_LIBRARIES="libraries") & (FOR_USERS | {"jit"}) == {"jit"}


@pytest.mark.parametrize("hook", ["build_editable", "build_sdist", "prepare_metadata_for_build_wheel"])
def test_only_a_wheel_has_libraries(clone, hook):
    """Sources, an installation of them in place, and what a resolver is told before a wheel is built bring Numba."""
    assert extras_with_numba(clone, hook, UNPOOL_LIBRARIES="libraries") >= FOR_USERS | {"jit"}
