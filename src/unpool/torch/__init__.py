"""unpool beside PyTorch: export that keeps MaxUnpool, operators with gradients. Needs the extra `torch`."""

from importlib.util import find_spec

for _package in ("torch", "onnxscript"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"unpool.torch: expected the package {_package}, it is not installed. Run: pip install 'unpool[torch]'",
            name=_package,
        )

from unpool.torch.accelerate import accelerate  # noqa: E402 - only after the check above
from unpool.torch.export_legacy import legacy_translations  # noqa: E402
from unpool.torch.export_translations import translation_table  # noqa: E402
from unpool.torch.exporting import export  # noqa: E402
from unpool.torch.ops_conv_transpose import (  # noqa: E402
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from unpool.torch.ops_max_pool import max_pool1d, max_pool2d, max_pool3d  # noqa: E402
from unpool.torch.ops_max_unpool import max_unpool1d, max_unpool2d, max_unpool3d  # noqa: E402

__all__ = [
    "accelerate",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
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
