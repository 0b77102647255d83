"""A public function's arguments become a prepared call, the same one again for the same arguments, shapes and types."""

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
from unpool.operators.arguments import for_all_axes, is_plain, plain
from unpool.operators.contract import Row
from unpool.operators.resolve import Spec
from unpool.shape_cache import on_eviction

How: TypeAlias = tuple[str, str, str, str, int]
"""Operator, layout, compat, index_space and number of outputs."""

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

_known: dict[Any, PreparedCall] = {}
on_eviction.append(_known.clear)
_signature = attrgetter("__class__", "shape", "dtype")


def call(
    how: How, values: tuple[Any, ...], inputs: tuple[Any, ...], threads: int | None, out: Any, check: str = "later"
) -> Any:
    """Run a public function.

    Args:
        how: what it runs.
        values: its other arguments as given, in the order of _VALUES.
        inputs: its tensors as given, without those left out at the end.
        threads: as given.
        out: as given.
        check: as given; of no use on the CPU, which always looks at indices first.

    Returns:
        What the function returns.
    """
    try:
        try:
            prepared, arrays = _known[how, dumps(values, 2), *map(_signature, inputs)], inputs
        except (KeyError, ValueError, AttributeError, TypeError):
            prepared = None  # and go on outside, so that an error does not show this one above it
        if prepared is None:
            if inputs and is_on_gpu(inputs[0]):
                return _call_on_gpu(how, values, inputs, threads, out, check)
            arrays, prepared = _prepare(how, values, inputs)
        if threads is not None and (type(threads) is not int or threads < 1):
            check_threads(prepared.row, threads)
        if out is not None:
            prepared.run(arrays, _targets(prepared.row, how, out), threads)
            return out
        made = prepared.run(arrays, _NEW, threads)
        if arrays is not inputs:
            made = tuple(like(each, inputs[0]) for each in made)
        return made if how[4] == 2 else made[0]
    except MemoryError as cause:
        raise memory_error(how[0], inputs, cause) from cause


def _prepare(
    how: How, values: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[tuple[AnyArray | None, ...], PreparedCall]:
    """The inputs as NumPy arrays, and the call for their shapes and types, which is remembered.

    Values are compared by their bytes: unlike a tuple, those tell 1 from 1.0 and from True.
    """
    _check_words(how)
    key, arrays = None, viewed(inputs)
    values = values if all(map(is_plain, values)) else tuple(map(plain, values))
    if all(map(is_plain, values)):
        key = (how, dumps(values, 2), *map(_signature, arrays))
        known = _known.get(key)
        if known is not None:
            return arrays, known
    spec = spec_of(how, values, arrays)
    label = spec.row.label
    given = (*inputs, _shape_array(spec, values[-1])) if how[0] == "MaxUnpool" else inputs
    names = zip(contract.INPUT_NAMES[how[0]], given, strict=False)
    arrays = tuple(None if x is None else to_numpy(x, f"{label}: {name}") for name, x in names)
    prepared = prepare(spec, arrays, how[4])
    if key is not None:
        if len(_known) >= CACHE_SIZE:
            _known.clear()
        _known[key] = prepared
    return arrays, prepared


def _call_on_gpu(
    how: How, values: tuple[Any, ...], inputs: tuple[Any, ...], threads: int | None, out: Any, check: str
) -> Any:
    """What the kernels in Triton make of tensors that lie on a GPU."""
    from unpool.execute import gpu

    x = gpu.tensor_of(how[0], "X", inputs[0])
    spec = spec_of(how, values, (x,))
    check_threads(spec.row, threads)
    given = (x, inputs[1], _shape_array(spec, values[-1])) if how[0] == "MaxUnpool" else (x, *inputs[1:])
    targets = () if out is None else out if how[4] == 2 else (out,)
    if not isinstance(targets, tuple) or (targets and len(targets) != how[4]):
        raise UnpoolError(
            f"{spec.row.label}: out is a pair (y, indices) with return_indices, got {type(out).__name__}."
        )
    made = gpu.run(spec, given, outputs=how[4], out=targets, check=check)
    if out is not None:
        return out
    made = tuple(like_gpu(each, inputs[0]) for each in made)
    return made if how[4] == 2 else made[0]


def viewed(inputs: tuple[Any, ...]) -> tuple[AnyArray | None, ...]:
    """The inputs as NumPy arrays; none at all where one is no array, for `_prepare` to say so by its name."""
    try:
        return tuple(to_numpy(x, "") for x in inputs)
    except UnpoolError:
        return ()


def _check_words(how: How) -> None:
    """Layout, compat and index_space are strings, which ones is for others to say.

    Raises:
        UnpoolError: one is not.
    """
    operator, layout, compat, index_space, _ = how
    if not isinstance(layout, str) or not isinstance(compat, str) or not isinstance(index_space, str):
        raise UnpoolError(
            f"{operator}: layout, compat and index_space are strings, got {layout!r}, {compat!r} and {index_space!r}. "
            "Pass strings."
        )


def _targets(row: Row, how: How, out: Any) -> tuple[AnyArray, ...]:
    if how[4] == 2 and (not isinstance(out, tuple) or len(out) != 2):
        raise UnpoolError(f"{row.label}: out is a pair (y, indices) with return_indices, got {type(out).__name__}.")
    return tuple(to_numpy(each, f"{row.label}: out") for each in (out if how[4] == 2 else (out,)))


def spec_of(how: How, values: tuple[Any, ...], arrays: tuple[Any, ...]) -> Spec:
    """What the arguments of a public function mean; of its tensors only the first one's rank counts, if it is an array.

    Raises:
        UnpoolError: they break the contract.
    """
    _check_words(how)
    operator, layout, compat, index_space, _ = how
    rank = max(1, arrays[0].ndim - 2) if arrays and arrays[0] is not None else 1
    if layout not in _LAYOUTS:
        raise UnpoolError(
            f"{operator}: layout is one of {', '.join(_LAYOUTS)}; got {layout!r}. {suggest_name(layout, _LAYOUTS)}"
        )
    given = dict(zip(_VALUES[operator], values, strict=True))
    opset = given.pop("opset")
    if operator == "MaxUnpool":
        del given["output_shape"]
    attributes = {
        name: _unless(int(value) if isinstance(value, bool) and name in _FLAGS else value, _DEFAULTS.get(name))
        for name, value in ((name, for_all_axes(name, plain(value), rank)) for name, value in given.items())
    }
    return resolve.spec(
        operator, attributes, domain=_LAYOUTS[layout], opset=opset, compat=compat, index_space=index_space
    )


def _shape_array(spec: Spec, output_shape: Any) -> Any:
    """A plain sequence of ints as the int64 tensor that the operator takes."""
    if not isinstance(output_shape, (list, tuple)):
        return output_shape
    return read.shape_tensor(spec.row, output_shape)


def _unless(value: Any, default: Any) -> Any:
    """None, which means not set, for a default: a version without the attribute then still accepts the call."""
    return None if isinstance(value, type(default)) and value == default else value
