"""onnx's nine light models, whole image networks without their weights, through the session and without a network."""

import re
import unittest

import pytest
from onnx.backend.test.loader import load_model_tests

from tests.support.onnx_suite import backend_test
from unpool.runtime import onnx_backend

CASES = backend_test(onnx_backend, __name__).test_cases
CATEGORY = "OnnxBackendRealModelTest"
ALL_NAMES = unittest.defaultTestLoader.getTestCaseNames(CASES[CATEGORY])
NAMES = [name for name in ALL_NAMES if re.fullmatch(r"test_.*_cpu", name)]


@pytest.fixture(autouse=True)
def folder_for_data(tmp_path, monkeypatch):
    """The suite writes the inputs that it makes into the folder of this variable, and downloads what it lacks."""
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))
    monkeypatch.setattr("onnx.backend.test.runner.urlretrieve", no_network)


def no_network(*_):
    """In place of a download."""
    raise AssertionError("a light model is a file of the package onnx")


def test_there_are_nine():
    """All real models of onnx are light ones, and all are run."""
    assert len(NAMES) == 9
    assert {f"{case.name}_cpu" for case in load_model_tests(kind="real")} == set(NAMES)


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", NAMES)
def test_light_model(name):
    """The session gives the stored output, within onnx's own tolerance."""
    getattr(CASES[CATEGORY](name), name)()
