"""onnx's own backend tests of the three operators, all 44 of them, for a backend."""

import importlib
import re
import unittest
import warnings
from typing import Any
from unittest import mock

MODULES = ("convtranspose", "maxpool", "maxunpool")
"""Of `onnx.backend.test.case.node`: the import of a module computes its test data, of all modules in 5 s."""
WANTED = (
    r"test_(convtranspose|maxpool|maxunpool)(_.*)?_cpu",
    r"test_(ConvTranspose|MaxPool).*_cpu",
    r"test_operator_(maxpool|convtranspose)_cpu",
)
COUNTS = {
    "OnnxBackendNodeModelTest": 32,
    "OnnxBackendPyTorchConvertedModelTest": 10,
    "OnnxBackendPyTorchOperatorModelTest": 2,
}


def backend_test(backend: Any, module: str) -> Any:
    """The `BackendTest` of onnx for a backend, without the node tests of other operators."""
    with warnings.catch_warnings():
        # onnx computes its test data at import: some of its own generators divide by zero or overflow there.
        warnings.simplefilter("ignore", RuntimeWarning)
        from onnx.backend.test import BackendTest, loader
        from onnx.backend.test.case.node import _NodeTestCases

        for name in MODULES:
            importlib.import_module(f"onnx.backend.test.case.node.{name}")

        def model_tests(kind: str) -> list[Any]:
            return list(_NodeTestCases) if kind == "node" else loader.load_model_tests(kind=kind)

        with mock.patch("onnx.backend.test.runner.load_model_tests", model_tests):
            return BackendTest(backend, module)


def suite_classes(backend: Any, module: str) -> dict[str, type[unittest.TestCase]]:
    """Classes by name, without the cases that are not ours, which unittest would count as skipped."""
    suite = backend_test(backend, module)
    for pattern in WANTED:
        suite.include(f"^{pattern}$")
    classes = {}
    for category, cases in suite.test_cases.items():
        names = unittest.defaultTestLoader.getTestCaseNames(cases)
        functions = {name: getattr(cases, name) for name in names if any(re.fullmatch(one, name) for one in WANTED)}
        if functions:
            classes[category] = type(category, (unittest.TestCase,), functions)
            assert len(functions) == COUNTS[category], category
    assert classes.keys() == COUNTS.keys()
    return classes
