"""The operators inside onnxruntime: in its own sessions, under the names of the standard.

>>> import onnxruntime
>>> import unpool.onnxruntime
>>> options = onnxruntime.SessionOptions()
>>> unpool.onnxruntime.register(options)  # then onnxruntime.InferenceSession("segnet.onnx", options)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpool.onnxruntime.register import get_library_path, register

if TYPE_CHECKING:
    from unpool.onnxruntime.compile_model import compile
    from unpool.onnxruntime.nodes import evaluate, schemas
    from unpool.onnxruntime.session import InferenceSession, plan

__all__ = ["InferenceSession", "compile", "evaluate", "get_library_path", "plan", "register", "schemas"]

_FILES = {
    "InferenceSession": "session",
    "compile": "compile_model",
    "evaluate": "nodes",
    "plan": "session",
    "schemas": "nodes",
}


def __getattr__(name: str) -> Any:
    """Import on first use what a session of onnxruntime does not need."""
    if name in _FILES:
        if _FILES[name] == "session":
            import_module("unpool.onnxruntime.package")  # says which package is missing
        return getattr(import_module(f"unpool.onnxruntime.{_FILES[name]}"), name)
    raise AttributeError(f"module 'unpool.onnxruntime' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
