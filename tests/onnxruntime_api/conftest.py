"""The two modules that a script may import as `ort`, and the models that it loads."""

import importlib

import onnxruntime
import pytest

from tests.onnxruntime_api.nets import NETS


def pytest_configure(config):
    """Name the marker of this package."""
    config.addinivalue_line("markers", "needs(name): deselected where onnxruntime has no such name, 'Class.method'")


def pytest_collection_modifyitems(config, items):
    """Leave out what needs a newer onnxruntime."""
    left_out = [item for item in items if not all(has(mark.args[0]) for mark in item.iter_markers("needs"))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def has(name):
    """Whether the installed onnxruntime has a name such as 'InferenceSession.run'."""
    found = onnxruntime
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


@pytest.fixture(params=[pytest.param("onnxruntime", marks=pytest.mark.slow), "unpool"])
def ort(request):
    """What a script imports as `ort`; what onnxruntime does by itself is asked in the second tier."""
    return importlib.import_module(request.param)


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
def here(tmp_path, monkeypatch):
    """An empty folder that relative names lead to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
