"""ONNX MaxPool, MaxUnpool and ConvTranspose, exactly as written, and a session that runs whole models on them."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from unpool import fork_safety as _fork_safety
from unpool.errors import (
    FileError,
    IndicesError,
    MissingFileError,
    ModelError,
    ShapeError,
    UnpoolError,
    UnsupportedError,
)
from unpool.lazy_names import CORE_ONNXRUNTIME_NAMES as _CORE_ONNXRUNTIME_NAMES
from unpool.lazy_names import FUNCTIONS as _FUNCTIONS
from unpool.lazy_names import ONNXRUNTIME_NAMES as _ONNXRUNTIME_NAMES
from unpool.lazy_names import OPERATOR_FUNCTIONS as _OPERATOR_FUNCTIONS
from unpool.lazy_names import UNPOOL_NAMES as _UNPOOL_NAMES

if TYPE_CHECKING:
    from unpool.explanation.explain import explain
    from unpool.functional import (
        conv_transpose,
        max_pool,
        max_unpool,
        prepare_conv_transpose,
        raise_pending,
        to_onnx_indices,
        to_torch_indices,
    )
    from unpool.onnxruntime.session import InferenceSession, plan
    from unpool.runtime.cluster.map_tiles import map_tiles
    from unpool.runtime.compare.compare import compare
    from unpool.runtime.lint.lint import lint as check
    from unpool.runtime.lower.lower import lower
    from unpool.runtime.report.report import report
    from unpool.runtime.rewrite.canonicalise import canonicalise
    from unpool.runtime.rewrite.fix import fix
    from unpool.runtime.rewrite.upgrade import upgrade

__version__ = "0.1.0"

_fork_safety.install_hooks()

_ROOMS = ("dask", "doctor", "images", "onnxruntime", "runtime", "streams", "tiles", "torch")
_HIDDEN_ROOMS = ("functional", "memory")

__all__ = [
    "FileError",
    "IndicesError",
    "InferenceSession",
    "MissingFileError",
    "ModelError",
    "ShapeError",
    "UnpoolError",
    "UnsupportedError",
    "canonicalise",
    "check",
    "compare",
    "conv_transpose",
    "explain",
    "fix",
    "lower",
    "map_tiles",
    "max_pool",
    "max_unpool",
    "plan",
    "prepare_conv_transpose",
    "raise_pending",
    "report",
    "to_onnx_indices",
    "to_torch_indices",
    "upgrade",
]


def __getattr__(name: str) -> Any:
    """Import submodules, functions and names of onnxruntime on first use: `import unpool` takes a millisecond."""
    if name in (*_ROOMS, *_HIDDEN_ROOMS):
        return import_module(f"unpool.{name}")
    if name in _OPERATOR_FUNCTIONS:
        functions = import_module("unpool.functional")
        globals().update({each: getattr(functions, each) for each in _OPERATOR_FUNCTIONS})  # not asked for again
        return globals()[name]
    known = _UNPOOL_NAMES.get(name) or _FUNCTIONS.get(name)
    if known is not None:
        module, own_name = known
        return getattr(import_module(module), own_name)
    if name in _ONNXRUNTIME_NAMES:
        return getattr(import_module("unpool.onnxruntime.package").onnxruntime, name)
    raise AttributeError(f"module 'unpool' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Every public name, including those imported on first use; those of onnxruntime if it is installed."""
    others = _CORE_ONNXRUNTIME_NAMES if find_spec("onnxruntime") else ()
    return sorted({"__doc__", "__version__", *__all__, *_ROOMS, *_UNPOOL_NAMES, *_FUNCTIONS, *others})
