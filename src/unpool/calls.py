"""Prepared calls of public functions, found again by arguments, shapes and types."""

from collections.abc import Mapping, Sequence
from marshal import dumps
from operator import attrgetter
from typing import Any, TypeAlias

from unpool.arrays import is_on_gpu, like, like_gpu, to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, suggest_name
from unpool.execute import PreparedCall, check_threads, prepare
from unpool.memory import memory_error
from unpool.operators import attributes as read
from unpool.operators import contract, resolve
from unpool.operators.attributes import for_all_axes, is_plain, plain
from unpool.operators.contract import OperatorVersion
from unpool.operators.registry import OPERATORS, OPTIONS
from unpool.operators.resolve import Spec
from unpool.shape_cache import add_shortcut, shortcuts

Function: TypeAlias = tuple[str, int, str, str, str]
"""Operator, number of outputs, and OPTIONS."""

_LAYOUTS = {"NCHW": "", "NHWC": contract.NHWC}
_FLAGS = ("ceil_mode", "storage_order")
_NEW = (None, None)

_signature = attrgetter("__class__", "shape", "dtype")
_gpu_signature = attrgetter("__class__", "shape", "dtype", "device", "requires_grad")  # of tensors of torch


def call(
    operator: str,
    values: tuple[Any, ...],
    options: tuple[str, str, str],
    inputs: tuple[Any, ...],
    outputs: int,
    threads: int | None,
    out: Any,
    check: str = "later",
) -> Any:
    """The result of a public function.

    `values` are its arguments in the order of `Operator.parameters`, `options` those of OPTIONS, `inputs` its tensors,
    without those omitted at the end; `check` is ignored on the CPU, which always checks indices first.
    """
    try:
        try:
            prepared = shortcuts[operator, outputs, *options, dumps(values, 2), *map(_signature, inputs)]
            arrays = inputs
        except (KeyError, ValueError, AttributeError, TypeError):
            prepared = None  # prepared below, so that an error there does not show this one as its context
        if prepared is None:
            if inputs and is_on_gpu(inputs[0]):
                return _call_on_gpu((operator, outputs, *options), values, inputs, (threads, out, check))
            arrays, prepared = _prepare((operator, outputs, *options), values, inputs)
        if threads is not None and (type(threads) is not int or threads < 1):
            check_threads(prepared.version, threads)
        if out is not None:
            version = prepared.version
            targets = (to_numpy(each, f"{version.label}: out") for each in _targets(version, outputs, out))
            prepared.run(arrays, tuple(targets), threads)
            return out
        results = prepared.run(arrays, _NEW, threads)
        if arrays is not inputs:
            results = tuple(like(each, inputs[0]) for each in results)
        return results if outputs == 2 else results[0]
    except MemoryError as cause:
        raise memory_error(operator, inputs, cause) from cause


def _prepare(
    function: Function, values: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[tuple[AnyArray | None, ...], PreparedCall]:
    """The inputs as NumPy arrays, and the call for their shapes and types, which is kept."""
    operator, outputs, *options = function
    arguments = named_arguments(operator, values, options)
    key, arrays = None, numpy_views(inputs)
    values = values if all(map(is_plain, values)) else tuple(map(plain, values))
    if all(map(is_plain, values)) and all(isinstance(each, str) for each in options):
        # unlike a tuple, the bytes of the values distinguish 1 from 1.0 and from True
        key = (*function, dumps(values, 2), *map(_signature, arrays))
        known = shortcuts.get(key)
        if known is not None:
            return arrays, known
    spec = spec_of(operator, arguments, arrays)
    version = spec.version
    names = zip(version.inputs, (*inputs, *_value_inputs(version, arguments)), strict=False)
    arrays = tuple(None if x is None else to_numpy(x, f"{version.label}: {name}") for name, x in names)
    prepared = prepare(spec, arrays, outputs)
    if key is not None:
        add_shortcut(key, prepared)
    return arrays, prepared


def _call_on_gpu(
    function: Function, values: tuple[Any, ...], inputs: tuple[Any, ...], run: tuple[int | None, Any, str]
) -> Any:
    from unpool.execute import gpu

    (operator, outputs, *options), (threads, out, check) = function, run
    tensors: Any = inputs
    key: Any = None
    try:
        key = (*function, dumps(values, 2), *[None if x is None else _gpu_signature(x) for x in inputs])
        prepared: Any = shortcuts.get(key)
    except (ValueError, AttributeError, TypeError):  # no tensors of torch, or values that are no plain ones
        prepared = None
    if prepared is None:
        arguments, x = named_arguments(operator, values, options), gpu.tensor_of(operator, "X", inputs[0])
        spec = spec_of(operator, arguments, (x,))
        every = (x, *inputs[1:], *_value_inputs(spec.version, arguments))
        prepared, tensors = gpu.prepare_arrays(spec, every, outputs)
        if key is not None and all(map(is_plain, values)):
            add_shortcut(key, prepared)
    else:
        gpu.raise_known()
    check_threads(prepared.version, threads)
    targets = _NEW[:outputs] if out is None else _targets(prepared.version, outputs, out)
    results = prepared.run(tensors, targets, check)
    if out is not None:
        return out
    results = tuple(like_gpu(each, inputs[0]) for each in results)
    return results if outputs == 2 else results[0]


def named_arguments(operator: str, values: tuple[Any, ...], options: Sequence[str]) -> dict[str, Any]:
    """The arguments of a public function by name."""
    return dict(zip((*OPERATORS[operator].parameters, *OPTIONS), (*values, *options), strict=True))


def numpy_views(inputs: tuple[Any, ...]) -> tuple[AnyArray | None, ...]:
    """The inputs as NumPy arrays; empty if one is not an array: then `_prepare` raises an error with its name."""
    try:
        return tuple(to_numpy(x, "") for x in inputs)
    except UnpoolError:
        return ()


def _targets(version: OperatorVersion, outputs: int, out: Any) -> tuple[Any, ...]:
    if outputs == 1:
        return (out,)
    if not isinstance(out, tuple) or len(out) != 2:
        raise UnpoolError(f"{version.label}: out is a pair (y, indices) with return_indices, got {type(out).__name__}.")
    return out


def spec_of(operator: str, arguments: Mapping[str, Any], arrays: tuple[Any, ...]) -> Spec:
    """The Spec of the arguments of a public function; of the tensors only the rank of the first one is used."""
    layout, compat, index_space = map(arguments.__getitem__, OPTIONS)
    if not isinstance(layout, str) or not isinstance(compat, str) or not isinstance(index_space, str):
        fact = f"layout, compat and index_space are strings, got {layout!r}, {compat!r} and {index_space!r}"
        raise UnpoolError(f"{operator}: {fact}. Pass strings.")
    rank = max(1, arrays[0].ndim - 2) if arrays and arrays[0] is not None else 1
    if layout not in _LAYOUTS:
        raise UnpoolError(
            f"{operator}: layout is one of {', '.join(_LAYOUTS)}; got {layout!r}. {suggest_name(layout, _LAYOUTS)}"
        )
    attributes = {
        name: _attribute(name, for_all_axes(name, plain(value), rank))
        for name, value in arguments.items()
        if name not in ("opset", *OPTIONS, *OPERATORS[operator].versions[-1].inputs)
    }
    domain, opset = _LAYOUTS[layout], arguments["opset"]
    return resolve.spec(operator, attributes, domain=domain, opset=opset, compat=compat, index_space=index_space)


def _value_inputs(version: OperatorVersion, arguments: Mapping[str, Any]) -> list[Any]:
    """The inputs that public functions take as lists, as int64 tensors."""
    values = [arguments[name] for name in version.inputs if name in arguments]
    return [read.shape_tensor(version, each) if isinstance(each, (list, tuple)) else each for each in values]


def _attribute(name: str, value: Any) -> Any:
    """The value of an attribute; None, not set, for its default: so a version without it accepts the call."""
    value = int(value) if isinstance(value, bool) and name in _FLAGS else value
    default = contract.DEFAULTS.get(name)
    return None if isinstance(value, type(default)) and value == default else value
