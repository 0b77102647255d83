"""MaxPool, MaxUnpool and ConvTranspose by torch's functions, each node alone, on its inputs in the first runtime.

torch reads no ONNX file. Its functions have one padding per axis for both ends and no auto_pad; other nodes are
unsupported.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeAlias

from unpool.arrays import like, to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.extras import require
from unpool.geometry import Axis, pooled_size, upsampled_size
from unpool.indices import to_column_major, to_onnx, to_torch
from unpool.numerics import Tolerance
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.runtime.compare.align import ComparableModel, Values, diff_values
from unpool.runtime.compare.records import RuntimeReport, UnsupportedNode
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import is_unpool_op, node_name
from unpool.runtime.graph.semantics import Semantics, spec_of

Arrays: TypeAlias = Sequence[AnyArray | None]

MAX_AXES = 3


def run_nodes(
    model: ComparableModel, inputs: Values, expected: Values, semantics: Semantics, tolerance: Tolerance
) -> RuntimeReport:
    """The MaxPool, MaxUnpool and ConvTranspose nodes of a model in torch, without those in subgraphs.

    Raises:
        MissingExtraError: torch is not installed.
    """
    require("compare", "torch", "torch")
    results: dict[str, Any] = {}
    unsupported = []
    known = {**inputs, **expected}
    for node in filter(is_unpool_op, model.graph.nodes):
        try:
            spec = spec_of(node, model.graph.opsets, semantics)
            outputs = run_node(spec, [_value(known, name) for name in node.input])
            results |= dict(zip(node.output, outputs, strict=False))
        except Exception as error:  # any exception means that torch does not run the node
            unsupported.append(UnsupportedNode(node_name(node), model.operator(node), short_message(error)))
    diffs = diff_values(model, inputs, expected, results, tolerance)
    values = (replace(value, is_first_difference=value.diff.differs) for value in diffs)  # inputs are those expected
    return RuntimeReport(f"torch {version('torch')}, node by node", tuple(values), unsupported=tuple(unsupported))


def _value(known: Values, name: str) -> Any:
    """A tensor that a node reads, None where it is left out."""
    if name and name not in known:
        raise UnsupportedError(f"the value {name!r} that it reads is of an unknown type")
    return known[name] if name else None


def run_node(spec: Spec, inputs: Arrays) -> list[AnyArray]:
    """The outputs of one node, two for MaxPool.

    Args:
        spec: its attributes.
        inputs: its tensors, None for one that is left out.

    Raises:
        UnsupportedError: torch has no such call.
    """
    x = inputs[0]
    assert x is not None
    if spec.row.is_channels_last:
        raise UnsupportedError("torch's functions are not channels-last")
    if not 1 <= x.ndim - 2 <= MAX_AXES:
        raise UnsupportedError(f"torch's functions have 1 to {MAX_AXES} spatial axes, got {x.ndim - 2}")
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, x)
    return [_max_unpool(spec, inputs) if isinstance(spec, MaxUnpoolSpec) else _conv_transpose(spec, inputs)]


def _max_pool(spec: MaxPoolSpec, x: AnyArray) -> list[AnyArray]:
    axes = max_pool.call(spec, x.shape).axes
    ceil = any(_windows(axis, ceil=False) != axis.small for axis in axes)
    for axis in axes:
        if axis.begin < 0 or _windows(axis, ceil=ceil) != axis.small:
            raise UnsupportedError(
                f"torch pads both ends alike, here by {axis.begin}, and has no {axis.small} windows then"
            )
    y, indices = _pool("max_pool", axes)(
        _tensor(x), dilation=[axis.window.dilation for axis in axes], ceil_mode=ceil, return_indices=True
    )
    whole = to_onnx(to_numpy(indices, "indices"), x.shape[2:])
    return [to_numpy(y, "y"), to_column_major(whole, x.shape[2:]) if spec.is_column_major else whole]


def _windows(axis: Axis, *, ceil: bool) -> int:
    """Number of torch's windows along an axis."""
    return pooled_size(axis.large, axis.window, axis.begin, axis.begin, ceil=ceil)


def _max_unpool(spec: MaxUnpoolSpec, inputs: Arrays) -> AnyArray:
    x, indices, *rest = inputs
    assert x is not None
    assert indices is not None
    output_shape = tuple(map(int, rest[0])) if rest and rest[0] is not None else None
    call = max_unpool.call(spec, x.shape, indices.shape, output_shape)
    if call.index_space == "inferred":
        raise UnsupportedError("torch's indices count in the output, here they count in the inferred shape")
    large = call.large.spatial
    y = _pool("max_unpool", call.axes)(_tensor(x), _tensor(to_torch(indices, large)), output_size=list(large))
    return to_numpy(y, "output")


def _conv_transpose(spec: ConvTransposeSpec, inputs: Arrays) -> AnyArray:
    x, w, b = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    axes = conv_transpose.call(spec, x.shape, w.shape, None if b is None else b.shape).axes
    extra = [axis.large - upsampled_size(axis.small, axis.window, padding=2 * axis.begin) for axis in axes]
    for axis, more in zip(axes, extra, strict=True):
        if not 0 <= more < max(axis.window.stride, axis.window.dilation):
            raise UnsupportedError(
                f"torch cuts both ends alike, here by {axis.begin}, and needs an output_padding of {more} then"
            )
    tensors = [None if array is None else _tensor(array) for array in (x, w, b)]
    words = {"output_padding": extra, "groups": spec.group, "dilation": [axis.window.dilation for axis in axes]}
    return to_numpy(_function("conv_transpose", axes)(*tensors, **_strides_and_pads(axes), **words), "Y")


def _pool(name: str, axes: Sequence[Axis]) -> Any:
    """One of torch's pools with the windows of the axes."""
    return partial(_function(name, axes), kernel_size=[axis.window.size for axis in axes], **_strides_and_pads(axes))


def _strides_and_pads(axes: Sequence[Axis]) -> dict[str, list[int]]:
    return {"stride": [axis.window.stride for axis in axes], "padding": [axis.begin for axis in axes]}


def _function(name: str, axes: Sequence[Axis]) -> Any:
    """The function of torch for this number of axes.

    Raises:
        UnsupportedError: a script has replaced it by unpool's.
    """
    function = getattr(import_module("torch.nn.functional"), f"{name}{len(axes)}d")
    if function.__module__.startswith("unpool."):
        raise UnsupportedError(f"torch.nn.functional.{function.__name__} is unpool's own function in this process")
    return function


def _tensor(array: AnyArray) -> Any:
    """A tensor of torch, on a copy of memory that is read-only."""
    return like(array if array.flags.writeable else array.copy(), import_module("torch").empty(0))
