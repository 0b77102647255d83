"""onnx's own backend tests of the three operators, all 44 of them, through the session."""

import re
import unittest
import warnings

from unpool.runtime import onnx_backend

with warnings.catch_warnings():
    # onnx computes its test data at import: some of its own generators divide by zero or overflow there.
    warnings.simplefilter("ignore", RuntimeWarning)
    from onnx.backend.test import BackendTest

    suite = BackendTest(onnx_backend, __name__)

WANTED = (
    r"test_(convtranspose|maxpool|maxunpool)(_.*)?_cpu",
    r"test_(ConvTranspose|MaxPool).*_cpu",
    r"test_operator_(maxpool|convtranspose)_cpu",
)
NODE_CASES, CONVERTED_CASES, PYTORCH_OPERATOR_CASES = 32, 10, 2
for pattern in WANTED:
    suite.include(f"^{pattern}$")


def wanted_cases():
    """The test classes without the cases that are not ours, which unittest would count as skipped."""
    for category, cases in suite.test_cases.items():
        names = unittest.defaultTestLoader.getTestCaseNames(cases)
        functions = {name: getattr(cases, name) for name in names if any(re.fullmatch(one, name) for one in WANTED)}
        if functions:
            yield category, type(category, (unittest.TestCase,), functions)


CASES = dict(wanted_cases())
counts = sorted(sum(one.startswith("test_") for one in vars(cases)) for cases in CASES.values())
assert counts == [PYTORCH_OPERATOR_CASES, CONVERTED_CASES, NODE_CASES], counts
globals().update(CASES)
