"""A model opened for rewriting, and its nodes as subjects."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.errors import UnsupportedError
from unpool.operators.contract import Row
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.bound import Meaning
from unpool.runtime.check import check
from unpool.runtime.graph import Graph, read
from unpool.runtime.inference import Inference, OurNode, infer
from unpool.runtime.load import Source, load
from unpool.runtime.nodes import attributes, bodies, domain, with_inner
from unpool.runtime.passes.constants import lift
from unpool.runtime.passes.domains import shorten
from unpool.runtime.passes.forms import Subject
from unpool.runtime.passes.inline import inline
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.symbolic import Dims


@dataclass(frozen=True)
class Opened:
    """A model of its own, functions inlined and domain names short, with what is known of it.

    Attributes:
        model: to be changed.
        graph: as it was.
        inference: what is known of it or, below opset 7, of `lift_opset` of it; the nodes of ours are the same.
    """

    model: onnx.ModelProto
    graph: Graph
    inference: Inference


def open_model(source: Source, meaning: Meaning) -> Opened:
    """Read a model to rewrite it; the caller's ModelProto is not changed.

    Raises:
        UnpoolError: as `unpool.InferenceSession` does for a model that cannot be read or breaks a contract.
    """
    model = onnx.ModelProto()
    model.CopyFrom(inline(shorten(load(source))))
    check(model)
    lifted = lift_opset(model, meaning)
    return Opened(model, lift(read(model)), infer(lift(read(lifted)), meaning))


def subject(opened: Opened, ours: OurNode) -> Subject:
    """A MaxPool or ConvTranspose to be written differently."""
    spec = ours.spec
    assert not isinstance(spec, MaxUnpoolSpec)
    given = attributes(ours.node)
    if isinstance(spec, MaxPoolSpec):
        window = tuple(one.size for one in spec.windows)
        return Subject(spec, given, _spatial(spec.row, ours.inputs[0], len(window)), window, takes_zeros=False)
    kernel: Dims = spec.kernel_shape or (ours.inputs[1] or ())[2:]
    if not kernel:
        raise UnsupportedError(f"{spec.row.label}: needs W of known rank, got one of unknown rank. Fix its shape.")
    takes_zeros = _is_finite_constant(opened, ours.node.input[1])
    return Subject(spec, given, _spatial(spec.row, ours.inputs[0], len(kernel)), kernel, takes_zeros)


def _spatial(row: Row, dims: Dims | None, rank: int) -> Dims:
    if dims is None or len(dims) != rank + 2:
        return (None,) * rank
    return dims[1:-1] if row.is_channels_last else dims[2:]


def _is_finite_constant(opened: Opened, name: str) -> bool:
    """Whether the name stands for a constant, wherever it occurs, without infinities or NaN."""
    found = [opened.graph.constants[name]] if name in opened.graph.constants else []
    for node in with_inner(opened.graph.nodes):
        for _, body in bodies(node):
            if any(value.name == name for value in body.input):
                return False
            found.extend(tensor for tensor in body.initializer if tensor.name == name)
        if name in node.output:
            if domain(node) != "" or node.op_type != "Constant" or "value" not in attributes(node):
                return False
            found.append(attributes(node)["value"])
    return bool(found) and all(np.isfinite(numpy_helper.to_array(one).astype(np.float64)).all() for one in found)
