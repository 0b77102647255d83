"""The packages for running whole models, and onnxruntime as it was before a script replaced names in it.

`onnxruntime` here is a copy of the module: `onnxruntime.InferenceSession = unpool.InferenceSession` changes the module,
and sessions of unpool still find the class that runs their partitions. `sys.modules["onnxruntime"] = unpool` works too.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unpool.extras import require
from unpool.lazy_names import UNPOOL_NAMES

HOMES = ("onnxruntime.capi.onnxruntime_inference_collection", "onnxruntime.capi._pybind_state")
"""The modules that define what the package onnxruntime exports."""


def _package() -> Any:
    """The package onnxruntime, even where a script put unpool under its name."""
    replacement = sys.modules.get("onnxruntime")
    if getattr(replacement, "__name__", "") != "unpool":
        return import_module("onnxruntime")
    del sys.modules["onnxruntime"]
    try:
        return import_module("onnxruntime")
    finally:
        sys.modules["onnxruntime"] = replacement  # type: ignore[assignment]  # it is unpool


def _originals(package: Any) -> ModuleType:
    """A copy of the package that has onnxruntime's own objects under the names that unpool exports too."""
    copy = ModuleType("onnxruntime", package.__doc__)
    vars(copy).update(vars(package), capi=import_module("onnxruntime.capi"))
    homes = [import_module(name) for name in HOMES]
    for name in UNPOOL_NAMES:
        original = next((getattr(home, name) for home in homes if hasattr(home, name)), None)
        if original is not None:
            setattr(copy, name, original)
    return copy


require("unpool.runtime", "run", "onnx", "onnxruntime")

if TYPE_CHECKING:
    import onnxruntime as onnxruntime
else:
    onnxruntime = _originals(_package())
