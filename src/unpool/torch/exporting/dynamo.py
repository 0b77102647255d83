"""Translations for torch's default exporter (dynamo=True): one MaxPool per pool, one MaxUnpool per unpooling.

They write onnxscript's opset 18, the exporter's own. The exporter converts nodes to newer opsets, `opset_downgrade` to
older ones.

ONNX has output_padding as an attribute only. So a transposed convolution whose output_padding depends on dynamic sizes,
as `output_size` does, gets the largest one, and its output is cropped:

    large = ConvTranspose(x, output_padding = largest)[: -(largest - output_padding)]

with largest = max(stride, dilation) - 1. Other convolutions keep torch's translation.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnxscript import ir, opset18

from unpool.torch.exporting import nodes

op: Any = opset18
"""Any: during tracing it takes ints and lists for tensors."""

TORCH_LIB_MODULE = "onnxscript.function_libs.torch_lib.ops.core"
"""The module of onnxscript with torch's translations."""

PLANES = "unpool.planes"
"""Key of a MaxPool node's meta data: elements in a plane of its output and of its input, None if dynamic."""


def translation_table(opset: int | None = None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Entries for the `custom_translation_table` of `torch.onnx.export(..., dynamo=True)`.

    A pool with indices becomes MaxPool and Mod, an unpooling becomes Add and MaxUnpool; if the unpooling returns to the
    pool's size, Mod and Add are omitted. ATen does not state the window of an unpooling. If the spatial sizes are
    static, MaxUnpool gets a window that implies them. If one is dynamic, it gets the window of the pool that computed
    the indices, and the size as its input `output_shape`. A transposed convolution whose output_padding depends on a
    dynamic size becomes ConvTranspose and Slice. unpool's own operators, which an ExportedProgram of a model has after
    `accelerate`, are written as torch's.

    Args:
        opset: the `opset_version` of that call, at least 9; None for its default.

    Returns:
        overload of torch or unpool -> function that writes it with onnxscript.

    Raises:
        UnsupportedError: opset is below 9, where MaxUnpool does not exist.

    Source: ATen's native_functions.yaml; ONNX MaxPool-12, MaxUnpool-11, Mod-13.

    Example:
        >>> sorted(str(overload) for overload in translation_table(20))[-6:-4]
        ['aten.max_unpool2d.default', 'aten.max_unpool3d.default']
    """
    nodes.check_opset("translation_table", opset)
    aten, own, convolution = torch.ops.aten, torch.ops.unpool, _convolution_translation()
    return {
        **({} if convolution is None else _convolutions(convolution)),
        **{
            getattr(aten, f"max_pool{rank}d{suffix}").default: _pool_translation(rank, with_indices=bool(suffix))
            for rank in (1, 2, 3)
            for suffix in ("", "_with_indices")
        },
        **{overload.default: _max_unpool for overload in (aten.max_unpool2d, aten.max_unpool3d, own.max_unpool)},
        own.max_pool.default: _pool_translation(None, with_indices=False),
        own.max_pool_with_indices.default: _pool_translation(None, with_indices=True),
    }


def _convolutions(convolution: Callable[..., Any]) -> dict[Callable[..., Any], Callable[..., Any]]:
    """The entries of convolutions; those of ATen are transposed or not."""

    def conv_transpose(x: Any, w: Any, b: Any, stride: Any, padding: Any, output_padding: Any, *more: Any) -> Any:
        groups, dilation = more
        return convolution(x, w, b, stride, padding, dilation, True, output_padding, groups)

    return {torch.ops.aten.convolution.default: convolution, torch.ops.unpool.conv_transpose.default: conv_transpose}


def _convolution_translation() -> Callable[..., Any] | None:
    """Translation of aten.convolution; None if torch's own translation is not found."""
    try:
        torch_convolution = import_module(TORCH_LIB_MODULE).aten_convolution
    except (ImportError, AttributeError):
        return None

    def convolution(
        x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: Any, *more: Any
    ) -> Any:
        output_padding, groups = more
        if not transposed or all(isinstance(size, int) for size in output_padding):
            return torch_convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)
        rank = len(output_padding)
        strides, pads, dilations = ([*part] * (rank if len(part) == 1 else 1) for part in (stride, padding, dilation))
        largest = [max(pair) - 1 for pair in zip(strides, dilations, strict=True)]
        words = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
        large = op.ConvTranspose(x, w, b, output_padding=largest, **words)
        return _crop(large, largest, _as_vectors(output_padding))

    return convolution


def _crop(large: Any, largest: Sequence[int], needed: Sequence[Any]) -> Any:
    """Crop `largest - needed` elements from the end of every spatial axis."""
    writer, rank = _ProgramWriter(), len(largest)
    excess = op.Sub(writer.constant(np.array(largest, np.int64)), writer.vector(needed))
    ends = op.Sub(op.Shape(large, start=2), excess)
    axes = writer.constant(np.arange(2, 2 + rank, dtype=np.int64))
    return op.Slice(large, writer.constant(np.zeros(rank, np.int64)), ends, axes)


def _as_vectors(sizes: Sequence[Any]) -> list[Any]:
    """Sizes of ATen, dynamic ones with one axis."""
    return [size if isinstance(size, int) else op.Reshape(size, [1]) for size in sizes]


def _pool_translation(rank: int | None, *, with_indices: bool) -> Callable[..., Any]:
    """The translation of a pool over `rank` axes; None for unpool's own, whose settings are lists of one int each."""

    def max_pool(
        x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        pool = nodes.pool_of(rank or len(kernel_size), kernel_size, stride, padding, dilation, ceil_mode)
        return nodes.write_max_pool(_ProgramWriter(), x, pool, with_indices=with_indices)

    return max_pool


def _max_unpool(x: Any, indices: Any, output_size: Any, stride: Any = (), padding: Any = ()) -> Any:  # noqa: ARG001
    # ATen has strides and padding in the 3-D one only; with a known output size they are not needed.
    return nodes.write_max_unpool(_ProgramWriter(), x, indices, _as_vectors(output_size))


class _ProgramWriter(nodes.NodeWriter):
    """Writes with onnxscript; a dynamic size is an int64 value of shape (1,)."""

    opset = 18

    def static_sizes(self, x: Any) -> list[int | None]:
        return [size if isinstance(size, int) else None for size in x.shape]

    def size(self, x: Any, axis: int) -> Any:
        size = x.shape[axis]
        return size if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1 or None)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return getattr(op, op_type)(*inputs, **attributes)

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        return op.Constant(value=ir.tensor(numbers))

    def vector(self, sizes: Sequence[Any]) -> Any:
        if all(isinstance(size, int) for size in sizes):
            return self.constant(np.array(sizes, dtype=np.int64))
        return op.Concat(*(self.vector([size]) if isinstance(size, int) else size for size in sizes), axis=0)

    def arange(self, count: Any) -> Any:
        return op.Range(0, count if isinstance(count, int) else op.Squeeze(count), 1)

    def add_batch(self, x: Any) -> Any:
        return op.Unsqueeze(x, [0])

    def remove_batch(self, x: Any) -> Any:
        return op.Squeeze(x, [0])

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        values, indices = op.MaxPool(x, **attributes)
        if not with_indices:
            return [values]
        large, small = sizes
        indices.producer().meta[PLANES] = nodes.static_planes(small, large)
        return [values, indices]

    def source_pool(self, indices: Any, rank: int) -> nodes.SourcePool | None:
        path = _path_to_pool(indices)
        if not path:
            return None
        attributes = {name: attribute.value for name, attribute in path[-1].attributes.items()}
        is_one_mod = sum(node.op_type == "Mod" for node in path) == 1
        return nodes.SourcePool(nodes.pool_windows(attributes, rank), path[-1].meta.get(PLANES) if is_one_mod else None)

    def indices_in_tensor(self, indices: Any) -> Any:
        *path, pool = _path_to_pool(indices)
        value = pool.outputs[1]
        for node in reversed(path):
            if node.op_type != "Mod":
                value = getattr(op, node.op_type)(value, node.inputs[1])
        return value


def _path_to_pool(indices: Any) -> list[Any]:
    """The nodes from the one with the indices back to their MaxPool; empty without such a pool."""
    path = [indices.producer()]
    while path[-1] is not None and path[-1].op_type in ("Mod", "Unsqueeze", "Squeeze"):
        path.append(path[-1].inputs[0].producer())
    return path if path[-1] is not None and path[-1].op_type == "MaxPool" else []
