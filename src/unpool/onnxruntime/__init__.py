"""The operators inside onnxruntime: in its own sessions, under the names of the standard.

>>> import onnxruntime
>>> import unpool.onnxruntime
>>> options = onnxruntime.SessionOptions()
>>> unpool.onnxruntime.register(options)  # then onnxruntime.InferenceSession("segnet.onnx", options)
"""

from typing import TYPE_CHECKING, Any

from unpool.onnxruntime.compile import compile
from unpool.onnxruntime.nodes import evaluate, schemas
from unpool.onnxruntime.register import get_library_path, register

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession

__all__ = ["InferenceSession", "compile", "evaluate", "get_library_path", "register", "schemas"]


def __getattr__(name: str) -> Any:
    if name == "InferenceSession":  # its base class needs onnxruntime, which nothing else here loads
        from unpool.onnxruntime.session import InferenceSession

        return InferenceSession
    raise AttributeError(f"module 'unpool.onnxruntime' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
