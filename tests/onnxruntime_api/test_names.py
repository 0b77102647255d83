"""Every public name of onnxruntime is there."""

import inspect
import subprocess
import sys

import onnxruntime
import pytest

import unpool

OF_THE_PACKAGE = {
    *("contextlib", "cuda_version", "import_capi_exception", "onnxruntime_validation", "package_name", "version"),
    *("backend", "datasets", "quantization", "tools", "transformers"),  # modules that appear when they are imported
}
MODULE = sorted(name for name in dir(onnxruntime) if not name.startswith("_") and name not in OF_THE_PACKAGE)
SESSION = sorted(name for name in dir(onnxruntime.InferenceSession) if not name.startswith("_"))
OWN = {"InferenceSession", "IOBinding", "SessionIOBinding", "NodeArg", "ModelMetadata", "ModelCompiler"}
CLASSES = [name for name in MODULE if inspect.isclass(getattr(onnxruntime, name)) and name not in OWN]
METHODS = [name for name in SESSION if inspect.isfunction(getattr(onnxruntime.InferenceSession, name))]


@pytest.mark.parametrize(
    ("names", "ours"), [(SESSION, unpool.InferenceSession), (MODULE, unpool)], ids=["session", "module"]
)
def test_every_public_name_is_there(names, ours):
    """Each public method and property of onnxruntime's session, and each name of its module, is one of unpool's."""
    assert [name for name in names if not hasattr(ours, name)] == []


def test_methods_take_the_same_parameters():
    """Each method takes onnxruntime's parameters, by the same names in the same order, and may take more."""
    theirs, ours = (
        {name: list(inspect.signature(getattr(module.InferenceSession, name)).parameters) for name in METHODS}
        for module in (onnxruntime, unpool)
    )

    assert {name: ours[name][: len(parameters)] for name, parameters in theirs.items()} == theirs


def test_classes_work_with_those_of_onnxruntime():
    """A class whose objects are handed over is onnxruntime's or is derived from it: other libraries take them."""
    assert [name for name in CLASSES if not issubclass(getattr(unpool, name), getattr(onnxruntime, name))] == []


@pytest.mark.parametrize("name", ["SessionOptions", "get_available_providers"])
def test_names_are_handed_on_without_loading_onnxruntime(name):
    """`import unpool` loads no onnxruntime; the first use of a name of it does."""
    code = (
        f"import sys, unpool; a = 'onnxruntime' in sys.modules; unpool.{name}; print(a, 'onnxruntime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]


def test_a_star_import_stays_small():
    """`from unpool import *` takes unpool's own names alone."""
    assert "SessionOptions" not in unpool.__all__


def test_a_name_that_nobody_has(ort):
    """An unknown name is an AttributeError that has it."""
    with pytest.raises(AttributeError, match="abacus"):
        ort.abacus  # noqa: B018


def test_the_exceptions_are_where_scripts_look(ort):
    """The classes of exceptions are found under `capi`, where scripts import them from."""
    assert issubclass(ort.capi.onnxruntime_pybind11_state.InvalidArgument, Exception)
