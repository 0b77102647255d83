"""Types of values in onnxruntime's words, such as `tensor(float)` and `seq(tensor(int64))`."""

import onnx
from onnx import TensorProto, helper

_BY_WORD = {word.lower(): number for word, number in TensorProto.DataType.items()}
_WORDS = {number: word for word, number in _BY_WORD.items()}


def name(type_: onnx.TypeProto) -> str:
    """The type in onnxruntime's words.

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


def parse(words: str) -> onnx.TypeProto | None:
    """The tensor type that the words name, without a shape; None for other types.

    >>> parse("tensor(double)").tensor_type.elem_type, parse("seq(tensor(float))")
    (11, None)
    """
    word = words.removeprefix("tensor(").removesuffix(")")
    if word not in _BY_WORD or not words.startswith("tensor("):
        return None
    return helper.make_tensor_type_proto(_BY_WORD[word], None)
