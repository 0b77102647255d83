"""Bare models: large weights have a name instead of elements, so passes copy no elements, and depend on none.

A bare weight has a type, a shape, and an entry of external data with the name of the weight in the original model. A
second entry says that the windows of a Conv's weight are to be flipped. `weights.array_of` raises an
ElementsNeededError for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import onnx

from unpool.graph.weights import BARE_KEY, copy_fields, has_whole_bytes, is_bare, is_large, without_folder

_GROUPS_KEY = "unpool.flipped"  # the number of groups of a Conv whose weight is flipped


class Origin(NamedTuple):
    """The weight that a bare weight stands for, by name, and the groups in which its windows are flipped, or 0."""

    name: str
    groups: int = 0


def without_elements(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in which the large initializers are bare."""
    bare = onnx.ModelProto()
    copy_fields(model, bare, "graph")
    copy_fields(model.graph, bare.graph, "initializer")
    for tensor in model.graph.initializer:
        if is_large(tensor) and has_whole_bytes(tensor):
            bare.graph.initializer.append(_bare(tensor.name, tensor.data_type, tensor.dims, Origin(tensor.name)))
        else:
            bare.graph.initializer.append(without_folder(tensor))
    return bare


def flip_bare(tensor: onnx.TensorProto, name: str, dims: Sequence[int], groups: int) -> onnx.TensorProto | None:
    """A bare weight of these dims that stands for another one with its windows flipped; None if that is not bare."""
    origin = origin_of(tensor)
    return None if origin is None else _bare(name, tensor.data_type, dims, Origin(origin.name, groups))


def origin_of(tensor: onnx.TensorProto) -> Origin | None:
    """The origin of a bare weight; None for another tensor."""
    if not is_bare(tensor):
        return None
    name, *groups = (entry.value for entry in tensor.external_data)
    return Origin(name, int(groups[0]) if groups else 0)


def _bare(name: str, data_type: int, dims: Sequence[int], origin: Origin) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=data_type, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key=BARE_KEY, value=origin.name)
    if origin.groups:
        tensor.external_data.add(key=_GROUPS_KEY, value=str(origin.groups))
    return tensor
