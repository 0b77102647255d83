"""A step as a model of its own, which any runtime can evaluate: what was fused into the step is a node again."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.operators.activation import PARAMETERS, Activation
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weight_files import with_data
from unpool.runtime.passes.fuse import FIRST_CLIP_WITH_INPUTS
from unpool.runtime.plan.partitions import cut
from unpool.runtime.plan.plan import Step

BEFORE = "/before the activation"
"""How the name of a value ends that a step hands from a node to its activation."""


def alone(graph: Graph, step: Step, types: Types) -> onnx.ModelProto:
    """The model of a step, with all its tensors.

    Args:
        graph: that the plan was made of.
        step: of the plan.
        types: what is known of the values.
    """
    model = cut(graph, step, types, with_data)
    for node in list(model.graph.node):
        activation = graph.activations.get(node.output[0]) if node.output else None
        if activation is not None:
            _append(model, node, activation, graph.opsets[""])
    return model


def _append(model: onnx.ModelProto, node: onnx.NodeProto, activation: Activation, opset: int) -> None:
    """Put the activation behind a node of the model."""
    name = node.output[0]
    node.output[0] = name + BEFORE
    given: dict[str, Any] = dict(zip(PARAMETERS[activation.name], activation.params, strict=True))
    inputs = [node.output[0]]
    if activation.name == "Clip" and opset >= FIRST_CLIP_WITH_INPUTS:
        bounds = {f"{name}/{word}": value for word, value in given.items()}
        model.graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), one) for one, value in bounds.items()
        )
        inputs, given = [*inputs, *bounds], {}
    model.graph.node.append(helper.make_node(activation.name, inputs, [name], **given))
