"""Gives ONNX's own domain one name, where models may use either of two."""

from collections.abc import Iterator

import onnx

from unpool.runtime.graph.nodes import with_subgraph_nodes

LONG_NAME = "ai.onnx"


def shorten(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with "" in place of "ai.onnx"; the model itself when it does not use the long name."""
    if not any(one.domain == LONG_NAME for one in _domain_holders(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for one in _domain_holders(copy):
        if one.domain == LONG_NAME:
            one.domain = ""
    return copy


def _domain_holders(model: onnx.ModelProto) -> Iterator[onnx.NodeProto | onnx.OperatorSetIdProto]:
    yield from model.opset_import
    yield from with_subgraph_nodes(model.graph.node)
    for function in model.functions:
        yield from function.opset_import
        yield from with_subgraph_nodes(function.node)
