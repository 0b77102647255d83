"""A model in float64, and its evaluation by onnx's ReferenceEvaluator with operators of ours."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from unpool.dtypes import AnyArray
from unpool.geometry import OddSide, Window, same_pool_begin, same_pooled_size
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.onnx_reference import new_ops

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
SMALL = tuple(helper.tensor_dtype_to_np_dtype(one) for one in FLOATS)
TYPE_ATTRIBUTES = ("to", "dtype")
"""Attributes that name the type of what a node makes."""


def in_double(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with float64 in the place of smaller floats."""
    return {name: _widened(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def evaluate(model: onnx.ModelProto, feed: Mapping[str, Any], semantics: Semantics) -> list[Any]:
    """The outputs of a model whose floats are all float64.

    MaxPool, MaxUnpool and ConvTranspose run as unpool's in float64, a Conv as one product of matrices per tap.

    Args:
        model: without functions, with all tensors inside; it is not changed.
        feed: its inputs.
        semantics: how the three operators are read.
    """
    opset = next((one.version for one in model.opset_import if one.domain == ""), 0)
    ours = new_ops(opset, compat=semantics.compat, index_space=semantics.index_space)
    evaluator = ReferenceEvaluator(_model_in_double(model), new_ops=[*ours, Conv])
    with np.errstate(all="ignore"):
        return list(evaluator.run(None, in_double(feed)))


def _model_in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen(wide.graph)
    return wide


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in (one for node in graph.node for one in node.attribute):
        if attribute.name in TYPE_ATTRIBUTES and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            _widen(body)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(_widened(numpy_helper.to_array(tensor)), tensor.name))


def _widened(array: AnyArray) -> AnyArray:
    return array.astype(np.float64) if array.dtype in SMALL else array


class Conv(OpRun):
    """Conv as one product of matrices per tap, added in the order of the taps; the evaluator's own takes minutes."""

    op_domain = ""

    def _run(self, x: AnyArray, w: AnyArray, b: AnyArray | None = None, **given: Any) -> tuple[AnyArray]:
        rank, group = x.ndim - 2, given.get("group") or 1
        strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
        windows = [Window(*each) for each in zip(w.shape[2:], strides, dilations, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *_pads(x.shape[2:], windows, given)])
        small = [(size - one.reach) // one.stride + 1 for size, one in zip(padded.shape[2:], windows, strict=True)]
        parts = zip(np.split(padded, group, axis=1), np.split(w, group), strict=True)
        y = np.concatenate([_products(part, weights, windows, small) for part, weights in parts], axis=1)
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


def _products(x: AnyArray, w: AnyArray, windows: Sequence[Window], small: Sequence[int]) -> AnyArray:
    """One group: (N, C, padded) and (M, C, taps) to (N, M, small)."""
    y = np.zeros((x.shape[0], w.shape[0], *small))
    taps = w.reshape(*w.shape[:2], -1)
    for number, tap in enumerate(product(*(range(one.size) for one in windows))):
        starts = [place * one.dilation for place, one in zip(tap, windows, strict=True)]
        read = [
            slice(start, start + (count - 1) * one.stride + 1, one.stride)
            for start, count, one in zip(starts, small, windows, strict=True)
        ]
        seen = x[:, :, *read]
        y += (taps[:, :, number] @ seen.reshape(*seen.shape[:2], -1)).reshape(y.shape)
    return y


def _pads(sizes: Sequence[int], windows: Sequence[Window], given: Mapping[str, Any]) -> list[tuple[int, int]]:
    rank, mode = len(sizes), given.get("auto_pad") or "NOTSET"
    if mode == "NOTSET":
        pads = given.get("pads") or [0] * 2 * rank
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * rank
    odd = OddSide.END if mode == "SAME_UPPER" else OddSide.BEGIN
    found = []
    for size, one in zip(sizes, windows, strict=True):
        small = same_pooled_size(size, one.stride)
        begin = same_pool_begin(size, small, one, odd, keep_negative=False)
        found.append((begin, max(0, (small - 1) * one.stride + one.reach - size - begin)))
    return found
