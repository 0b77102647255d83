"""onnx's own backend tests of the three operators, all 44 of them, through the session."""

from tests.support.onnx_suite import suite_classes
from unpool.runtime import onnx_backend

globals().update(suite_classes(onnx_backend, __name__))
