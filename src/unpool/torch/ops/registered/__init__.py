"""The operators torch.ops.unpool.NAME, registered with PyTorch when this is imported; each needs another's gradient."""

from unpool.torch.ops.registered import conv_transpose, max_pool, max_unpool
from unpool.torch.ops.registered.fast_path import is_direct

__all__ = ["conv_transpose", "is_direct", "max_pool", "max_unpool"]
