"""Computes the nodes of onnxruntime's sessions: the functions that the library calls (`planner.h`).

A node is described once, when its kernel is created, and gets a spec. Every run passes the shapes and the addresses of
its inputs; the prepared call for them writes to the outputs that onnxruntime allocates. Jobs of kernels run in the
threads of the session.
"""

import ctypes
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from unpool import execute
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError, UnpoolError, UnsupportedError
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.execute.plans import ALL_FALLBACKS, ForeignPool, Kind, Operand, use_pool
from unpool.memory import RuntimeOutput
from unpool.onnxruntime import library, plans
from unpool.onnxruntime.kernel_table import plan_by_kernels
from unpool.operators import resolve, unpool_domain
from unpool.operators.contract import DOMAINS, AttributeType
from unpool.operators.conv import ConvSpec
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.unpool_domain import Settings, Spec

MAX_CALLS = 8  # prepared calls that a node keeps, one for each combination of shapes of its inputs
MAX_SHARED = 256  # plans that equal nodes share, of this session or another one
MAX_INPUTS, MAX_ATTRIBUTES, MAX_RANK, MESSAGE_BYTES = 8, 24, 64, 4096
FAIL, INVALID_ARGUMENT, NOT_IMPLEMENTED = 1, 2, 9  # codes of OrtStatus
CODES = {IndicesError: INVALID_ARGUMENT, UnsupportedError: NOT_IMPLEMENTED}
DTYPES = {
    number: np.dtype(kind)
    for number, kind in {
        1: np.float32, 2: np.uint8, 3: np.int8, 7: np.int64, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16
    }.items()
}  # fmt: skip
"""By number of onnx.TensorProto."""
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


_ENGINE = b"Engine"  # the operator of `engine.py`
_DOMAINS = (*DOMAINS, unpool_domain.DOMAIN)  # as in `operators.h`
_WRITABLE = 0x200  # PyBUF_WRITE
_memory_view: Any = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype, _memory_view.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


class _Value(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int64), ("count", ctypes.c_int64), ("values", ctypes.c_void_p)
    ]  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("type", ctypes.c_int64), ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * MAX_RANK),
    ]  # fmt: skip


_SETTINGS = 6  # of a session, in `node.h`
_KINDS = AttributeType.INT, AttributeType.INTS, AttributeType.FLOAT, AttributeType.FLOATS, AttributeType.STRING
_NOT_SET, _OTHER_TYPE = -1, -2  # in place of the count of an attribute


class _Node(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int64), ("domain", ctypes.c_int64), ("outputs", ctypes.c_int64), ("attributes", ctypes.c_int64),
        ("operator", ctypes.c_char_p), ("name", ctypes.c_char_p), ("settings", ctypes.c_char_p * _SETTINGS),
        ("values", _Value * MAX_ATTRIBUTES), ("constants", _Tensor * MAX_INPUTS),
    ]  # fmt: skip


class _NodeRun(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int64), ("inputs", ctypes.c_int64), ("tensors", ctypes.POINTER(_Tensor)),
        ("context", ctypes.c_void_p), ("message", ctypes.c_void_p),
    ]  # fmt: skip


class _Answer(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int64), ("blob", ctypes.c_char_p), ("size", ctypes.c_int64), ("kernels", ctypes.c_void_p),
        ("constants", ctypes.c_void_p), ("fallbacks", ctypes.c_int64),
    ]  # fmt: skip


_FORGET = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class PlanRecord(NamedTuple):
    """What the planner was asked for a node."""

    inputs: tuple[int, ...]  # numbers of those that its compiled node keeps: all but constants that are packed
    key: tuple[int, ...]  # that describes these
    plan: plans.NodePlan | None


@dataclass
class Node:
    """A node of a session."""

    name: str
    spec: Spec
    outputs: int
    constants: dict[int, AnyArray]
    calls: dict[Hashable, execute.PreparedCall]


_Encoded: TypeAlias = tuple[plans.PlanBytes | None, AnyArray]
_nodes: dict[int, Node] = {}
_engines: dict[int, int] = {}  # the number of its engine, by node
_shared: dict[Hashable, _Encoded] = {}  # by all that the plan of a node without constants depends on
_recordings: list[dict[str, list[PlanRecord]]] = []
_plans: dict[int, Any] = {}  # what plans refer to


class _OtherType:
    def __repr__(self) -> str:
        return "an attribute of another type"


def _value(described: _Value) -> Any:
    """An attribute that is set."""
    kind, count, address = _KINDS[described.kind], described.count, described.values
    if count == _OTHER_TYPE:
        return _OtherType()
    if kind is AttributeType.STRING:
        return ctypes.string_at(address, count).decode("utf-8", "replace")
    number = ctypes.c_int64 if kind in (AttributeType.INT, AttributeType.INTS) else ctypes.c_float
    values = tuple((number * count).from_address(address))
    return values[0] if kind in (AttributeType.INT, AttributeType.FLOAT) else values


def _attributes(described: _Node) -> dict[str, Any]:
    """The attributes that are set, under their names."""
    values = described.values[: described.attributes]
    return {each.name.decode(): _value(each) for each in values if each.count != _NOT_SET}


def _array(tensor: _Tensor) -> AnyArray | None:
    """A view of a tensor of onnxruntime; None where a node has none."""
    if not tensor.data:
        return None
    return _view(tensor.data, tuple(tensor.dims[: tensor.rank]), DTYPES[tensor.type], np.ndarray)


def _view(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], kind: type[AnyArray]) -> AnyArray:
    if 0 in shape:
        return np.empty(shape, dtype).view(kind)
    return kind(shape, dtype, buffer=_memory_view(address, math.prod(shape) * dtype.itemsize, _WRITABLE))


def _report(error: BaseException, label: str, message: int) -> int:
    """Write an error to the room for it, and return its code."""
    text = str(error) if isinstance(error, UnpoolError) else f"{type(error).__name__}: {error}"
    words = f"{label}{text}".encode()[: MESSAGE_BYTES - 1]
    ctypes.memmove(message, words + b"\0", len(words) + 1)
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAIL)


def _forget(number: int) -> None:
    _nodes.pop(number, None)
    _engines.pop(number, None)
    _plans.pop(number, None)


def _spec(operator: str, domain: str, attributes: dict[str, Any], settings: Settings) -> Spec:
    """The checked attributes of a node."""
    if domain == unpool_domain.DOMAIN:
        return unpool_domain.spec(operator, attributes, settings)
    result = resolve.spec(
        operator, attributes, domain=domain, opset=settings.opset, compat=settings.compat,
        index_space=settings.index_space,
    )  # fmt: skip
    return result._replace(is_exact=settings.exact) if isinstance(result, ConvTransposeSpec) else result


def create(node: int, message: int) -> int:
    """Describe the node at an address; OK or a code of OrtStatus, and a message."""
    described = _Node.from_address(node)
    try:
        _library().unpool_forget(_FORGET_NODE)
        if described.operator == _ENGINE:
            _engines[described.id] = int(_attributes(described).get("engine", -1))
            return 0
        exact, compat, index_space, opset, *_ = (text.decode() for text in described.settings)
        settings = unpool_domain.Settings(
            int(opset) if opset else None, compat or "spec", index_space or "auto", exact == "1"
        )
        spec = _spec(described.operator.decode(), _DOMAINS[described.domain], _attributes(described), settings)
        constants = {
            number: array.copy() if _recordings else array  # what is recorded outlives the session
            for number in range(1, MAX_INPUTS)
            if (array := _array(described.constants[number])) is not None
        }
        for array in constants.values():
            array.flags.writeable = False  # onnxruntime's memory, which lives as long as the node
        if 1 in constants:
            spec, constants[1] = execute.bind_weights(spec, constants[1])
        name = described.name.decode("utf-8", "replace")
        _nodes[described.id] = Node(name, spec, described.outputs, constants, {})
    except Exception as error:
        return _report(error, "", message)
    return 0


def _inputs(node: Node, call: Any) -> list[AnyArray | None]:
    return [
        node.constants[number] if number in node.constants else _array(call.tensors[number])
        for number in range(call.inputs)
    ]


def _record(node: Node, inputs: Sequence[AnyArray | None], plan: plans.NodePlan | None) -> PlanRecord:
    """The inputs of the compiled node, with what `key_of` in node_run.c writes for them."""
    is_packed = isinstance(node.spec, (ConvTransposeSpec, ConvSpec))
    kept = [number for number, x in enumerate(inputs) if not (is_packed and (x is None or number in node.constants))]
    key: list[int] = []
    for number in kept:
        x = inputs[number]
        if x is None:
            key += [-1, 0]
            continue
        key += [NUMBERS[x.dtype], x.ndim, *x.shape]
        if isinstance(node.spec, MaxUnpoolSpec) and number == 2:
            key += x.tolist()
    return PlanRecord(tuple(kept), tuple(key), plan)


@contextmanager
def recording(found: dict[str, list[PlanRecord]]) -> Iterator[None]:
    """Note what the planner is asked for the nodes with these names."""
    _recordings.append(found)
    plan_by_kernels(False)
    try:
        yield
    finally:
        _recordings.remove(found)
        plan_by_kernels(not _recordings)


def plan(run: int, key: int, count: int, answer: int) -> int:
    """Write the plan for the inputs of a run to an answer, for a node that `create` described; else as that."""
    call, result = _NodeRun.from_address(run), _Answer.from_address(answer)
    try:
        _library().unpool_forget(_FORGET_NODE)
        node, words = _nodes[call.id], tuple((ctypes.c_int64 * count).from_address(key))
        identity = None if node.constants or _recordings else (node.spec, node.outputs, words)
        is_packed = 1 in node.constants and isinstance(node.spec, (ConvTransposeSpec, ConvSpec))
        if _recordings or not is_packed:  # a recorded plan is the only one
            result.fallbacks = ALL_FALLBACKS
        encoded, kernels = _shared.get(identity) or _encode(node, _inputs(node, call), words, result.fallbacks)
        if identity is not None:
            if len(_shared) >= MAX_SHARED:
                _shared.clear()
            _shared[identity] = encoded, kernels
        result.size = 0
        if encoded is None:
            return 0
        constants = np.array([each.ctypes.data for each in encoded.constants], np.int64)
        result.blob, result.size = encoded.blob, len(encoded.blob)
        result.kernels, result.constants = kernels.ctypes.data, constants.ctypes.data
        _plans[result.id] = encoded.constants, encoded.blob, kernels, constants
    except Exception as error:
        return _report(error, "", call.message)
    return 0


def _encode(node: Node, inputs: Sequence[AnyArray | None], key: tuple[int, ...], fallbacks: int) -> _Encoded:
    """The plan of a node for its inputs, None where there is none, and the addresses of its kernels."""
    prepared = execute.prepare(node.spec, inputs, node.outputs)
    operands = [
        None if x is None else
        Operand(
            Kind.CONSTANT if number in node.constants else Kind.INPUT, number, x.shape, x.dtype,
            node.constants.get(number),
        )
        for number, x in enumerate(inputs)
    ]  # fmt: skip
    outputs = tuple(
        Operand(Kind.OUTPUT, number, output.shape, output.dtype) for number, output in enumerate(prepared.outputs)
    )
    more = (fallbacks,) if isinstance(prepared, PreparedConvTranspose) else ()
    steps = prepared.steps(operands, outputs, *more)
    plan = None if steps is None else plans.NodePlan(node.spec.version.label, len(inputs), outputs, steps)
    for recording in _recordings:
        if node.name in recording:
            recording[node.name].append(_record(node, inputs, plan))
    if plan is None:
        return None, np.empty(0, np.int64)
    encoded = plans.encode(plan, key)
    return encoded, np.array([step.kernel.c_entry(step.sample()) for step in encoded.kernels], np.int64)


def compute(run: int) -> int:
    """Compute the outputs of a run without a plan; else as `plan`."""
    call = _NodeRun.from_address(run)
    try:
        if call.id in _engines:
            return _compute_engine(run, call)
        node = _nodes[call.id]
        inputs = _inputs(node, call)
        key = tuple([None if x is None else (x.shape, x.dtype) for x in inputs])
        prepared = node.calls.get(key)
        if prepared is None or isinstance(node.spec, MaxUnpoolSpec):
            prepared = execute.prepare(node.spec, inputs, node.outputs)
            if len(node.calls) >= MAX_CALLS:
                node.calls.clear()
            node.calls[key] = prepared
        outputs = []
        for number, output in enumerate(prepared.outputs):
            outputs.append(_output(run, number, output.shape, output.dtype))
        with use_pool(_session_threads()):
            prepared.run(inputs, outputs, None)
    except _RefusedOutput:
        return FAIL
    except BaseException as error:
        return _report(error, "", call.message)
    return 0


def _compute_engine(run: int, call: _NodeRun) -> int:
    """Compute the outputs of a node by its engine."""
    from unpool.onnxruntime.engine import dtype_of, find_engine  # loads onnx

    engine, inputs = find_engine(_engines[call.id]), []
    for number in range(call.inputs):
        tensor = call.tensors[number]
        array = _view(tensor.data, tuple(tensor.dims[: tensor.rank]), dtype_of(tensor.type), np.ndarray)
        array.flags.writeable = False
        inputs.append(array)
    engine.compute(inputs, lambda number, shape: _output(run, number, shape, engine.output_dtypes[number]))
    return 0


class _RefusedOutput(Exception):  # noqa: N818  no error of its own: the library has written the message
    """onnxruntime refuses the shape of an output."""


def _output(run: int, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """The memory of an output of the running node."""
    address = _library().unpool_output(run, number, len(shape), (ctypes.c_int64 * len(shape))(*shape))
    if not address:
        raise _RefusedOutput
    return _view(address, shape, dtype, RuntimeOutput)


_FORGET_NODE = _FORGET(_forget)


@cache
def _library() -> Any:
    """The library, with the types of what is called here."""
    loaded: Any = ctypes.CDLL(str(library.PATH))
    loaded.unpool_output.restype = ctypes.c_void_p
    loaded.unpool_output.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return loaded


@cache
def _session_threads() -> ForeignPool:
    return ForeignPool(ctypes.cast(_library().unpool_run_parts, ctypes.c_void_p).value or 0)
