"""The build backend's hook: only libraries of the sources at hand, undamaged and with all kernels, get into a wheel."""

import hashlib
import json
import runpy
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from unpool.onnxruntime import library

ROOT = Path(__file__).parents[2]
KERNELS = Path("src/unpool/kernels/cpu")
PLATFORM = "manylinux_2_17_aarch64"


class AbortError(Exception):
    """The end of a build."""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A copy of the sources that count, and a folder of two libraries that fit to them."""
    from unpool.kernels.cpu.machine.checked_files import source_digest

    for part in (KERNELS, Path("src/unpool/onnxruntime"), Path("src/unpool/build")):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    folder = tmp_path / "libraries"
    folder.mkdir()
    entries = {}
    for level in ("x86-64-v2", "x86-64-v3"):
        (folder / f"{level}.so").write_bytes(level.encode())
        digest = hashlib.sha256(level.encode()).hexdigest()
        entries[level] = {"file": f"{level}.so", "sha256": digest, "kernels": 2}
    manifest = {"platform": PLATFORM, "sources": source_digest(".py"), "only": "", "libraries": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("UNPOOL_LIBRARIES", "libraries")
    return tmp_path


def build(project: Path, monkeypatch: pytest.MonkeyPatch, version: str = "standard") -> dict[str, object]:
    """What the hook adds to a wheel."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["LibrariesHook"]

    def abort(message: str) -> None:
        raise AbortError(message)

    core = SimpleNamespace(optional_dependencies=defaultdict(list))
    data: dict[str, object] = {"force_include": {}}
    project_hook = SimpleNamespace(
        root=str(project), app=SimpleNamespace(abort=abort), metadata=SimpleNamespace(core=core)
    )
    hook.initialize(project_hook, version, data)
    shutil.rmtree(project_hook.folder)
    return data


def test_libraries_get_into_the_wheel(project, monkeypatch):
    """With their manifest and the tag of their platform."""
    data = build(project, monkeypatch)
    names = [f"libraries/{name}" for name in ("manifest.json", "x86-64-v2.so", "x86-64-v3.so")]
    assert sorted(data["force_include"].values()) == [
        f"unpool/{name}" for name in (*names, "onnxruntime/lib/libunpool.so")
    ]
    assert data["tag"] == f"py3-none-{PLATFORM}"


def test_an_editable_installation_has_none(project, monkeypatch):
    """It uses the sources in place, so the library of operators gets there."""
    assert build(project, monkeypatch, "editable") == {"force_include": {}}
    assert (project / "src" / "unpool" / "onnxruntime" / "lib" / library.PATH.name).is_file()


def change_sources(project: Path) -> None:
    with (project / KERNELS / "max_pool" / "compare.py").open("a") as file:
        file.write("# newer")


def change_manifest(project: Path, **values: object) -> None:
    path = project / "libraries" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


FAULTS = {
    "built from other sources": change_sources,
    "x86-64-v3.so is damaged": lambda project: (project / "libraries" / "x86-64-v3.so").write_bytes(b"x"),
    "x86-64-v3.so is missing": lambda project: (project / "libraries" / "x86-64-v3.so").unlink(),
    "only the kernels with 'snake' in their names": lambda project: change_manifest(project, only="snake"),
    "has no libraries": lambda project: change_manifest(project, libraries={}),
    "cannot be read": lambda project: (project / "libraries" / "manifest.json").write_text("{}"),
    "No such file": lambda project: shutil.rmtree(project / "libraries"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_libraries_that_do_not_fit_end_the_build(project, monkeypatch, fault):
    """With one sentence that says why, and what to run."""
    FAULTS[fault](project)
    with pytest.raises(AbortError, match=fault) as error:
        build(project, monkeypatch)
    assert "Run python -m unpool.build" in str(error.value)
