"""The two modules that a script may import as `ort`, the models it loads, and the list of what unpool lacks yet."""

import importlib
from pathlib import Path

import onnxruntime
import pytest

from tests.onnxruntime_api.nets import NETS

HERE = Path(__file__).parent
NOT_YET = HERE / "not_yet.txt"
PAGE = HERE.parents[1] / "docs" / "onnxruntime.md"
NEWEST = "InferenceSession.release_captured_graph"
"""A name that only the newest release of onnxruntime has."""


def listed():
    """Reasons by test id, from lines `test id  # reason`."""
    lines = NOT_YET.read_text(encoding="utf-8").splitlines()
    return dict(line.split("  # ", 1) for line in lines if line)


def pytest_configure(config):
    """Name the markers of this package."""
    config.addinivalue_line("markers", "needs(name): deselected where onnxruntime has no such name, 'Class.method'")
    config.addinivalue_line("markers", "of_the_page: deselected with another release than that of docs/onnxruntime.md")
    config.addinivalue_line("markers", "changed: an older onnxruntime did otherwise, and is not asked")


def pytest_collection_modifyitems(config, items):
    """Expect the listed tests to fail, and leave out what needs a newer onnxruntime."""
    reasons = listed()
    kept, left_out = [], []
    for item in items:
        (left_out if lacks(item) else kept).append(item)
        place, _, name = item.nodeid.partition("::")
        reason = reasons.get(f"{Path(place).name}::{name}")
        if item.path.parent == HERE and reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def lacks(item):
    """Whether the installed onnxruntime is too old for a test: unpool alone does as the newest one does."""
    asked = getattr(item, "callspec", None) and item.callspec.params.get("ort") == "onnxruntime"
    if (
        any(item.iter_markers("of_the_page"))
        and f"` with onnxruntime {onnxruntime.__version__}," not in PAGE.read_text()
    ):
        return True
    names = [mark.args[0] for mark in item.iter_markers("needs")]
    names += [NEWEST for _ in item.iter_markers("changed") if asked]
    return any(not has(onnxruntime, name) for name in names)


def has(module, name):
    """Whether a module has a name such as 'InferenceSession.run'."""
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.fixture(params=[pytest.param("onnxruntime", marks=pytest.mark.slow), "unpool", "inside"])
def ort(request):
    """What a script imports as `ort`; what onnxruntime does by itself is asked in the second tier."""
    return importlib.import_module({"inside": "tests.onnxruntime_api.inside"}.get(request.param, request.param))


ONE_FIRST = [pytest.param(name, marks=() if name == "pools" else pytest.mark.slow) for name in NETS]
"""The first tier has one model for each of these tests."""


@pytest.fixture(params=ONE_FIRST)
def net(request):
    """A model for one image, with what it takes and gives: with operators of unpool and without."""
    return NETS[request.param]()


@pytest.fixture(params=ONE_FIRST)
def free_net(request):
    """The same models for any number of images; the values are of three."""
    return NETS[request.param]("N", 3)


@pytest.fixture
def session(ort, net):
    """A session of `net` without options."""
    return ort.InferenceSession(net.content)


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An empty folder that relative names lead to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
