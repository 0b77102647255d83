"""A model read so that it can be rewritten, and those of its nodes that move windows over an axis."""

from dataclasses import dataclass

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.operators.contract import Row
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.graph.graph import Graph, lift_constants
from unpool.runtime.graph.load import ModelSource, check_model, load
from unpool.runtime.graph.nodes import attributes, domain, subgraphs, with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import Inference, ResolvedNode, infer
from unpool.runtime.graph.shapes import Dims
from unpool.runtime.graph.weights import array_of
from unpool.runtime.passes.inline import inline, shorten_domains
from unpool.runtime.passes.upgrade_opset import lift_opset
from unpool.runtime.rewrite.window_forms import WindowedNode


@dataclass(frozen=True)
class EditableModel:
    """A copy of a model, its functions inlined and its domain names short, with what is known of it.

    Attributes:
        model: the copy, for the rewriting to change.
        graph: the record of the model before any change.
        inference: what is known of that graph; of a model below opset 7, what is known of it once `lift_opset` has
            brought it to opset 7, which leaves our nodes as they are.
    """

    model: onnx.ModelProto
    graph: Graph
    inference: Inference


def open_model(source: ModelSource, semantics: Semantics) -> EditableModel:
    """Read a model to rewrite it; the caller's ModelProto is not changed."""
    model = onnx.ModelProto()
    model.CopyFrom(inline(shorten_domains(load(source))))
    check_model(model)
    lifted = lift_opset(model, semantics)
    return EditableModel(
        model, lift_constants(Graph.from_model(model)), infer(lift_constants(Graph.from_model(lifted)), semantics)
    )


def windowed_node(editable: EditableModel, resolved: ResolvedNode) -> WindowedNode:
    """A node of the model, which must be a MaxPool or ConvTranspose, with the sizes that it meets."""
    spec = resolved.spec
    assert not isinstance(spec, MaxUnpoolSpec)
    given = attributes(resolved.node)
    if isinstance(spec, MaxPoolSpec):
        window = tuple(one.size for one in spec.windows)
        return WindowedNode(spec, given, _spatial(spec.row, resolved.inputs[0], len(window)), window, takes_zeros=False)
    window_sizes: Dims = spec.kernel_shape or (resolved.inputs[1] or ())[2:]
    if not window_sizes:
        raise UnsupportedError(f"{spec.row.label}: needs W of known rank, got one of unknown rank. Fix its shape.")
    takes_zeros = _is_finite_constant(editable, resolved.node.input[1])
    return WindowedNode(
        spec, given, _spatial(spec.row, resolved.inputs[0], len(window_sizes)), window_sizes, takes_zeros
    )


def _spatial(row: Row, dims: Dims | None, rank: int) -> Dims:
    if dims is None or len(dims) != rank + 2:
        return (None,) * rank
    return dims[1:-1] if row.is_channels_last else dims[2:]


def _is_finite_constant(editable: EditableModel, name: str) -> bool:
    """True if the name stands for a constant, wherever it occurs, without infinities or NaN."""
    found = [editable.graph.constants[name]] if name in editable.graph.constants else []
    for node in with_subgraph_nodes(editable.graph.nodes):
        for _, subgraph in subgraphs(node):
            if any(value.name == name for value in subgraph.input):
                return False
            found.extend(tensor for tensor in subgraph.initializer if tensor.name == name)
        if name in node.output:
            if domain(node) != "" or node.op_type != "Constant" or "value" not in attributes(node):
                return False
            found.append(attributes(node)["value"])
    return bool(found) and all(_is_finite(array_of(one)) for one in found)


def _is_finite(array: AnyArray) -> bool:
    """True if no element is an infinity or NaN; a type that NumPy lacks is converted, and numbers it has are not."""
    return bool(np.isfinite(array if array.dtype.kind == "f" else array.astype(np.float64)).all())
