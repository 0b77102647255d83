"""The operators torch.ops.unpool.NAME; the import of this package registers them with PyTorch."""

from unpool.torch.ops.library import conv_transpose, max_pool, max_unpool
from unpool.torch.ops.library.fast_path import can_bypass_dispatcher

__all__ = ["can_bypass_dispatcher", "conv_transpose", "max_pool", "max_unpool"]
