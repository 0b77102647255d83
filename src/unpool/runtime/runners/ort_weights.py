"""Hands weights to onnxruntime beside the model of a piece, as OrtValues: a model is a message of at most 2 GiB.

In the model such a tensor has its data in a file that nobody reads, for onnxruntime takes only those from outside.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import helper
from onnx.external_data_helper import uses_external_data

from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.graph.without_weights import is_large
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_values import KINDS, NUMPY_LACKS, to_ort_value

MOST_INSIDE = 2**30
"""Bytes of weights that the model of a piece has inside."""

_PLACE = "unpool.handed"
_SIZES: Mapping[int, int] = {
    helper.np_dtype_to_tensor_dtype(kind): kind.itemsize for kind in KINDS.values() if kind not in NUMPY_LACKS.values()
}
"""Bytes of an element, by the types of ONNX that NumPy has."""


def are_too_many(tensors: Iterable[onnx.TensorProto]) -> bool:
    """Whether those of the tensors that may go beside the model have too many bytes to be inside."""
    sizes = (_SIZES[one.data_type] * math.prod(one.dims) for one in tensors if _may_go(one))
    return bool(sum(sizes) > MOST_INSIDE)


def without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor as a model has it that gets the data from `ort_values`; itself, if it has to stay."""
    if not _may_go(tensor):
        return tensor
    bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    bare.data_location = onnx.TensorProto.EXTERNAL
    bare.external_data.add(key="location", value=_PLACE)
    return bare


def ort_values(model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, onnxruntime.OrtValue]:
    """The values of the tensors of a piece that `without_data` made, by name, in memory of NumPy: no other is taken."""
    names = [tensor.name for tensor in model.graph.initializer if _is_bare(tensor)]
    return {name: to_ort_value(np.array(array_of(constants[name]))) for name in names}


def _may_go(tensor: onnx.TensorProto) -> bool:
    return is_large(tensor) and tensor.data_type in _SIZES and not uses_external_data(tensor)


def _is_bare(tensor: onnx.TensorProto) -> bool:
    return any(one.key == "location" and one.value == _PLACE for one in tensor.external_data)
