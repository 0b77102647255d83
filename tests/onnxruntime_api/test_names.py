"""Every public name of onnxruntime is there, and the list of gaps names tests that exist."""

import ast
import inspect
import subprocess
import sys

import onnxruntime
import pytest

import unpool
from conformance.onnxruntime_api.of_values import OF_THE_PACKAGE
from tests.onnxruntime_api.conftest import HERE, listed

MODULE = sorted(name for name in dir(onnxruntime) if not name.startswith("_") and name not in OF_THE_PACKAGE)
SESSION = sorted(name for name in dir(onnxruntime.InferenceSession) if not name.startswith("_"))
OWN = {"InferenceSession", "IOBinding", "SessionIOBinding", "NodeArg", "ModelMetadata", "ModelCompiler"}
CLASSES = [name for name in MODULE if inspect.isclass(getattr(onnxruntime, name)) and name not in OWN]
METHODS = [name for name in SESSION if inspect.isfunction(getattr(onnxruntime.InferenceSession, name))]


def test_the_session_has_every_public_name():
    """Each public method and property of onnxruntime's session is one of unpool's."""
    assert [name for name in SESSION if not hasattr(unpool.InferenceSession, name)] == []


def test_methods_take_the_same_parameters():
    """Each method takes onnxruntime's parameters, by the same names in the same order, and may take more."""
    theirs, ours = (
        {name: list(inspect.signature(getattr(module.InferenceSession, name)).parameters) for name in METHODS}
        for module in (onnxruntime, unpool)
    )

    assert {name: ours[name][: len(parameters)] for name, parameters in theirs.items()} == theirs


def test_the_module_has_every_public_name():
    """Each public name of the module onnxruntime is one of unpool."""
    assert [name for name in MODULE if not hasattr(unpool, name)] == []


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


def test_the_device_is_said(ort):
    """`get_device` names what this build is for."""
    assert "CPU" in ort.get_device() or "GPU" in ort.get_device()


def test_the_build_is_said(ort):
    """Version and build are words."""
    assert ort.get_version_string()
    assert "Build Info" in ort.get_build_info()


@pytest.mark.parametrize(("name", "value"), [("set_default_logger_severity", 2), ("set_default_logger_verbosity", 0)])
def test_the_log_is_set(ort, name, value):
    """Level and verbosity of the default log are taken."""
    assert getattr(ort, name)(value) is None


@pytest.mark.sample(2)
def test_the_level_of_the_log_reaches_every_partition(ort, net):
    """A session that says nothing of its log has lines of the level that was chosen for all, and before that none."""
    code = f"""if True:
        import {ort.__name__} as ort, sys
        content = bytes.fromhex("{net.content.hex()}")
        ort.InferenceSession(content)
        print("chosen", file=sys.stderr, flush=True)
        ort.set_default_logger_severity(0)
        ort.InferenceSession(content)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, _, after = done.stderr.partition("chosen")

    assert "[V:onnxruntime" not in before
    assert "[V:onnxruntime" in after


def test_the_seed_is_set(ort):
    """A seed for random operators is taken."""
    assert ort.set_seed(7) is None


def test_telemetry_is_switched(ort):
    """Scripts that switch telemetry keep running."""
    ort.disable_telemetry_events()


def test_a_name_that_nobody_has(ort):
    """An unknown name is an AttributeError that has it."""
    with pytest.raises(AttributeError, match="abacus"):
        ort.abacus  # noqa: B018


def test_the_exceptions_are_where_scripts_look(ort):
    """The classes of exceptions are found under `capi`, where scripts import them from."""
    assert issubclass(ort.capi.onnxruntime_pybind11_state.InvalidArgument, Exception)


def test_listed_tests_exist():
    """Each line of the list of gaps names a test function of this package and has a reason."""
    known = {
        f"{path.name}::{node.name}"
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }

    assert {line.partition("[")[0] for line in listed()} <= known
    assert all(listed().values())


def test_onnxruntime_is_not_listed():
    """The list has gaps of unpool alone."""
    assert [line for line in listed() if "[onnxruntime" in line] == []
