"""ConvTranspose between tensors and its kernels."""

from collections.abc import Sequence
from typing import Any

import torch

from unpool.execute.gpu.tensors import named, numpy_type, place, storage_of, tensor_of
from unpool.kernels.gpu.conv_transpose import Growth, Packed, launch, pack
from unpool.kernels.gpu.elements import KINDS
from unpool.operators import conv_transpose
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape, same_type

_PACKED = "_unpool_packed"
"""Attribute of a tensor of our own: its weights as kernels take them."""


def own_weights(spec: Spec, w: Any) -> torch.Tensor:
    """A copy of ConvTranspose's weights that nobody else can write to, with what kernels make of it.

    Raises:
        UnpoolError: they are no tensor on a GPU.
    """
    assert isinstance(spec, ConvTransposeSpec), "no other operator has weights"
    own = tensor_of(spec.row.label, "W", w).clone(memory_format=torch.contiguous_format)
    if own.dtype in KINDS and own.dim() > 2 and own.shape[0] % spec.group == 0:  # whatever else comes is refused later
        setattr(own, _PACKED, pack(own, spec.group))
    return own


class GpuConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(
        self,
        spec: ConvTransposeSpec,
        shape: Shape,
        dtype: torch.dtype,
        w: tuple[Shape, torch.dtype],
        b: tuple[Shape, torch.dtype] | None,
    ) -> None:
        self.row = row = spec.row
        storage = storage_of(row, spec.activation, dtype)
        for name, each in (("W", w), ("B", b)):
            if each is not None:
                same_type(row, f"X and {name}", storage.dtype, numpy_type(row.label, name, each[1]))
        self._call = call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        channels, maps = w[0][:2]
        growth = Growth(
            call.axes, shape[0], spec.group, channels // spec.group, maps, storage.name, row.is_channels_last,
            **named(spec.activation),
        )  # fmt: skip
        self._launch, self._groups = launch(growth), spec.group

    def run(
        self, given: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None], _: str
    ) -> tuple[torch.Tensor, ...]:
        """Y of (X, W), or (X, W, B)."""
        x, w, b = (*given, None)[:3]
        assert x is not None, "X is required"
        assert w is not None, "W is required"
        inputs = (x, w) if b is None else (x, w, b)
        y, work = place(self.row, "Y", targets[0], self._call.large.in_layout(self.row), (x.dtype, inputs))
        packed: Packed = getattr(w, _PACKED, None) or pack(w, self._groups)
        self._launch(x.contiguous(), packed, None if b is None else b.contiguous(), work)
        return (y if work is y else y.copy_(work),)
