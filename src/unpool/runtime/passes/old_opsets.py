"""Brings models of opsets 1 to 6, which onnxruntime does not run, to opset 7 by onnx's version converter.

Our nodes keep their version: opsets 1 to 7 select the same rows of the three operators. Some nodes are hidden from the
converter and lifted here, because it has no adapter for them, or puts the axes of an operand in the wrong place.
"""

import logging

import onnx

from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import is_unpool_op, with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.weights import restore_initializers, strip_initializers
from unpool.runtime.passes import old_nodes
from unpool.runtime.passes.convert import convert

LAST_WITH_AXIS = 6  # the last opset in which an attribute says where the axes of an operand are

_LOG = logging.getLogger("unpool")


def lift_opset(model: onnx.ModelProto, semantics: Semantics) -> onnx.ModelProto:
    """The model in opset 7 if it is in an older one and has nodes that are not ours; else the model itself.

    Args:
        model: valid, without functions, ONNX's domain under its short name.
        semantics: of our nodes, for the shapes of what they make.

    Raises:
        UnsupportedError: a node that cannot be lifted, and the message names it.
    """
    opset = next((one.version for one in model.opset_import if one.domain == ""), old_nodes.TARGET)
    if opset >= old_nodes.TARGET or all(map(is_unpool_op, with_subgraph_nodes(model.graph.node))):
        return model
    _LOG.info("nodes of opset %d are lifted to opset %d; MaxPool and ConvTranspose stay", opset, old_nodes.TARGET)
    skeleton = strip_initializers(model)
    old_nodes.prepare(skeleton.graph, opset)
    skeleton = convert(skeleton, LAST_WITH_AXIS, {}, old_nodes.is_prepared)
    old_nodes.align(skeleton.graph, infer(Graph.from_model(skeleton), semantics).types)
    skeleton = convert(
        skeleton, old_nodes.TARGET, infer(Graph.from_model(skeleton), semantics).types, old_nodes.is_aligned
    )
    return restore_initializers(skeleton, model)
