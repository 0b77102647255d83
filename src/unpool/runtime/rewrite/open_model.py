"""A model read so that it can be rewritten, and those of its nodes that move windows over an axis."""

from dataclasses import dataclass

import numpy as np
import onnx

from unpool.errors import UnsupportedError
from unpool.graph.graph import Graph, lift_constants
from unpool.graph.load import ModelSource, check_model, load
from unpool.graph.nodes import attributes, domain, subgraphs, with_subgraph_nodes
from unpool.graph.shape_inference import Inference, ResolvedNode, infer
from unpool.graph.shapes import Dims
from unpool.graph.weights import array_of
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.semantics import Semantics
from unpool.passes.inline import inline, shorten_domains
from unpool.passes.upgrade_opset import lift_opset
from unpool.runtime.rewrite.window_forms import WindowedNode


@dataclass(frozen=True)
class EditableModel:
    """A copy of a model for a rewrite to change, its functions inlined and its domain names short.

    The graph and its inference are those before any change; of a model below opset 7, the inference is that of opset 7,
    to which `lift_opset` brings it without changing unpool's nodes.
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
    window: Dims
    sizes: Dims
    if isinstance(spec, MaxPoolSpec):
        window, takes_zeros = tuple(axis.size for axis in spec.windows), False
    else:
        window = spec.kernel_shape or (resolved.inputs[1] or ())[2:]
        takes_zeros = _is_finite_constant(editable, resolved.node.input[1])
    if not window:
        raise UnsupportedError(f"{spec.version.label}: the rank of W is unknown. Give W a shape in the model.")
    dims, sizes = resolved.inputs[0], (None,) * len(window)
    if dims is not None and len(dims) == len(window) + 2:
        sizes = dims[1:-1] if spec.version.is_channels_last else dims[2:]
    return WindowedNode(spec, attributes(resolved.node), sizes, window, takes_zeros)


def _is_finite_constant(editable: EditableModel, name: str) -> bool:
    """True if the name stands for a constant, wherever it occurs, without infinities or NaN."""
    tensors = [editable.graph.constants[name]] if name in editable.graph.constants else []
    for node in with_subgraph_nodes(editable.graph.nodes):
        for _, subgraph in subgraphs(node):
            if any(value.name == name for value in subgraph.input):
                return False
            tensors.extend(tensor for tensor in subgraph.initializer if tensor.name == name)
        if name in node.output:
            if domain(node) != "" or node.op_type != "Constant" or "value" not in attributes(node):
                return False
            tensors.append(attributes(node)["value"])
    arrays = map(array_of, tensors)  # of a type that NumPy lacks are converted
    are_finite = (np.isfinite(array if array.dtype.kind == "f" else array.astype(np.float64)).all() for array in arrays)
    return bool(tensors) and all(are_finite)
