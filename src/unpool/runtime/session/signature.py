"""The inputs and outputs of a model with its metadata, and the check of a caller's inputs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.arrays import to_numpy
from unpool.display import display_line, format_shape
from unpool.errors import ShapeError, UnpoolError, suggest_name
from unpool.runtime.backends.ort_values import from_ort_value, make_ort_value
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph, has_type
from unpool.runtime.graph.shapes import Types, to_strings
from unpool.runtime.requirements import onnxruntime

if TYPE_CHECKING:
    from unpool.runtime.backends.cuda import CudaMemory

NO_VERSION = 2**63 - 1  # onnxruntime's version of a model that states none
_STRING = np.dtype(object)


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]

    @classmethod
    def of_model(cls, model: onnx.ModelProto) -> "ModelMetadata":
        """The metadata in a ModelProto."""
        graph, version = model.graph, model.model_version if model.HasField("model_version") else NO_VERSION
        entries = {entry.key: entry.value for entry in model.metadata_props}
        texts = model.producer_name, graph.name, model.domain, model.doc_string, graph.doc_string
        return cls(*texts, version, entries)

    @classmethod
    def of_session(cls, session: onnxruntime.InferenceSession) -> "ModelMetadata":
        """The metadata that a session of onnxruntime tells."""
        meta = session.get_modelmeta()
        return cls(**{field.name: getattr(meta, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of the model."""

    name: str
    shape: list[int | str | None]  # sizes and names of dimensions; empty for a scalar, and where the rank is unknown
    type: str  # onnxruntime's name of it, such as "tensor(float)"

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


@dataclass(frozen=True)
class AcceptedInput:
    """The arrays that an input accepts."""

    info: ValueInfo
    dtype: np.dtype[Any] | None  # None for an input that is no tensor, whose values pass unchecked
    sizes: tuple[int | None, ...] | None  # None where the rank is dynamic

    def accept(self, value: Any, cuda: "CudaMemory | None") -> Any:
        """The value as the array that nodes read, if possible without a copy; a tensor if it is in GPU memory."""
        if self.dtype is None:
            return value
        tensor = None if cuda is None else cuda.as_tensor(value, f"input {self.info.name!r}")
        array: Any = self._array(value) if tensor is None else tensor
        kind: np.dtype[Any] = array.dtype if cuda is None else cuda.kind(array)
        if kind != self.dtype or not kind.isnative:
            got = kind.name if kind.isnative else f"{kind.name} in foreign byte order"
            raise UnpoolError(
                f"Unexpected input data type: {display_line(self.info.name)} is {got}, expected {self.info.type}. "
                f"Convert it with x.astype({self.dtype.name!r})."
            )
        shape, sizes = array.shape, self.sizes
        is_of_rank = sizes is None or len(shape) == len(sizes)
        if not is_of_rank or any(size not in (None, have) for size, have in zip(sizes or (), shape, strict=False)):
            raise ShapeError(
                f"{'Got invalid dimensions' if is_of_rank else 'Invalid rank'} for input: "
                f"{display_line(self.info.name)} has shape {format_shape(shape)}, expected "
                f"{format_shape(self.info.shape)}. {'Resize or pad' if is_of_rank else 'Reshape'} it."
            )
        return array

    def _array(self, value: Any) -> Any:
        if isinstance(value, onnxruntime.OrtValue):
            if not value.is_tensor():
                raise UnpoolError(
                    f"input {self.info.name!r}: expected {self.info.type}, got {value.data_type()}. Pass a tensor."
                )
            value = from_ort_value(value)
        if isinstance(value, (list, tuple, int, float, str, bytes)):
            try:
                value = np.asarray(value, self.dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise UnpoolError(
                    f"input {self.info.name!r}: expected {self.info.type}, got {error}. Pass an array."
                ) from error
        array = to_numpy(value, f"input {self.info.name!r}")
        is_text = self.dtype == _STRING and array.dtype.kind in "USTOV"
        return to_strings(array, f"input {self.info.name!r}") if is_text else array


class Signature:
    """The inputs and outputs of a model; `defaults` are values of the inputs that may be omitted."""

    cuda: "CudaMemory | None" = None
    owner: object = None  # of the OrtValues that no other session may read

    def __init__(
        self, inputs: Mapping[str, AcceptedInput], defaults: Mapping[str, Any], outputs: Sequence[ValueInfo]
    ) -> None:
        self._accepted_inputs, self._defaults = dict(inputs), dict(defaults)
        self._required = [name for name in inputs if name not in defaults]
        self._optional = {name: None for name, accepted in inputs.items() if accepted.info.type.startswith("optional(")}
        self.outputs = list(outputs)

    @classmethod
    def of_graph(cls, graph: Graph, types: Types) -> "Signature":
        """The signature of a graph, with the types of its values."""
        inputs = {}
        for name, type_ in ((value.name, value.type) for value in graph.inputs):
            inputs[name] = AcceptedInput(_info(name, type_), shapes.dtype(type_), shapes.static_dims(type_))
        defaults = {name: numpy_helper.to_array(tensor) for name, tensor in graph.defaults.items()}
        return cls(inputs, defaults, [_info(value.name, _declared(value, types)) for value in graph.outputs])

    @classmethod
    def of_session(cls, session: onnxruntime.InferenceSession) -> "Signature":
        """The signature of a session of onnxruntime; inputs that may be omitted have the default None."""
        optional = session.get_overridable_initializers()
        inputs = {}
        for info in _infos((*session.get_inputs(), *optional)):
            sizes = tuple(size if isinstance(size, int) else None for size in info.shape)
            dtype = shapes.dtype(shapes.parse_type(info.type))
            inputs[info.name] = AcceptedInput(info, dtype, sizes or None)  # a scalar looks like a dynamic rank
        return cls(inputs, dict.fromkeys(info.name for info in optional), _infos(session.get_outputs()))

    @property
    def inputs(self) -> list[ValueInfo]:
        """The required inputs."""
        return [self._accepted_inputs[name].info for name in self._required]

    @property
    def optional_inputs(self) -> list[ValueInfo]:
        """The inputs with default values."""
        return [self._accepted_inputs[name].info for name in self._defaults]

    def accept(self, name: str, value: Any) -> Any:
        """The value of an input as nodes read it."""
        return self._accepted_inputs[name].accept(value, self.cuda)

    def bind(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every input, by name; None omits an input of optional type or with a default."""
        self.require_all(feed)
        self.require_own(feed.values())
        values = {name: self.accept(name, value) for name, value in feed.items() if value is not None}
        return {**self._optional, **self._defaults, **values}

    def require_all(self, feed: Mapping[str, Any]) -> None:
        """Refuse a feed that lacks an input, or has an unknown one."""
        if not isinstance(feed, Mapping):
            example = f"{{{self.inputs[0].name!r}: x}}" if self.inputs else "{}, because the model needs no input"
            kind = type(feed).__name__
            raise UnpoolError(f"run: expected a dict of arrays by input name, got {kind}. Pass {example}.")
        missing = [name for name in self._required if feed.get(name) is None and name not in self._optional]
        unknown = [name for name in feed if name not in self._accepted_inputs]
        if missing:
            fed = [name for name in feed if feed[name] is not None]
            more = f", which has the unknown {_names(unknown)}" if unknown else ""
            raise UnpoolError(
                f"run: Required inputs ({missing}) are missing from input feed ({fed}){more}. {self._advice()}"
            )
        if unknown:
            raise UnpoolError(f"run: Invalid input name: {_bare(unknown)}. {self._advice()}")

    def require_own(self, values: Iterable[Any]) -> None:
        """Refuse OrtValues in the memory of another session."""
        for value in values:
            if isinstance(value, onnxruntime.OrtValue) and getattr(value, "_session", None) not in (None, self.owner):
                raise UnpoolError(
                    "OrtValue: expected one that belongs to this session or to none, got one of another session: it "
                    "must be used with the session that created it. Make it by OrtValue.ortvalue_from_numpy."
                )

    def value_of(self, value: onnxruntime.OrtValue) -> Any:
        """The tensor of an OrtValue in GPU memory, or the array of one in other memory; both share its memory."""
        tensor = None if self.cuda is None else self.cuda.as_tensor(value, "OrtValue")
        return from_ort_value(value) if tensor is None else tensor

    def choose(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The wanted outputs; None and an empty list mean all."""
        have = [info.name for info in self.outputs]
        if not names:
            return tuple(have)
        if isinstance(names, str) or not isinstance(names, Iterable):
            kind = "the string" if isinstance(names, str) else f"a {type(names).__name__},"
            raise error_class(UnpoolError, TypeError)(
                f"run: expected a list of output names, got {kind} {names!r}. Pass [{names!r}]."
            )
        unknown = [name for name in names if name not in have]
        if unknown:
            advice = suggest_name(unknown[0], have)
            raise UnpoolError(
                f"run: Invalid output name: {_bare(unknown)}, expected outputs out of {_names(have)}. {advice}"
            )
        return tuple(names)

    def as_ort_values(self, names: Sequence[str], values: Sequence[Any]) -> list[onnxruntime.OrtValue]:
        """Outputs as independent OrtValues, which share the memory of arrays of numbers."""
        kinds = {info.name: info.type for info in self.outputs}
        pairs = zip(names, values, strict=True)
        return [make_ort_value(value, kinds[name], f"output {name!r}") for name, value in pairs]

    def _advice(self) -> str:
        """The end of an error about the names in a feed."""
        optional = f" (and, optionally, {_names(self._defaults)})" if self._defaults else ""
        return f"Feed exactly {_names(self._required)}{optional}." if self._required or optional else "Feed nothing."


def _infos(values: Iterable[Any]) -> list[ValueInfo]:
    return [ValueInfo(value.name, list(value.shape), value.type) for value in values]


def _info(name: str, type_: onnx.TypeProto) -> ValueInfo:
    dims = type_.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]
    return ValueInfo(name, shape, shapes.type_name(type_))


def _declared(value: onnx.ValueInfoProto, types: Types) -> onnx.TypeProto:
    """The type of an output; each size is that of inference or, without one, that of the model."""
    declared, inferred = value.type, types.get(value.name)
    if inferred is None or declared.WhichOneof("value") not in (None, "tensor_type"):
        return declared
    if not has_type(value):
        return inferred
    stated, known = shapes.dims(declared), shapes.dims(inferred)
    if stated is None or known is None or len(stated) != len(known):
        return declared if known is None else inferred
    sizes = [size if isinstance(size, int) else other or size for size, other in zip(known, stated, strict=True)]
    return shapes.tensor_type(shapes.element(declared) or shapes.element(inferred), sizes)


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def _bare(names: Iterable[Any]) -> str:
    return ", ".join(display_line(str(name)) for name in names)
