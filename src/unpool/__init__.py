"""ONNX MaxPool, MaxUnpool and ConvTranspose, exactly as written, and a session that runs whole models on them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpool import forks as _forks
from unpool.errors import (
    FileError,
    IndicesError,
    MissingFileError,
    ModelError,
    ShapeError,
    UnpoolError,
    UnsupportedError,
)
from unpool.functional import (
    conv_transpose,
    max_pool,
    max_unpool,
    prepare_conv_transpose,
    to_onnx_indices,
    to_torch_indices,
)
from unpool.names import find as _find

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

__version__ = "0.1.0"

_forks.guard()

__all__ = [
    "FileError",
    "IndicesError",
    "InferenceSession",
    "MissingFileError",
    "ModelError",
    "ShapeError",
    "UnpoolError",
    "UnsupportedError",
    "conv_transpose",
    "max_pool",
    "max_unpool",
    "prepare_conv_transpose",
    "to_onnx_indices",
    "to_torch_indices",
]


def __getattr__(name: str) -> Any:
    """The rooms that need other packages, and the names of a script for onnxruntime, are imported on first use."""
    return import_module(f"unpool.{name}") if name in ("runtime", "tiles", "torch") else _find(name)
