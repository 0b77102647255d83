"""Types and shapes of all values, as far as onnx's inference gets them right.

Inference does not know the channels-last domain, and is wrong for ceil_mode, for ConvTranspose under auto_pad or
output_shape and for pads beside auto_pad. There a Reshape to an unknown shape stands in: type and rank remain.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from unpool.errors import ModelError
from unpool.operators.contract import NHWC
from unpool.runtime.graph import Graph
from unpool.runtime.light import as_input, is_large
from unpool.runtime.nodes import attributes, bodies, is_ours

UNKNOWN_SHAPE = "unpool.shape_of_rank_"
UNKNOWN_INDICES = "unpool.indices"
HIGHEST_RANK = 16

Types = dict[str, onnx.TypeProto]


def infer(graph: Graph) -> Types:
    """What is known of every value; a value of unknown type is missing.

    Raises:
        ModelError: onnx's inference fails on the model.
    """
    model = _skeleton(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:
        raise ModelError(
            f"model: expected a graph whose types can be inferred, got: {error}. Export it again."
        ) from error
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    found |= {name: as_input(tensor).type for name, tensor in graph.constants.items()}
    found |= {value.name: value.type for value in graph.inputs}
    return {name: one for name, one in found.items() if one.WhichOneof("value") and _element(one) != 0}


def sizes(type_: onnx.TypeProto | None) -> tuple[int | None, ...] | None:
    """Sizes of a tensor type, None for each unknown one; None when the rank is unknown.

    >>> sizes(onnx.helper.make_tensor_type_proto(1, [1, "h", None, 8]))
    (1, None, None, 8)
    """
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in type_.tensor_type.shape.dim)


def dtype(type_: onnx.TypeProto | None) -> np.dtype[Any] | None:
    """NumPy type of a tensor type; None when it is unknown or not a tensor of numbers."""
    if type_ is None or not type_.HasField("tensor_type"):
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type))


def rank_only(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank, every size left open."""
    known = sizes(type_)
    if known is None:
        return type_
    return helper.make_tensor_type_proto(type_.tensor_type.elem_type, [None] * len(known))


def _element(type_: onnx.TypeProto) -> int:
    return type_.tensor_type.elem_type if type_.HasField("tensor_type") else -1


def _skeleton(graph: Graph) -> onnx.ModelProto:
    def rank_of(name: str) -> int | None:
        return len(graph.constants[name].dims) if name in graph.constants else None

    nodes = [stand_in for node in graph.nodes for stand_in in _stand_ins(node, rank_of)]
    small = {name: tensor for name, tensor in graph.constants.items() if not is_large(tensor)}
    large = [_named(name, as_input(one).type) for name, one in graph.constants.items() if name not in small]
    sparse = [
        helper.make_tensor_value_info(name, one.values.data_type, list(one.dims))
        for name, one in graph.sparse_constants.items()
    ]
    known = {*graph.constants, *graph.sparse_constants, *(value.name for value in graph.inputs)}
    declared = [_named(name, _without_shape(one)) for name, one in graph.declared.items() if name not in known]
    body = helper.make_graph(
        nodes,
        "skeleton",
        [*graph.inputs, *large, *sparse, *_unknowns()],
        [_named(value.name, _without_shape(value.type)) for value in graph.outputs],
        [_renamed(name, tensor) for name, tensor in small.items()],
        value_info=declared,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
    return helper.make_model(body, opset_imports=imports, ir_version=max(graph.ir_version, 4))


def _unknowns() -> Iterable[onnx.ValueInfoProto]:
    yield helper.make_tensor_value_info(UNKNOWN_INDICES, TensorProto.INT64, None)
    yield helper.make_tensor_value_info(_shape_of(None), TensorProto.INT64, [None])
    for rank in range(HIGHEST_RANK + 1):
        yield helper.make_tensor_value_info(_shape_of(rank), TensorProto.INT64, [rank])


def _shape_of(rank: int | None) -> str:
    return f"{UNKNOWN_SHAPE}{'any' if rank is None or rank > HIGHEST_RANK else rank}"


def _stand_ins(node: onnx.NodeProto, ranks: Callable[[str], int | None]) -> list[onnx.NodeProto]:
    """The nodes that inference sees in place of one node."""
    if is_ours(node):
        return [node] if _is_inferred_rightly(node) else _reshapes(node, ranks)
    if not any(True for _ in bodies(node)):
        return [node]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for _, body in bodies(copy):
        inner = [stand_in for one in body.node for stand_in in _stand_ins(one, ranks)]
        del body.node[:]
        body.node.extend(inner)
    return [copy]


def _reshapes(node: onnx.NodeProto, ranks: Callable[[str], int | None]) -> list[onnx.NodeProto]:
    kernel = attributes(node).get("kernel_shape")
    rank = len(kernel) + 2 if kernel else ranks(node.input[1])
    made = zip((node.input[0], UNKNOWN_INDICES), node.output, strict=False)
    return [helper.make_node("Reshape", [source, _shape_of(rank)], [output]) for source, output in made if output]


def _is_inferred_rightly(node: onnx.NodeProto) -> bool:
    given = attributes(node)
    mode = given.get("auto_pad", b"").decode() or "NOTSET"
    if node.domain == NHWC or (mode != "NOTSET" and any(given.get("pads", ()))):
        return False
    if node.op_type == "MaxPool":
        return not given.get("ceil_mode", 0)
    if node.op_type == "ConvTranspose":
        return mode in ("NOTSET", "VALID") and "output_shape" not in given
    return not any(node.input[2:])


def _named(name: str, type_: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, type_)


def _renamed(name: str, tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _without_shape(type_: onnx.TypeProto) -> onnx.TypeProto:
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    if copy.HasField("tensor_type"):
        copy.tensor_type.ClearField("shape")
    return copy
