"""Prepared calls of public functions, cached by arguments, shapes and types."""

from marshal import dumps
from operator import attrgetter
from typing import Any, TypeAlias

from unpool.arrays import is_on_gpu, like, like_gpu, to_numpy
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, suggest_name
from unpool.execute import CACHE_SIZE, PreparedCall, check_threads, prepare
from unpool.memory import memory_error
from unpool.operators import attributes as read
from unpool.operators import contract, resolve
from unpool.operators.attributes import for_all_axes, is_plain, plain
from unpool.operators.contract import OperatorVersion
from unpool.operators.resolve import Spec
from unpool.shape_cache import on_eviction

CallMode: TypeAlias = tuple[str, str, str, str, int]  # operator, layout, compat, index_space and number of outputs
_LAYOUTS = {"NCHW": "", "NHWC": contract.NHWC}
_WINDOW = ("opset", "kernel_shape", "strides", "pads")
_ACTIVATION = ("activation", "activation_params")
_VALUES = {
    "MaxPool": (*_WINDOW, "dilations", "auto_pad", "ceil_mode", "storage_order", *_ACTIVATION),
    "MaxUnpool": (*_WINDOW, *_ACTIVATION, "output_shape"),
    "ConvTranspose": (*_WINDOW, "dilations", "group", "auto_pad", "output_padding", "output_shape", *_ACTIVATION),
}
_FLAGS = ("ceil_mode", "storage_order")
_DEFAULTS = {"auto_pad": "NOTSET", "ceil_mode": 0, "storage_order": 0, "group": 1}
_NEW = (None, None)

_prepared_calls: dict[Any, PreparedCall] = {}
_gpu_calls: dict[Any, Any] = {}
on_eviction.extend((_prepared_calls.clear, _gpu_calls.clear))
_signature = attrgetter("__class__", "shape", "dtype")
_gpu_signature = attrgetter("__class__", "shape", "dtype", "device", "requires_grad")  # of tensors of torch


def call(
    mode: CallMode,
    values: tuple[Any, ...],
    inputs: tuple[Any, ...],
    threads: int | None,
    out: Any,
    check: str = "later",
) -> Any:
    """The result of a public function.

    `values` are its arguments in the order of _VALUES, `inputs` its tensors, without those omitted at the end; `check`
    is ignored on the CPU, which always checks indices first.
    """
    try:
        try:
            prepared, arrays = _prepared_calls[mode, dumps(values, 2), *map(_signature, inputs)], inputs
        except (KeyError, ValueError, AttributeError, TypeError):
            prepared = None  # prepared below, so that an error there does not show this one as its context
        if prepared is None:
            if inputs and is_on_gpu(inputs[0]):
                return _call_on_gpu(mode, values, inputs, threads, out, check)
            arrays, prepared = _prepare(mode, values, inputs)
        if threads is not None and (type(threads) is not int or threads < 1):
            check_threads(prepared.version, threads)
        if out is not None:
            targets = (
                to_numpy(each, f"{prepared.version.label}: out") for each in _targets(prepared.version, mode, out)
            )
            prepared.run(arrays, tuple(targets), threads)
            return out
        results = prepared.run(arrays, _NEW, threads)
        if arrays is not inputs:
            results = tuple(like(each, inputs[0]) for each in results)
        return results if mode[4] == 2 else results[0]
    except MemoryError as cause:
        raise memory_error(mode[0], inputs, cause) from cause


def _prepare(
    mode: CallMode, values: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[tuple[AnyArray | None, ...], PreparedCall]:
    """The inputs as NumPy arrays, and the call for their shapes and types, which is cached."""
    _check_strings(mode)
    key, arrays = None, numpy_views(inputs)
    values = values if all(map(is_plain, values)) else tuple(map(plain, values))
    if all(map(is_plain, values)):
        # unlike a tuple, the bytes of the values distinguish 1 from 1.0 and from True
        key = (mode, dumps(values, 2), *map(_signature, arrays))
        known = _prepared_calls.get(key)
        if known is not None:
            return arrays, known
    spec = spec_of(mode, values, arrays)
    label = spec.version.label
    arguments = (*inputs, _shape_array(spec, values[-1])) if mode[0] == "MaxUnpool" else inputs
    names = zip(contract.INPUT_NAMES[mode[0]], arguments, strict=False)
    arrays = tuple(None if x is None else to_numpy(x, f"{label}: {name}") for name, x in names)
    prepared = prepare(spec, arrays, mode[4])
    if key is not None:
        if len(_prepared_calls) >= CACHE_SIZE:
            _prepared_calls.clear()
        _prepared_calls[key] = prepared
    return arrays, prepared


def _call_on_gpu(
    mode: CallMode, values: tuple[Any, ...], inputs: tuple[Any, ...], threads: int | None, out: Any, check: str
) -> Any:
    from unpool.execute import gpu

    tensors: Any = inputs
    key: Any = None
    try:
        key = (mode, dumps(values, 2), *[None if x is None else _gpu_signature(x) for x in inputs])
        prepared: Any = _gpu_calls.get(key)
    except (ValueError, AttributeError, TypeError):  # no tensors of torch, or values that are no plain ones
        prepared = None
    if prepared is None:
        x = gpu.tensor_of(mode[0], "X", inputs[0])
        spec = spec_of(mode, values, (x,))
        arguments = (x, inputs[1], _shape_array(spec, values[-1])) if mode[0] == "MaxUnpool" else (x, *inputs[1:])
        prepared, tensors = gpu.prepare_arrays(spec, arguments, mode[4])
        if key is not None and all(map(is_plain, values)):
            if len(_gpu_calls) >= CACHE_SIZE:
                _gpu_calls.clear()
            _gpu_calls[key] = prepared
    else:
        gpu.raise_known()
    check_threads(prepared.version, threads)
    targets = _NEW[: mode[4]] if out is None else _targets(prepared.version, mode, out)
    results = prepared.run(tensors, targets, check)
    if out is not None:
        return out
    results = tuple(like_gpu(each, inputs[0]) for each in results)
    return results if mode[4] == 2 else results[0]


def numpy_views(inputs: tuple[Any, ...]) -> tuple[AnyArray | None, ...]:
    """The inputs as NumPy arrays; empty if one is not an array: then `_prepare` raises an error with its name."""
    try:
        return tuple(to_numpy(x, "") for x in inputs)
    except UnpoolError:
        return ()


def _check_strings(mode: CallMode) -> None:
    operator, layout, compat, index_space, _ = mode
    if not isinstance(layout, str) or not isinstance(compat, str) or not isinstance(index_space, str):
        fact = f"layout, compat and index_space are strings, got {layout!r}, {compat!r} and {index_space!r}"
        raise UnpoolError(f"{operator}: {fact}. Pass strings.")


def _targets(version: OperatorVersion, mode: CallMode, out: Any) -> tuple[Any, ...]:
    if mode[4] == 1:
        return (out,)
    if not isinstance(out, tuple) or len(out) != 2:
        raise UnpoolError(f"{version.label}: out is a pair (y, indices) with return_indices, got {type(out).__name__}.")
    return out


def spec_of(mode: CallMode, values: tuple[Any, ...], arrays: tuple[Any, ...]) -> Spec:
    """The Spec of the arguments of a public function; of the tensors only the rank of the first one is used."""
    _check_strings(mode)
    operator, layout, compat, index_space, _ = mode
    rank = max(1, arrays[0].ndim - 2) if arrays and arrays[0] is not None else 1
    if layout not in _LAYOUTS:
        raise UnpoolError(
            f"{operator}: layout is one of {', '.join(_LAYOUTS)}; got {layout!r}. {suggest_name(layout, _LAYOUTS)}"
        )
    arguments = dict(zip(_VALUES[operator], values, strict=True))
    opset = arguments.pop("opset")
    if operator == "MaxUnpool":
        del arguments["output_shape"]
    attributes = {name: _attribute(name, for_all_axes(name, plain(value), rank)) for name, value in arguments.items()}
    domain = _LAYOUTS[layout]
    return resolve.spec(operator, attributes, domain=domain, opset=opset, compat=compat, index_space=index_space)


def _shape_array(spec: Spec, output_shape: Any) -> Any:
    return read.shape_tensor(spec.version, output_shape) if isinstance(output_shape, (list, tuple)) else output_shape


def _attribute(name: str, value: Any) -> Any:
    """The value of an attribute; None, not set, for its default: so a version without it accepts the call."""
    value = int(value) if isinstance(value, bool) and name in _FLAGS else value
    default = _DEFAULTS.get(name)
    return None if isinstance(value, type(default)) and value == default else value
