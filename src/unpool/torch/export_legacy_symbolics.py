"""Symbolics of pools and unpoolings for torch's exporter behind dynamo=False, for opset 9 and later.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

Sizes are ints where they are static, else int64 values of shape (). Opset 9 has neither Mod nor ceil_mode nor
dilations, opset 10 no Range: other nodes stand in for the first and the last, and for ceil_mode wider pads at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any

import torch

from unpool.errors import UnsupportedError
from unpool.geometry import Fitted
from unpool.torch.export_legacy_sizes import (
    constant,
    joined,
    known_size,
    product,
    reshaped,
    size,
    sizes_of,
    with_sizes,
)
from unpool.torch.export_window import (
    Setting,
    ceil_ends,
    check_type,
    is_inferred,
    per_axis,
    pooled_sizes,
    pooled_window,
    unpool_window,
)
from unpool.torch.private import private

if TYPE_CHECKING:
    from torch.onnx import symbolic_helper
else:
    symbolic_helper = private("torch.onnx.symbolic_helper")

FIRST_MOD = 10
FIRST_CEIL = 10
FIRST_RANGE = 11


def _check_type(g: Any, operator: str, x: Any) -> None:
    dtype = x.type().dtype() if isinstance(x.type(), torch.TensorType) else None
    if dtype is not None:
        check_type(operator, g.opset, str(dtype).removeprefix("torch."))


def _pool_symbolic(rank: int, *, with_indices: bool) -> Callable[..., Any]:
    """Symbolic of a pool over `rank` spatial axes."""

    @symbolic_helper.quantized_args(not with_indices)
    @symbolic_helper.parse_args("v", "is", "is", "is", "is", "b")
    def max_pool(g: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        window = per_axis(kernel_size, rank)
        setting = (window, per_axis(stride, rank) or window, per_axis(padding, rank), per_axis(dilation, rank))
        _check_type(g, "MaxPool", x)
        unbatched = len(sizes_of(x)) == rank + 1
        large = [size(g, x, axis) for axis in range(-rank, 0)]
        if unbatched:
            x = reshaped(g, x, [1, *(size(g, x, axis) for axis in range(-rank - 1, 0))])
        small = pooled_sizes(large, setting, ceil=ceil_mode)
        attributes = _pool_attributes(g.opset, large, setting, ceil_mode)
        outer = sizes_of(x)[:2]
        if not with_indices:
            values = with_sizes(g.op("MaxPool", x, **attributes), x, [*outer, *small])
            return _without_batch(g, values) if unbatched else values
        values, indices = g.op("MaxPool", x, outputs=2, **attributes)
        with_sizes(values, x, [*outer, *small])
        with_sizes(indices, x, [*outer, *small], torch.int64)
        indices = with_sizes(_in_plane(g, indices, product(g, large)), x, [*outer, *small], torch.int64)
        return (_without_batch(g, values), _without_batch(g, indices)) if unbatched else (values, indices)

    return max_pool


def _pool_attributes(opset: int, large: Sequence[Any], setting: Setting, ceil: bool) -> dict[str, Any]:
    """Attributes of MaxPool in the version of the opset; padding in place of ceil_mode where that is misread."""
    window, steps, pads, dilations = setting
    attributes: dict[str, Any] = {"kernel_shape_i": window, "strides_i": steps, "pads_i": pads * 2}
    ends = ceil_ends(large, setting) if ceil else None
    if opset < FIRST_CEIL and (set(dilations) != {1} or (ceil and ends is None)):
        what = "ceil_mode with dynamic sizes" if set(dilations) == {1} else f"dilation {dilations}"
        raise UnsupportedError(
            f"export: MaxPool of opset {opset} has no dilations and no ceil_mode, got {what}. "
            f"Export with opset_version {FIRST_CEIL} or later."
        )
    if ends is not None and (opset < FIRST_CEIL or any(map(lt, ends, pads))):
        ceil = False
        attributes["pads_i"] = pads + [max(0, end) for end in ends]
    return attributes if opset < FIRST_CEIL else attributes | {"dilations_i": dilations, "ceil_mode_i": int(ceil)}


def _in_plane(g: Any, indices: Any, plane: Any) -> Any:
    """Whole-tensor indices, none of them negative, as indices in their plane."""
    plane = constant(g, plane) if isinstance(plane, int) else plane
    if g.opset >= FIRST_MOD:
        return g.op("Mod", indices, plane)
    return g.op("Sub", indices, g.op("Mul", g.op("Div", indices, plane), plane))


def _without_batch(g: Any, x: Any) -> Any:
    return reshaped(g, x, [size(g, x, axis) for axis in range(1, len(sizes_of(x)))])


def _unpool_symbolic(rank: int) -> Callable[..., Any]:
    """Symbolic of an unpooling over `rank` spatial axes; the strides and padding of the 3-D form are not needed."""

    def max_unpool(g: Any, x: Any, indices: Any, output_size: Any, stride: Any = None, padding: Any = None) -> Any:  # noqa: ARG001
        _check_type(g, "MaxUnpool", x)
        small = [size(g, x, axis) for axis in range(-rank, 0)]
        large = _output_sizes(g, output_size, rank)
        outer = [size(g, x, axis) for axis in range(-len(sizes_of(x)), -rank)]
        unbatched = len(outer) == 1
        found, pooled = _found(g, indices, small, large)
        if unbatched:
            outer = [1, *outer]
            x, indices = reshaped(g, x, [*outer, *small]), reshaped(g, indices, [*outer, *small])
        if found is None:
            found = g.op("Add", indices, _plane_offsets(g, outer, large))
        elif unbatched:
            found = reshaped(g, found, [*outer, *small])
        windows = list(map(unpool_window, small, large, pooled))
        shape = [] if is_inferred(small, large, windows) else [joined(g, [*outer, *large])]
        kernel_shape, strides, pads = (list(setting) for setting in zip(*windows, strict=True))
        y = g.op("MaxUnpool", x, found, *shape, kernel_shape_i=kernel_shape, strides_i=strides, pads_i=pads * 2)
        with_sizes(y, x, [*sizes_of(x)[:2], *large])
        return _without_batch(g, y) if unbatched else y

    return max_unpool


def _output_sizes(g: Any, output_size: Any, rank: int) -> list[Any]:
    """ATen's output_size, ints where they are known."""
    if symbolic_helper._is_packed_list(output_size):
        values = symbolic_helper._unpack_list(output_size)
        return [value if known is None else known for value, known in zip(values, map(known_size, values), strict=True)]
    sizes = symbolic_helper._maybe_get_const(output_size, "is")
    if isinstance(sizes, list):
        return sizes
    return [g.op("Gather", output_size, constant(g, axis), axis_i=0) for axis in range(rank)]


def _found(g: Any, indices: Any, small: Sequence[Any], large: Sequence[Any]) -> tuple[Any, list[Fitted | None]]:
    """The indices as MaxPool found them, None unless they fit the output; and the windows of that pool.

    They fit if the pool's planes are statically as large as the output's, and those of its output as those of the
    input.
    """
    rank, trail = len(large), [indices.node()]
    while trail[-1].kind() in ("onnx::Unsqueeze", "onnx::Squeeze", "onnx::Reshape"):
        trail.append(trail[-1].inputsAt(0).node())
    pool = trail[-1].inputsAt(0).node() if trail[-1].kind() in ("onnx::Mod", "onnx::Sub") else None
    if pool is None or pool.kind() != "onnx::MaxPool":
        return None, [None] * rank
    windows = [*_windows(pool), *[None] * rank][:rank]
    planes = [sizes_of(value)[2:] for value in (pool.outputsAt(1), pool.inputsAt(0))]
    if not all(isinstance(length, int) for length in (*planes[0], *planes[1], *small, *large)):
        return None, windows
    if (product(g, planes[0]), product(g, planes[1])) != (product(g, small), product(g, large)):
        return None, windows
    found = pool.outputsAt(1)
    if len(trail) > 1:
        found = reshaped(g, found, [size(g, indices, axis) for axis in range(len(sizes_of(indices)))])
    return found, windows


def _windows(pool: Any) -> list[Fitted]:
    settings = {name: symbolic_helper._node_get(pool, name) for name in pool.attributeNames()}
    window, steps = settings["kernel_shape"], settings["strides"]
    begins, ends = settings["pads"][: len(window)], settings["pads"][len(window) :]
    dilations = settings.get("dilations", [1] * len(window))
    ceil = bool(settings.get("ceil_mode", begins != ends))
    return [pooled_window(*one, ceil=ceil) for one in zip(window, steps, begins, dilations, strict=True)]


def _plane_offsets(g: Any, outer: Sequence[Any], large: Sequence[Any]) -> Any:
    """(n * C + c) * plane size in elements, as int64 of shape (N, C, 1 .. 1)."""
    planes, step = product(g, outer), product(g, large)
    ones = [1] * len(large)
    if isinstance(planes, int) and isinstance(step, int):
        return constant(g, (torch.arange(planes) * step).reshape([*outer, *ones]))
    last = constant(g, planes) if isinstance(planes, int) else planes
    if g.opset >= FIRST_RANGE:
        numbers = g.op("Range", constant(g, 0), last, constant(g, 1))
    else:
        numbers = g.op("NonZero", g.op("ConstantOfShape", joined(g, [last]), value_t=torch.ones(1, dtype=torch.int64)))
    return g.op(
        "Mul", reshaped(g, numbers, [-1, *outer[1:], *ones]), constant(g, step) if isinstance(step, int) else step
    )


SYMBOLICS: Mapping[str, Callable[..., Any]] = {
    **{f"aten::max_pool{rank}d": _pool_symbolic(rank, with_indices=False) for rank in (1, 2, 3)},
    **{f"aten::max_pool{rank}d_with_indices": _pool_symbolic(rank, with_indices=True) for rank in (1, 2, 3)},
    "aten::max_unpool2d": _unpool_symbolic(2),
    "aten::max_unpool3d": _unpool_symbolic(3),
}
"""Name of ATen's operator -> its symbolic."""
