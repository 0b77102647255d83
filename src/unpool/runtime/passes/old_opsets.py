"""Models of opsets 1 to 6, which onnxruntime does not run, brought to opset 7 by onnx's version converter.

Our nodes keep their version: opsets 1 to 7 select the same rows of the three operators. Some nodes are hidden from the
converter and lifted here, because it has no adapter for them, or puts the axes of an operand in the wrong place.
"""

import logging

import onnx

from unpool.runtime.bound import Meaning
from unpool.runtime.graph import read
from unpool.runtime.inference import infer
from unpool.runtime.light import lighten, put_back
from unpool.runtime.nodes import is_ours, with_inner
from unpool.runtime.passes import old_nodes
from unpool.runtime.passes.convert import convert

LAST_WITH_AXIS = 6  # the last opset in which an attribute says where the axes of an operand are

_LOG = logging.getLogger("unpool")


def lift_opset(model: onnx.ModelProto, meaning: Meaning) -> onnx.ModelProto:
    """The model in opset 7 if it is in an older one and has nodes that are not ours; else the model itself.

    Args:
        model: valid, without functions, ONNX's domain under its short name.
        meaning: of our nodes, for the shapes of what they make.

    Raises:
        UnsupportedError: a node that cannot be lifted, and the message names it.
    """
    opset = next((one.version for one in model.opset_import if one.domain == ""), old_nodes.TARGET)
    if opset >= old_nodes.TARGET or all(map(is_ours, with_inner(model.graph.node))):
        return model
    _LOG.info("nodes of opset %d are lifted to opset %d; MaxPool and ConvTranspose stay", opset, old_nodes.TARGET)
    light = lighten(model)
    old_nodes.prepare(light.graph, opset)
    light = convert(light, LAST_WITH_AXIS, {}, old_nodes.is_prepared)
    old_nodes.align(light.graph, infer(read(light), meaning).types)
    light = convert(light, old_nodes.TARGET, infer(read(light), meaning).types, old_nodes.is_aligned)
    return put_back(light, model)
