"""Types of values in onnxruntime's words, such as `tensor(float)` and `seq(tensor(int64))`."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

_BY_WORD = {word.lower(): number for word, number in TensorProto.DataType.items()}
_WORDS = {number: word for word, number in _BY_WORD.items()}


def name(type_: onnx.TypeProto) -> str:
    """The type in onnxruntime's type_name.

    >>> name(onnx.helper.make_tensor_type_proto(16, None))
    'tensor(bfloat16)'
    >>> name(onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(7, None)))
    'seq(tensor(int64))'
    """
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensor({_WORDS[type_.tensor_type.elem_type]})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_WORDS[type_.sparse_tensor_type.elem_type]})"
    if kind == "sequence_type":
        return f"seq({name(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({name(type_.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_WORDS[type_.map_type.key_type]},{name(type_.map_type.value_type)})"
    return "undefined"


def parse(type_name: str) -> onnx.TypeProto | None:
    """The type that the name stands for, without shapes; None for a type that ONNX does not have, or a sparse one.

    >>> parse("tensor(double)").tensor_type.elem_type, parse("opaque(a,b)")
    (11, None)
    >>> name(parse("seq(map(int64,tensor(float)))"))
    'seq(map(int64,tensor(float)))'
    """
    kind, _, rest = type_name.partition("(")
    inside = rest.removesuffix(")")
    if kind == "tensor":
        return helper.make_tensor_type_proto(_BY_WORD[inside], None) if inside in _BY_WORD else None
    if kind == "map":
        key, _, inside = inside.partition(",")
        value = parse(inside)
        return helper.make_map_type_proto(_BY_WORD[key], value) if key in _BY_WORD and value is not None else None
    make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}.get(kind)
    held = None if make is None else parse(inside)
    return None if make is None or held is None else make(held)


def numpy_type(type_name: str) -> np.dtype[Any] | None:
    """NumPy's type of the elements of a tensor; None for every other type, and for text.

    >>> str(numpy_type("tensor(float)"))
    'float32'
    """
    parsed = parse(type_name)
    if parsed is None or not parsed.HasField("tensor_type") or type_name == "tensor(string)":
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(parsed.tensor_type.elem_type))
