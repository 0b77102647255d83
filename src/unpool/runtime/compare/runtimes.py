"""The runtimes of a comparison: they run whole models; torch runs single nodes.

torch cannot read ONNX files. Its functions have one padding per axis for both ends, and no auto_pad.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
import onnx

from unpool.arrays import like, to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.extras import missing_extra, require
from unpool.geometry import Axis, pooled_size, upsampled_size
from unpool.graph.errors import short_message
from unpool.graph.nodes import is_unpool_op, node_name
from unpool.graph.spec import spec_of
from unpool.indices import to_column_major, to_onnx, to_torch
from unpool.numerics import Tolerance
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.resolve import Spec
from unpool.operators.semantics import Semantics
from unpool.runtime.compare.align import ComparableModel, Values, diff_values
from unpool.runtime.compare.records import RuntimeReport, UnsupportedNode
from unpool.runtime.runtimes import RUNTIMES, Feed, Runtime, unpool_runtime

UNPOOL = "unpool"
TORCH = "torch"
NAMES = (UNPOOL, *(runtime.word for runtime in RUNTIMES), TORCH)

Arrays: TypeAlias = Sequence[AnyArray | None]

MAX_AXES = 3  # spatial axes of torch's functions

_OPENVINO_NOISE = re.compile(
    r"Exception from \S+: |Check '.*?' failed at \S+: |FrontEnd API failed with OpConversionFailure: "
    r"|Model wasn't fully converted\. (Summary: -- )?|To facilitate .*"
)
"""Parts of OpenVINO's messages: places in its own code, and advice to extend it."""


@dataclass(frozen=True)
class RuntimeValues:
    """The outputs of a model by name, None where it cannot be run, and the values before the first unsupported node."""

    outputs: Mapping[str, Any] | None
    values: Mapping[str, Any] = field(default_factory=dict)
    unsupported: tuple[UnsupportedNode, ...] = ()


def find_runtime(word: str, semantics: Semantics) -> Runtime:
    """The runtime of a name, if it is installed, except torch, which runs no models."""
    runtime = next(each for each in (unpool_runtime(semantics), *RUNTIMES) if each.word == word)
    if not runtime.is_installed:
        raise missing_extra("compare", word, [runtime.package])
    return runtime


def run_model(runtime: Runtime, model: ComparableModel, feed: Feed) -> RuntimeValues:
    """Run a model; an exception of the runtime becomes the reason for its first unsupported node."""
    outputs, output_error = _run(runtime, model.model, feed)
    values, error = _run(runtime, model.with_value_outputs(), feed)
    if values is not None:
        return RuntimeValues(outputs, values, () if outputs is not None else (UnsupportedNode("", "", output_error),))
    known: Mapping[str, Any] = {}
    low, high = 0, len(model.graph.nodes)  # the first `low` nodes run, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        values, message = _run(runtime, model.with_value_outputs(middle), feed)
        if values is None:
            high, error = middle, message
        else:
            low, known = middle, values
    node = model.graph.nodes[max(high - 1, 0)]
    where = "" if outputs is None else "with its values as outputs: "
    return RuntimeValues(outputs, known, (UnsupportedNode(node_name(node), model.operator(node), where + error),))


def _run(runtime: Runtime, model: onnx.ModelProto, feed: Feed) -> tuple[dict[str, Any] | None, str]:
    """The outputs by name, or None and the runtime's message."""
    names = [value.name for value in model.graph.output]
    if not names:
        return {}, ""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return dict(zip(names, runtime.open(model)(feed), strict=True)), ""
    except Exception as error:  # any exception means that the runtime does not run the model
        return None, short_message(UnpoolError(_OPENVINO_NOISE.sub("", " ".join(str(error).split()))))


def run_nodes(
    model: ComparableModel, inputs: Values, expected: Values, semantics: Semantics, tolerance: Tolerance
) -> RuntimeReport:
    """The MaxPool, MaxUnpool and ConvTranspose nodes of a model in torch, without those in subgraphs."""
    require("compare", "torch", "torch")
    results: dict[str, Any] = {}
    unsupported = []
    known = {**inputs, **expected}
    for node in filter(is_unpool_op, model.graph.nodes):
        try:
            spec = spec_of(node, model.graph.opsets, semantics)
            missing = next((name for name in node.input if name and name not in known), None)
            if missing is not None:
                raise UnsupportedError(f"the value {missing!r} that it reads is of an unknown type")
            outputs = run_node(spec, [known[name] if name else None for name in node.input])
            results |= dict(zip(node.output, outputs, strict=False))
        except Exception as error:  # any exception means that torch does not run the node
            unsupported.append(UnsupportedNode(node_name(node), model.operator(node), short_message(error)))
    diffs = diff_values(model, inputs, expected, results, tolerance)
    values = (replace(value, is_first_difference=value.diff.differs) for value in diffs)  # inputs are those expected
    return RuntimeReport(f"torch {version('torch')}, node by node", tuple(values), unsupported=tuple(unsupported))


def run_node(spec: Spec, inputs: Arrays) -> list[AnyArray]:
    """The outputs of one node, two for MaxPool; of its inputs, None is one that is left out."""
    x = inputs[0]
    assert x is not None
    if spec.version.is_channels_last:
        raise UnsupportedError("torch's functions are not channels-last")
    if not 1 <= x.ndim - 2 <= MAX_AXES:
        raise UnsupportedError(f"torch's functions have 1 to {MAX_AXES} spatial axes, got {x.ndim - 2}")
    if isinstance(spec, max_pool.MaxPoolSpec):
        return _max_pool(spec, x)
    return [_max_unpool(spec, inputs) if isinstance(spec, max_unpool.MaxUnpoolSpec) else _conv_transpose(spec, inputs)]


def _max_pool(spec: max_pool.MaxPoolSpec, x: AnyArray) -> list[AnyArray]:
    axes = max_pool.call(spec, x.shape).axes
    ceil = any(_windows(axis, ceil=False) != axis.small for axis in axes)
    for axis in axes:
        if axis.begin < 0 or _windows(axis, ceil=ceil) != axis.small:
            raise UnsupportedError(
                f"torch pads both ends alike, here by {axis.begin}, and has no {axis.small} windows then"
            )
    dilation, sizes = [axis.window.dilation for axis in axes], [axis.window.size for axis in axes]
    pool = _function("max_pool", axes)
    y, indices = pool(_tensor(x), sizes, dilation=dilation, ceil_mode=ceil, return_indices=True)
    whole = to_onnx(to_numpy(indices, "indices"), x.shape[2:])
    return [to_numpy(y, "y"), to_column_major(whole, x.shape[2:]) if spec.is_column_major else whole]


def _windows(axis: Axis, *, ceil: bool) -> int:
    return pooled_size(axis.large, axis.window, axis.begin, axis.begin, ceil=ceil)


def _max_unpool(spec: max_unpool.MaxUnpoolSpec, inputs: Arrays) -> AnyArray:
    x, indices, *rest = inputs
    assert x is not None
    assert indices is not None
    output_shape = tuple(map(int, rest[0])) if rest and rest[0] is not None else None
    call = max_unpool.call(spec, x.shape, indices.shape, output_shape)
    if call.index_space == "inferred":
        raise UnsupportedError("torch's indices count in the output, here they count in the inferred shape")
    large, sizes = call.large.spatial, [axis.window.size for axis in call.axes]
    unpool = _function("max_unpool", call.axes)
    return to_numpy(unpool(_tensor(x), _tensor(to_torch(indices, large)), sizes, output_size=list(large)), "output")


def _conv_transpose(spec: conv_transpose.ConvTransposeSpec, inputs: Arrays) -> AnyArray:
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
    options = {"output_padding": extra, "groups": spec.group, "dilation": [axis.window.dilation for axis in axes]}
    return to_numpy(_function("conv_transpose", axes)(*tensors, **options), "Y")


def _function(name: str, axes: Sequence[Axis]) -> Any:
    """Torch's function with the strides and pads of these axes, unless a script has replaced it by unpool's."""
    function = getattr(import_module("torch.nn.functional"), f"{name}{len(axes)}d")
    if function.__module__.startswith("unpool."):
        raise UnsupportedError(f"torch.nn.functional.{function.__name__} is unpool's own function in this process")
    return partial(function, stride=[axis.window.stride for axis in axes], padding=[axis.begin for axis in axes])


def _tensor(array: AnyArray) -> Any:
    """A tensor of torch, on a copy of memory that is read-only."""
    return like(array if array.flags.writeable else array.copy(), import_module("torch").empty(0))
