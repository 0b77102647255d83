"""Symbolics of pools and unpoolings for torch's exporter behind dynamo=False, for opset 9 and later."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from unpool.torch.compat import torch_internal
from unpool.torch.exporting.attributes import check_type, pool_of
from unpool.torch.exporting.nodes import write_max_pool, write_max_unpool
from unpool.torch.exporting.torchscript.writer import TracedWriter, int64_constant, known_size

_quantized_args: Any = torch_internal("torch.onnx.symbolic_helper.quantized_args")
_parse_args: Any = torch_internal("torch.onnx.symbolic_helper.parse_args")
_is_packed_list: Any = torch_internal("torch.onnx.symbolic_helper._is_packed_list")
_unpack_list: Any = torch_internal("torch.onnx.symbolic_helper._unpack_list")
_maybe_get_const: Any = torch_internal("torch.onnx.symbolic_helper._maybe_get_const")


def _pool_symbolic(rank: int, *, with_indices: bool) -> Callable[..., Any]:
    """Symbolic of a pool over `rank` spatial axes."""

    def max_pool(g: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        _check_type(g, "MaxPool", x)
        pool = pool_of(rank, kernel_size, stride, padding, dilation, ceil_mode)
        return write_max_pool(TracedWriter(g), x, pool, with_indices=with_indices)

    parsed = _parse_args("v", "is", "is", "is", "is", "b")(max_pool)
    symbolic: Callable[..., Any] = _quantized_args(not with_indices)(parsed)
    return symbolic


def _unpool_symbolic(rank: int) -> Callable[..., Any]:
    """Symbolic of an unpooling over `rank` spatial axes.

    ATen has strides and padding in the 3-D one only; with a known output size they are not needed.
    """

    def max_unpool(g: Any, x: Any, indices: Any, output_size: Any, stride: Any = None, padding: Any = None) -> Any:  # noqa: ARG001
        _check_type(g, "MaxUnpool", x)
        return write_max_unpool(TracedWriter(g), x, indices, _output_sizes(g, output_size, rank))

    return max_unpool


def _check_type(g: Any, operator: str, x: Any) -> None:
    dtype = x.type().dtype() if isinstance(x.type(), torch.TensorType) else None
    if dtype is not None:
        check_type(operator, g.opset, str(dtype).removeprefix("torch."))


def _output_sizes(g: Any, output_size: Any, rank: int) -> list[Any]:
    """ATen's output_size, with known sizes as ints."""
    if _is_packed_list(output_size):
        values = _unpack_list(output_size)
        return [value if known is None else known for value, known in zip(values, map(known_size, values), strict=True)]
    sizes = _maybe_get_const(output_size, "is")
    if isinstance(sizes, list):
        return sizes
    return [g.op("Gather", output_size, int64_constant(g, axis), axis_i=0) for axis in range(rank)]


SYMBOLICS: Mapping[str, Callable[..., Any]] = {
    **{f"aten::max_pool{rank}d": _pool_symbolic(rank, with_indices=False) for rank in (1, 2, 3)},
    **{f"aten::max_pool{rank}d_with_indices": _pool_symbolic(rank, with_indices=True) for rank in (1, 2, 3)},
    "aten::max_unpool2d": _unpool_symbolic(2),
    "aten::max_unpool3d": _unpool_symbolic(3),
}
"""Name of ATen's operator -> its symbolic."""
