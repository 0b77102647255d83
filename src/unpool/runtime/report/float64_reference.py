"""Evaluation of a model in float64, by onnx's ReferenceEvaluator with unpool's operators."""

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
FLOAT_DTYPES = tuple(helper.tensor_dtype_to_np_dtype(kind) for kind in FLOATS)
TYPE_ATTRIBUTES = ("to", "dtype")
"""Attributes that name the type of an output."""


def evaluate(model: onnx.ModelProto, feed: Mapping[str, Any], semantics: Semantics) -> list[Any]:
    """The outputs of a model whose floats are all float64.

    MaxPool, MaxUnpool and ConvTranspose run as unpool's in float64, a Conv as one product of matrices per tap.

    Args:
        model: without functions, with all tensors inside; it is not changed.
        feed: its inputs.
        semantics: how the three operators are read.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    operators = new_ops(opset, compat=semantics.compat, index_space=semantics.index_space)
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    evaluator = ReferenceEvaluator(wide, new_ops=[*operators, Conv])
    inputs = {name: _widen(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
    with np.errstate(all="ignore"):
        return list(evaluator.run(None, inputs))


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in (entry for node in graph.node for entry in node.attribute):
        if attribute.name in TYPE_ATTRIBUTES and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)
        for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            _widen_graph(subgraph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(_widen(numpy_helper.to_array(tensor)), tensor.name))


def _widen(array: AnyArray) -> AnyArray:
    return array.astype(np.float64) if array.dtype in FLOAT_DTYPES else array


class Conv(OpRun):
    """Conv as one product of matrices per tap, added in the order of the taps; the evaluator's own takes minutes."""

    op_domain = ""

    def _run(self, x: AnyArray, w: AnyArray, b: AnyArray | None = None, **attributes: Any) -> tuple[AnyArray]:
        rank, group = x.ndim - 2, attributes.get("group") or 1
        strides, dilations = attributes.get("strides") or [1] * rank, attributes.get("dilations") or [1] * rank
        windows = [Window(*each) for each in zip(w.shape[2:], strides, dilations, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *_pads(x.shape[2:], windows, attributes)])
        small = [
            (size - window.reach) // window.stride + 1 for size, window in zip(padded.shape[2:], windows, strict=True)
        ]
        groups = zip(np.split(padded, group, axis=1), np.split(w, group), strict=True)
        y = np.concatenate([_convolve(part, weights, windows, small) for part, weights in groups], axis=1)
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


def _convolve(x: AnyArray, w: AnyArray, windows: Sequence[Window], small: Sequence[int]) -> AnyArray:
    """One group: (N, C, padded) and (M, C, taps) to (N, M, small)."""
    y = np.zeros((x.shape[0], w.shape[0], *small))
    taps = w.reshape(*w.shape[:2], -1)
    for number, tap in enumerate(product(*(range(window.size) for window in windows))):
        starts = [step * window.dilation for step, window in zip(tap, windows, strict=True)]
        slices = [
            slice(start, start + (count - 1) * window.stride + 1, window.stride)
            for start, count, window in zip(starts, small, windows, strict=True)
        ]
        part = x[:, :, *slices]
        y += (taps[:, :, number] @ part.reshape(*part.shape[:2], -1)).reshape(y.shape)
    return y


def _pads(sizes: Sequence[int], windows: Sequence[Window], attributes: Mapping[str, Any]) -> list[tuple[int, int]]:
    rank, mode = len(sizes), attributes.get("auto_pad") or "NOTSET"
    if mode == "NOTSET":
        pads = attributes.get("pads") or [0] * 2 * rank
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * rank
    odd = OddSide.END if mode == "SAME_UPPER" else OddSide.BEGIN
    pairs = []
    for size, window in zip(sizes, windows, strict=True):
        small = same_pooled_size(size, window.stride)
        begin = same_pool_begin(size, small, window, odd, keep_negative=False)
        pairs.append((begin, max(0, (small - 1) * window.stride + window.reach - size - begin)))
    return pairs
