"""The table with which torch's default exporter writes one MaxPool per pool and one MaxUnpool per unpooling."""

from collections.abc import Callable
from typing import Any

import torch

from unpool.torch.exporting.dynamo.convolutions import convolution_translation
from unpool.torch.exporting.dynamo.writer import ProgramWriter, op
from unpool.torch.exporting.nodes import write_max_pool, write_max_unpool
from unpool.torch.exporting.pools import pool_of
from unpool.torch.exporting.versions import check_opset


def translation_table(opset: int | None = None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Entries for the `custom_translation_table` of `torch.onnx.export(..., dynamo=True)`.

    A pool with indices becomes MaxPool and Mod, an unpooling becomes Add and MaxUnpool; where the unpooling
    gives back the pool's size, Mod and Add are left out. ATen does not say the window of an unpooling. Where the
    spatial sizes are static, MaxUnpool gets a window from which every reader of the standard infers them. Where one is
    dynamic, it gets the window of the pool that found the indices, and the size as its input `output_shape`. A
    transposed convolution whose output_padding depends on a dynamic size becomes ConvTranspose and Slice.

    Args:
        opset: the `opset_version` of that call, at least 9; None for its default.

    Returns:
        ATen overload -> function that writes it with onnxscript.

    Raises:
        UnsupportedError: opset is below 9, where MaxUnpool does not exist.

    Source: ATen's native_functions.yaml; ONNX MaxPool-12, MaxUnpool-11, Mod-13.

    Example:
        >>> sorted(str(overload) for overload in translation_table(20))[-2:]
        ['aten.max_unpool2d.default', 'aten.max_unpool3d.default']
    """
    check_opset("translation_table", opset)
    aten = torch.ops.aten
    convolution = convolution_translation()
    return {
        **({} if convolution is None else {aten.convolution.default: convolution}),
        aten.max_pool1d.default: _pool_translation(1, with_indices=False),
        aten.max_pool2d.default: _pool_translation(2, with_indices=False),
        aten.max_pool3d.default: _pool_translation(3, with_indices=False),
        aten.max_pool1d_with_indices.default: _pool_translation(1, with_indices=True),
        aten.max_pool2d_with_indices.default: _pool_translation(2, with_indices=True),
        aten.max_pool3d_with_indices.default: _pool_translation(3, with_indices=True),
        aten.max_unpool2d.default: _max_unpool,
        aten.max_unpool3d.default: _max_unpool,
    }


def _pool_translation(rank: int, *, with_indices: bool) -> Callable[..., Any]:
    """Translation of a pool over `rank` spatial axes."""

    def max_pool(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        pool = pool_of(rank, kernel_size, stride, padding, dilation, ceil_mode)
        return write_max_pool(ProgramWriter(), x, pool, with_indices=with_indices)

    return max_pool


def _max_unpool(x: Any, indices: Any, output_size: Any, stride: Any = (), padding: Any = ()) -> Any:  # noqa: ARG001
    """Translation of an unpooling.

    ATen gives strides and padding to the 3-D one alone; they are not needed where the size of the output is known.
    """
    large = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in output_size]
    return write_max_unpool(ProgramWriter(), x, indices, large)
