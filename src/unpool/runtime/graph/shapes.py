"""Element types, shapes and names of ONNX types, and text as arrays of str."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, suggest_name
from unpool.runtime.graph.dims import Dims

Types = dict[str, onnx.TypeProto]


def dims(type_: onnx.TypeProto | None) -> Dims | None:
    """Sizes of a tensor type, the name or None for each unknown one; None when the rank is unknown.

    >>> dims(onnx.helper.make_tensor_type_proto(1, [1, "h", None, 8]))
    (1, 'h', None, 8)
    """
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in type_.tensor_type.shape.dim
    )


def static_dims(type_: onnx.TypeProto | None) -> tuple[int | None, ...] | None:
    """Sizes of a tensor type, None for each unknown one; None when the rank is unknown.

    >>> static_dims(onnx.helper.make_tensor_type_proto(1, [1, "h", None, 8]))
    (1, None, None, 8)
    """
    known = dims(type_)
    return None if known is None else tuple(dim if isinstance(dim, int) else None for dim in known)


def dtype(type_: onnx.TypeProto | None) -> np.dtype[Any] | None:
    """NumPy type of a tensor type; None when it is unknown or not a tensor of numbers."""
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.elem_type:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type))


def tensor_type(element: int, known: Sequence[int | str | None] | None) -> onnx.TypeProto:
    """The type of a tensor; `known` None leaves the rank open."""
    return helper.make_tensor_type_proto(element, known)


def rank_only(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank, every size left open."""
    known = static_dims(type_)
    if known is None:
        return type_
    return tensor_type(type_.tensor_type.elem_type, [None] * len(known))


def without_shape(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank and sizes left open."""
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    if copy.HasField("tensor_type"):
        copy.tensor_type.ClearField("shape")
    return copy


def element(type_: onnx.TypeProto | None) -> int:
    """The element type of a tensor type as ONNX numbers it; 0 when it is unknown, -1 when it is no tensor."""
    if type_ is None:
        return 0
    return type_.tensor_type.elem_type if type_.HasField("tensor_type") else -1


def check_size_names(sizes: Mapping[str, int], dims: Iterable[int | str | None]) -> None:
    """Refuse sizes for names that no input of a model has.

    Args:
        sizes: by name.
        dims: of all inputs.

    Raises:
        UnpoolError: a name is none of theirs.
    """
    names = sorted({dim for dim in dims if isinstance(dim, str) and dim})
    unknown = sorted(set(sizes) - set(names))
    if unknown:
        raise UnpoolError(
            f"sizes: expected names from {', '.join(names) or 'none'}, the dynamic dimensions of the inputs, "
            f"got {', '.join(unknown)}. {suggest_name(unknown[0], names)}"
        )


_BY_WORD = {word.lower(): number for word, number in TensorProto.DataType.items()}
_WORDS = {number: word for word, number in _BY_WORD.items()}


def type_name(type_: onnx.TypeProto) -> str:
    """The type in onnxruntime's type_name.

    >>> type_name(onnx.helper.make_tensor_type_proto(16, None))
    'tensor(bfloat16)'
    >>> type_name(onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(7, None)))
    'seq(tensor(int64))'
    """
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensor({_WORDS[type_.tensor_type.elem_type]})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_WORDS[type_.sparse_tensor_type.elem_type]})"
    if kind == "sequence_type":
        return f"seq({type_name(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_name(type_.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_WORDS[type_.map_type.key_type]},{type_name(type_.map_type.value_type)})"
    return "undefined"


def parse_type(type_name: str) -> onnx.TypeProto | None:
    """The type that the name stands for, without shapes; None for a type that ONNX does not have, or a sparse one.

    >>> parse_type("tensor(double)").tensor_type.elem_type, parse_type("opaque(a,b)")
    (11, None)
    >>> type_name(parse_type("seq(map(int64,tensor(float)))"))
    'seq(map(int64,tensor(float)))'
    """
    kind, _, rest = type_name.partition("(")
    inside = rest.removesuffix(")")
    if kind == "tensor":
        return helper.make_tensor_type_proto(_BY_WORD[inside], None) if inside in _BY_WORD else None
    if kind == "map":
        key, _, inside = inside.partition(",")
        value = parse_type(inside)
        return helper.make_map_type_proto(_BY_WORD[key], value) if key in _BY_WORD and value is not None else None
    make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}.get(kind)
    held = None if make is None else parse_type(inside)
    return None if make is None or held is None else make(held)


def numpy_type(type_name: str) -> np.dtype[Any] | None:
    """NumPy's type of the elements of a tensor; None for every other type, and for text.

    >>> str(numpy_type("tensor(float)"))
    'float32'
    """
    parsed = parse_type(type_name)
    if parsed is None or not parsed.HasField("tensor_type") or type_name == "tensor(string)":
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(parsed.tensor_type.elem_type))


def to_strings(array: AnyArray, name: str) -> AnyArray:
    r"""The array as one of str; bytes are read as UTF-8, which is how ONNX stores strings.

    Args:
        array: of NumPy's kinds of text, of bytes of one size (`void`), or of objects.
        name: how errors call it.

    Raises:
        UnpoolError: bytes that are no UTF-8, or an element that is no text.

    >>> to_strings(np.array([b"gr\xc3\xbcn", "rot"], object), "x").tolist()
    ['grün', 'rot']
    """
    flat = [_text(one, name) for one in array.astype(object, copy=False).reshape(-1)]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape)


def _text(one: object, name: str) -> str:
    try:
        if isinstance(one, (bytes, np.void)):
            return (one if isinstance(one, bytes) else one.tobytes()).decode("utf-8")
        if isinstance(one, str):
            one.encode("utf-8")
            return one
    except UnicodeError as error:
        raise UnpoolError(
            f"{name}: expected text that UTF-8 can hold, got {one!r}. Leave out lone surrogates."
        ) from error
    raise UnpoolError(f"{name}: expected strings, or bytes in UTF-8, got {type(one).__name__} {one!r}. Use str(...).")
