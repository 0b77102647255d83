"""A module for the exporters: tensors in, tensors out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


class Adapter(nn.Module):
    """Call a module by the names of its arguments, and choose among its outputs.

    Args:
        module: takes tensors by name, or by position without `names`.
        select: gives a tensor, or a tuple of tensors, of what the call returns.
        names: of the arguments, in the order of the inputs.
    """

    def __init__(self, module: nn.Module, select: Callable[[Any], Any], names: Sequence[str] = ()) -> None:
        super().__init__()
        self.module, self._select, self._names = module, select, names

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The outputs that were chosen."""
        if self._names:
            return self._select(self.module(**dict(zip(self._names, tensors, strict=True))))
        return self._select(self.module(*tensors))
