"""unpool for PyTorch: operators with gradients, and an ONNX export that writes MaxUnpool. Needs the extra `torch`.

The operators need torch alone. `export`, `example`, `legacy_translations` and `translation_table` also need onnxscript,
which is imported on first use of one of them.

    ops/          the operators
    accelerate    runs the modules of a model on them
    exporting/    ONNX export
    compat        private names of torch that these use
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpool.extras import require

require("unpool.torch", "torch", "torch")

from unpool.torch.accelerate import accelerate  # noqa: E402 - only after the check above
from unpool.torch.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d  # noqa: E402
from unpool.torch.ops.max_pool import max_pool1d, max_pool2d, max_pool3d  # noqa: E402
from unpool.torch.ops.max_unpool import max_unpool1d, max_unpool2d, max_unpool3d  # noqa: E402

if TYPE_CHECKING:
    from unpool.torch.exporting.dynamo import translation_table
    from unpool.torch.exporting.example import example
    from unpool.torch.exporting.export import export
    from unpool.torch.exporting.torchscript import legacy_translations

__all__ = [
    "accelerate",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "example",
    "export",
    "legacy_translations",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "translation_table",
]

_EXPORTING = {
    "example": "example",
    "export": "export",
    "legacy_translations": "torchscript",
    "translation_table": "dynamo",
}


def __getattr__(name: str) -> Any:
    """Import the ONNX export on first use."""
    if name not in _EXPORTING:
        raise AttributeError(f"module 'unpool.torch' has no attribute {name!r}")
    require(f"unpool.torch.{name}", "torch", "onnx", "onnxscript")
    globals()[name] = getattr(import_module(f"unpool.torch.exporting.{_EXPORTING[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    """The public names."""
    return sorted({"__doc__", *__all__})
