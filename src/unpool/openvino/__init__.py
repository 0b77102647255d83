"""The operators inside OpenVINO: a network with MaxUnpool, such as SegNet, is one model of its CPU device.

>>> import openvino
>>> import unpool.openvino
>>> core = openvino.Core()
>>> core.add_extension(unpool.openvino.extensions())  # then core.compile_model("segnet.onnx", "CPU")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpool.openvino.conversion import extensions

__all__ = ["extensions"]


def __getattr__(name: str) -> Any:
    """Import on first use, as that needs the package openvino."""
    if name in __all__:
        return getattr(import_module("unpool.openvino.conversion"), name)
    raise AttributeError(f"module 'unpool.openvino' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
