"""What a model takes and gives, and the check of what a caller feeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from unpool.arrays import to_numpy
from unpool.errors import ShapeError, UnpoolError
from unpool.runtime import shapes, type_names
from unpool.runtime.graph import Graph
from unpool.runtime.ort_values import from_ort_value
from unpool.runtime.shapes import Types
from unpool.runtime.text import strings

_STRING = np.dtype(object)


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of the model.

    Attributes:
        name: as `run` takes or gives it.
        shape: an int, a symbolic name or None per axis; empty for a scalar, and when the rank is unknown.
        type: in onnxruntime's words, such as "tensor(float)".
    """

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class Slot:
    """What an input accepts. `sizes` None leaves the rank free; `dtype` None is no tensor, and is passed on."""

    info: ValueInfo
    dtype: np.dtype[Any] | None
    sizes: tuple[int | None, ...] | None

    def accept(self, value: Any) -> Any:
        """The value as the array that the nodes see, without a copy where that is possible.

        Raises:
            UnpoolError: another type.
            ShapeError: another rank, or another size along a fixed axis.
        """
        if self.dtype is None:
            return value
        array = self._array(value)
        if array.dtype != self.dtype or not array.dtype.isnative:
            got = array.dtype.name if array.dtype.isnative else f"{array.dtype.name} in foreign byte order"
            raise UnpoolError(
                f"input {self.info.name!r}: expected {self.info.type}, got {got}. "
                f"Convert it with x.astype({self.dtype.name!r})."
            )
        if self.sizes is not None and not _fits(self.sizes, array.shape):
            raise ShapeError(
                f"input {self.info.name!r}: expected shape {_text(self.info.shape)}, got {_text(array.shape)}. "
                "Reshape or resize it."
            )
        return array

    def _array(self, value: Any) -> Any:
        if isinstance(value, onnxruntime.OrtValue):
            value = self._tensor_of(value)
        if isinstance(value, (list, tuple, int, float, str, bytes)):
            try:
                value = np.asarray(value, self.dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise UnpoolError(
                    f"input {self.info.name!r}: expected {self.info.type}, got {error}. Pass an array."
                ) from error
        array = to_numpy(value, f"input {self.info.name!r}")
        is_text = self.dtype == _STRING and array.dtype.kind in "USTO"
        return strings(array, f"input {self.info.name!r}") if is_text else array

    def _tensor_of(self, value: onnxruntime.OrtValue) -> Any:
        if not value.is_tensor():
            raise UnpoolError(
                f"input {self.info.name!r}: expected {self.info.type}, got {value.data_type()}. Pass a tensor."
            )
        return from_ort_value(value)


class Signature:
    """The inputs and outputs of a graph."""

    def __init__(self, graph: Graph, types: Types) -> None:
        self._slots = {value.name: _slot(value.name, value.type) for value in graph.inputs}
        self._defaults = {name: numpy_helper.to_array(tensor) for name, tensor in graph.defaults.items()}
        self.outputs = [_info(value.name, _declared(value, types)) for value in graph.outputs]

    @property
    def inputs(self) -> list[ValueInfo]:
        """The inputs that a caller must feed."""
        return [slot.info for name, slot in self._slots.items() if name not in self._defaults]

    @property
    def optional_inputs(self) -> list[ValueInfo]:
        """The inputs that have a value of their own."""
        return [self._slots[name].info for name in self._defaults]

    def bind(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every input, by name.

        Raises:
            UnpoolError: an input is missing, unknown, or of another type, rank or size.
        """
        if not isinstance(feed, Mapping):
            raise UnpoolError(
                f"run: expected a dict of arrays by input name, got {type(feed).__name__}. "
                f"Pass {{{self.inputs[0].name!r}: x}}."
                if self.inputs
                else f"run: expected an empty dict, the model has no inputs, got {type(feed).__name__}."
            )
        required = [info.name for info in self.inputs]
        missing = [name for name in required if name not in feed]
        unknown = [name for name in feed if name not in self._slots]
        if missing or unknown:
            wrong = [f"{_names(missing)} missing"] * bool(missing) + [f"{_names(unknown)} unknown"] * bool(unknown)
            raise UnpoolError(
                f"run: expected inputs {_names(required)}{self._optional_text()}, got {_names(feed)}: "
                f"{' and '.join(wrong)}. Feed exactly these."
            )
        return self._defaults | {name: self._slots[name].accept(value) for name, value in feed.items()}

    def choose(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The wanted outputs; None and an empty list mean all.

        Raises:
            UnpoolError: the model has no such output.
        """
        have = [info.name for info in self.outputs]
        if not names:
            return tuple(have)
        if isinstance(names, str):
            raise UnpoolError(f"run: expected a list of output names, got the string {names!r}. Pass [{names!r}].")
        unknown = [name for name in names if name not in have]
        if unknown:
            raise UnpoolError(f"run: expected outputs out of {_names(have)}, got {_names(unknown)}. Correct the name.")
        return tuple(names)

    def _optional_text(self) -> str:
        return f" (and, optionally, {_names(self._defaults)})" if self._defaults else ""


def _slot(name: str, type_: onnx.TypeProto) -> Slot:
    return Slot(_info(name, type_), shapes.dtype(type_), shapes.sizes(type_))


def _info(name: str, type_: onnx.TypeProto) -> ValueInfo:
    dims = type_.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]
    return ValueInfo(name, shape, type_names.name(type_))


def _declared(value: onnx.ValueInfoProto, types: Types) -> onnx.TypeProto:
    """The type of an output: a size that inference found, else what the model says of it."""
    declared, found = value.type, types.get(value.name)
    if found is None or declared.WhichOneof("value") not in (None, "tensor_type"):
        return declared
    stated, known = shapes.dims(declared), shapes.dims(found)
    if stated is None or known is None or len(stated) != len(known):
        return declared if known is None else found
    merged = [one if isinstance(one, int) else other or one for one, other in zip(known, stated, strict=True)]
    return shapes.tensor_type(shapes.element(declared) or shapes.element(found), merged)


def _fits(sizes: Sequence[int | None], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(size in (None, have) for size, have in zip(sizes, shape, strict=True))


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def _text(shape: Sequence[int | str | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape) or "scalar"
