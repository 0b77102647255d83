"""Element types, shapes and names of ONNX types, and shapes of the three operators' outputs.

`output_dims` goes axis by axis: a known size becomes the size that the operator computes. A dynamic size keeps its name
if the operator does not change it, becomes an int if the result does not depend on it, and otherwise becomes None.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from unpool.errors import UnpoolError, suggest_name
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.contract import OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

Types = dict[str, onnx.TypeProto]
Dim: TypeAlias = int | str | None
Dims: TypeAlias = tuple[Dim, ...]
Resize: TypeAlias = Callable[[int], int]


def dims(type_: onnx.TypeProto | None) -> Dims | None:
    """Sizes of a tensor type, the name or None for each unknown one; None when the rank is unknown.

    A size below 0, as paddle2onnx writes it, is unknown, as it is in onnxruntime.
    """
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    return tuple(
        (dim.dim_value if dim.dim_value >= 0 else None) if dim.HasField("dim_value") else dim.dim_param or None
        for dim in type_.tensor_type.shape.dim
    )


def static_dims(type_: onnx.TypeProto | None) -> tuple[int | None, ...] | None:
    """`dims` with None in place of names."""
    known = dims(type_)
    return None if known is None else tuple(dim if isinstance(dim, int) else None for dim in known)


def known_sizes(type_: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """Sizes of a tensor type; None unless all of them are known."""
    known = dims(type_)
    sizes = tuple(size for size in known or () if isinstance(size, int))
    return sizes if known is not None and len(sizes) == len(known) else None


def dtype(type_: onnx.TypeProto | None) -> np.dtype[Any] | None:
    """NumPy type of a tensor type, object for strings; None when it is unknown or no tensor."""
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.elem_type:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type))


tensor_type = helper.make_tensor_type_proto  # of an element type and dims; None in place of dims leaves the rank open


def without_sizes(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank, but without its sizes and their names."""
    known = dims(type_)
    return type_ if known is None else tensor_type(element(type_), [None] * len(known))


def without_shape(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type without rank and sizes."""
    if type_.HasField("tensor_type"):
        return _of_any_shape(type_.tensor_type.elem_type)
    return deepcopy(type_)


@cache
def _of_any_shape(element: int) -> onnx.TypeProto:
    return tensor_type(element, None)


def element(type_: onnx.TypeProto | None) -> int:
    """The element type of a tensor type as ONNX numbers it; 0 when it is unknown, -1 when it is no tensor."""
    if type_ is None:
        return 0
    return type_.tensor_type.elem_type if type_.HasField("tensor_type") else -1


def type_of(value: Any) -> onnx.TypeProto:
    """The type of an array, or of a list of arrays, with dynamic sizes."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0] if value else np.empty(0, np.float32)))
    kind = np.asarray(value).dtype
    return tensor_type(helper.np_dtype_to_tensor_dtype(np.dtype(object) if kind.kind in "US" else kind), None)


def check_size_names(sizes: Mapping[str, int], dims: Iterable[int | str | None]) -> None:
    """Refuse sizes by name whose names are not among the `dims` of all inputs."""
    names = sorted({dim for dim in dims if isinstance(dim, str) and dim})
    unknown = sorted(set(sizes) - set(names))
    if unknown:
        expected = f"names from {', '.join(names) or 'none'}, the dynamic dimensions of the inputs"
        raise UnpoolError(f"sizes: expected {expected}, got {', '.join(unknown)}. {suggest_name(unknown[0], names)}")


_NUMBERS = {word.lower(): number for word, number in TensorProto.DataType.items()}


def parse_type(type_name: str) -> onnx.TypeProto | None:
    """The type of that name, without shapes; None for a type that ONNX does not have, or a sparse one."""
    kind, _, rest = type_name.partition("(")
    inside = rest.removesuffix(")")
    if kind == "tensor":
        return helper.make_tensor_type_proto(_NUMBERS[inside], None) if inside in _NUMBERS else None
    if kind == "map":
        key, _, inside = inside.partition(",")
        value = parse_type(inside)
        return helper.make_map_type_proto(_NUMBERS[key], value) if key in _NUMBERS and value is not None else None
    make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}.get(kind)
    content = None if make is None else parse_type(inside)
    return None if make is None or content is None else make(content)


def numpy_type(type_name: str) -> np.dtype[Any] | None:
    """NumPy's type of the elements of a tensor of numbers; None for every other type."""
    return None if type_name == "tensor(string)" else dtype(parse_type(type_name))


BEYOND_ALL = 2**40  # a size that no pads or output_padding can move to another size's result


def output_dims(spec: Spec, inputs: Sequence[Dims | None], output_shape: Dims | None = None) -> tuple[Dims | None, ...]:
    """Dims of each output, two for MaxPool, that hold whenever a call succeeds.

    None stands for an unknown rank, and for a size where every call fails. `output_shape` is the value of MaxUnpool's
    third input: () when it is unknown, None when it is not connected.

    >>> from unpool.operators import resolve
    >>> pool = resolve.spec("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}, opset=22)
    >>> output_dims(pool, [("batch", 3, 9, "width")])[0]
    ('batch', 3, 4, 'width')
    """
    if isinstance(spec, MaxPoolSpec):
        n, c, *large = _in_onnx_order(spec.version, inputs[0], len(spec.windows))
        small = [_apply(partial(_pooled_dim, spec, axis), size) for axis, size in enumerate(large)]
        return _in_layout(spec.version, (n, c, *small)), (n, c, *small)
    if isinstance(spec, MaxUnpoolSpec):
        return (_max_unpool(spec, inputs, output_shape),)
    return (_conv_transpose(spec, *inputs[:2]),)


def _max_unpool(spec: MaxUnpoolSpec, inputs: Sequence[Dims | None], output_shape: Dims | None) -> Dims:
    rank = len(spec.windows)
    n, c, *small = map(_merge_dims, _in_onnx_order(spec.version, inputs[0], rank), _of_rank(inputs[1], rank))
    if output_shape is not None:
        shape = _of_rank(output_shape, rank)
        return _in_layout(spec.version, (_merge_dims(n, shape[0]), _merge_dims(c, shape[1]), *shape[2:]))
    large = [_apply(partial(max_unpool.inferred_size, spec, axis), size) for axis, size in enumerate(small)]
    return _in_layout(spec.version, (n, c, *large))


def _conv_transpose(spec: ConvTransposeSpec, x: Dims | None, w: Dims | None) -> Dims | None:
    rank = len(spec.kernel_shape or ())
    if spec.kernel_shape is None:
        rank = next((len(known) - 2 for known in (w, x) if known is not None and len(known) > 2), 0)
        if rank == 0:
            return None
    n, _, *small = _in_onnx_order(spec.version, x, rank)
    _, maps, *window = _of_rank(w, rank)
    if spec.group > 1:
        maps = maps * spec.group if isinstance(maps, int) else None
    window_sizes = window if spec.kernel_shape is None else spec.kernel_shape
    large = [_conv_transposed_dim(spec, window_sizes, axis, size) for axis, size in enumerate(small)]
    return _in_layout(spec.version, (n, maps, *large))


def _pooled_dim(spec: MaxPoolSpec, axis: int, large: int) -> int:
    return max_pool.axis(spec, axis, large).small


def _conv_transposed_dim(spec: ConvTransposeSpec, kernel: Sequence[Dim], axis: int, size: Dim) -> Dim:
    """Size of one axis; where the window is unknown, the size that every window gives, or None."""

    def by_window(unknown: int, small: int) -> int:
        sizes = tuple(size if isinstance(size, int) else unknown for size in kernel)
        return conv_transpose.axis(spec, axis, conv_transpose.axis_rules(spec, sizes)[axis], small).large

    narrow, wide = (_apply(partial(by_window, unknown), size) for unknown in (1, 2))
    return narrow if narrow == wide else None


def _apply(resize: Resize, size: Dim) -> Dim:
    """Result of `resize`, which never falls when the size grows, for a size that may be unknown."""
    if isinstance(size, int):
        return _attempt(resize, size)
    least, most = _attempt(resize, 1), _attempt(resize, BEYOND_ALL)
    if least == most:
        return least  # the same for all sizes between them
    return size if most == BEYOND_ALL else None


def _attempt(resize: Resize, size: int) -> int | None:
    try:
        result = resize(size)
    except (UnpoolError, IndexError):
        return None
    return result if result >= 0 else None


def _merge_dims(first: Dim, second: Dim) -> Dim:
    return second if isinstance(second, int) or first is None else first


def _of_rank(known: Dims | None, rank: int) -> Dims:
    return (None,) * (rank + 2) if known is None or len(known) != rank + 2 else known


def _in_onnx_order(version: OperatorVersion, known: Dims | None, rank: int) -> Dims:
    n, *others = _of_rank(known, rank)
    return (n, others[-1], *others[:-1]) if version.is_channels_last else (n, *others)


def _in_layout(version: OperatorVersion, known: Dims) -> Dims:
    return (known[0], *known[2:], known[1]) if version.is_channels_last else known
