"""The calls whose kernels are shipped, and the kernels that they reach.

The catalogue has every variant of every kernel, for every element type. The exception is the rolling pool, which needs
a kernel for each window: those of COMMON_WINDOWS are shipped.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import ml_dtypes
import numpy as np

from unpool import functional, per_plane
from unpool.geometry import Axis, Window
from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.activation import activate
from unpool.kernels.cpu.conv_transpose import phases_pack, phases_plan, winograd_steps
from unpool.kernels.cpu.conv_transpose.winograd_steps import OutputImage, OwnLines, TilesParams
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import libraries, work_queue
from unpool.kernels.cpu.machine.jit import Kernel, record
from unpool.kernels.cpu.max_pool import doubling, running_max
from unpool.kernels.cpu.max_pool.rolling import COMMON_WINDOWS
from unpool.kernels.cpu.max_unpool import scatter
from unpool.kernels.cpu.normalization import normalize
from unpool.kernels.cpu.planner.conv_transpose import cost_conv_transpose, plan_conv_transpose
from unpool.kernels.cpu.planner.max_pool import plan_max_pool
from unpool.kernels.cpu.planner.max_unpool import plan_max_unpool
from unpool.kernels.cpu.snake import snake
from unpool.kernels.cpu.tuning import DOUBLING_POOL, PACKING

_FLOATS = (np.float32, np.float64, np.float16)  # bfloat16 has the kernels of float16 but in ConvTranspose
_ELEMENTS = (*_FLOATS, np.int8, np.uint8)
_WIDE = 40_000  # elements of a row, so that places of the next one need more than 16 bits


class Specialisation(NamedTuple):
    """A kernel, and Numba's types of its arguments."""

    kernel: Kernel
    types: tuple[Any, ...]
    type_names: str  # of its arguments
    is_c_function: bool  # a C function that takes an int64, not a Python function

    @property
    def text(self) -> str:
        """Its name, and the types of its arguments."""
        return f"{self.kernel.name}({self.type_names})"


def record_kernels() -> dict[str, Specialisation]:
    """The kernels that the calls of the catalogue reach, by symbol. No kernel is compiled or run."""
    from numba import typeof, types  # the calls themselves need no compiler

    kernels: dict[str, Specialisation] = {}

    def entry_point(kernel: Kernel, args: tuple[Any, ...]) -> Callable[..., int]:
        made = Specialisation(kernel, tuple(map(typeof, args)), libraries.type_names(args), False)
        kernels.setdefault(libraries.symbol(kernel.name, args), made)
        is_none = any(name in kernel.name for name in ("separable", "list_flagged"))
        return lambda *_: 0 if is_none else -1  # no padding is a maximum, no tile inaccurate, no index wrong

    def address(kernel: Kernel) -> int:
        kernels[libraries.symbol(kernel.name, ())] = Specialisation(kernel, (types.int64,), "", True)
        return 0

    def call(kernel: Kernel, *args: Any) -> int:  # a kernel keeps its entry points
        return entry_point(kernel, args)(*args)

    recorded: Any = {"entry_point": entry_point, "address": address, "__call__": call}
    with patch.multiple(Kernel, **recorded), np.errstate(all="ignore"):  # results are never written
        for each in calls(np.zeros):
            each()
        work_queue.worker_loop(work_queue.new_slot(), 1, 0)
        work_queue.new_task(1, 1, [], 0)
    return kernels


Fill = Callable[[tuple[int, ...], Any], Any]
Calls = Iterator[Callable[[], Any]]


def calls(fill: Fill) -> Calls:
    """The calls of the catalogue; `fill` makes arrays of a shape and a type."""
    yield from _pools(fill)
    yield from _unpools(fill)
    yield from _conv_transposes(fill)
    x, scale = fill((1, 2, 8), np.float32), fill((2,), np.float32)
    yield partial(normalize, x, x, scale, scale, 1e-5, threads=1)
    yield partial(snake, x, x, fill((2, 2), np.float32), threads=1)
    for dtype in (*_ELEMENTS, ml_dtypes.bfloat16):
        yield partial(activate, fill((1,), dtype), "Relu", (), threads=1)
    yield from _plans(fill)
    yield from _planners(fill)


def _planners(fill: Fill) -> Calls:
    request = fill((1,), np.int64)
    for planner in (plan_max_pool, plan_max_unpool, plan_conv_transpose):
        yield partial(planner, request, request, 0, 1)
    yield partial(cost_conv_transpose, fill((12,), np.int64), fill((1,), np.float64), 0, 1)


def _plans(fill: Fill) -> Calls:
    """Plans with the kernels that run only after a check has failed: in the calls above, every check succeeds."""
    yield partial(_clear, fill((3,), np.int64))
    numbers, owned = fill((1,), np.int64), fill((1, 2), np.int64)
    yield partial(winograd_steps.list_flagged, readonly(fill((1,), np.uint8)), numbers, 0, 0, 1)
    params = record(TilesParams(FLAT, 0, 0, 0, 0, 0, 0, 0, 0, OutputImage(0, 0, 0, 0)))
    for kind in (np.int16, np.int32, np.int64):
        x, y = readonly(fill((1,), kind)), fill((1,), kind)
        yield partial(winograd_steps.take_tiles, x, y, readonly(numbers), params, 0, 1)
        yield partial(winograd_steps.put_tiles, y, x, readonly(numbers), params, OwnLines(owned, owned), 0, 1)


def _clear(y: Any) -> Any:
    scatter.clear(id(y), y.nbytes, 0, 1)
    return y


def _pools(fill: Fill) -> Calls:
    for dtype, has_indices in product(_ELEMENTS, (False, True)):
        pool = partial(_pool, fill, dtype, has_indices)
        for step in (1, 2, 4):  # tiles: whole registers and half of one, places of 16 bits and more
            window, wide = (2, step), _WIDE * step
            for shape in ((4, 128 * step), (4, step), (4, wide)):
                yield pool(shape, window, window)
            yield pool((2, wide, step), (2, 1, step), (2, 1, step))
        for stride, lanes in product((1, 2, 3), (128, 24, 2, _WIDE)):  # direct
            yield pool((6, lanes * stride), (3, 2), (3, stride), dilations=(1, 2), pads=(0, 1, 0, 1))
        yield partial(_with_wide_places, pool((6, 10), (3, 2), (3, 3), dilations=(1, 2)))
        yield partial(_with_doubling, pool((6, 3), (1, 2), (1, 1), layout="NHWC", storage_order=int(has_indices)))
        for stride in (1, 2, 3):  # separable
            yield pool((64, 64), (7, 7), (stride, stride), dilations=(2, 2))
        for size, stride in COMMON_WINDOWS:
            yield pool((300, 300), (size, size), (stride, stride))


def _pool(
    fill: Fill, dtype: Any, has_indices: bool, shape: tuple[int, ...], window: Any, strides: Any, **options: Any
) -> Callable[[], Any]:
    x = fill((1, 1, *shape), dtype)
    return partial(
        functional.max_pool, x, kernel_shape=window, strides=strides, return_indices=has_indices, threads=1, **options
    )


def _with_wide_places(call: Callable[[], Any]) -> Any:
    with patch.object(running_max, "is_wide", lambda *_: True):
        return call()


def _with_doubling(call: Callable[[], Any]) -> Any:
    with patch.object(doubling, "DOUBLING_POOL", DOUBLING_POOL._replace(visits=0)):
        return call()


def _unpools(fill: Fill) -> Calls:
    indices = np.arange(0, 32, 2).reshape(1, 1, 4, 4)
    for dtype in _FLOATS:
        x = fill((1, 1, 4, 4), dtype)
        for layout in ("NCHW", "NHWC"):
            values = x if layout == "NCHW" else np.moveaxis(x, 1, -1)
            yield partial(functional.max_unpool, values, indices, kernel_shape=(2, 2), strides=(2, 2), layout=layout)
        yield partial(functional.max_unpool, x, indices, np.array((1, 1, 14, 14)), kernel_shape=(3, 3), strides=(3, 3))
        yield partial(per_plane.max_unpool, x, indices, (8, 8))
        yield partial(per_plane.max_pool_backward, x, indices, (8, 8))
        yield partial(per_plane.max_unpool_backward, fill((1, 1, 8, 8), dtype), indices)


def _conv_transposes(fill: Fill) -> Calls:
    for dtype in (*_FLOATS, ml_dtypes.bfloat16):
        for algorithm, channels, maps, sizes, window, stride in (
            ("phases", 32, 64, (16, 16), 4, 2), ("phases", 32, 5, (16, 16), 4, 2), ("phases", 32, 2, (16, 16), 2, 1),
            ("phases", 32, 1, (9, 9), 1, 1), ("phases", 32, 3, (9, 9), 1, 1), ("winograd", 64, 64, (16, 16), 4, 2),
            ("winograd", 64, 64, (16, 16), 3, 1), ("direct", 3, 1, (16, 16), 2, 2), ("rows", 4, 4, (3, 3), 3, 2),
            ("gemm_1x1", 32, 64, (1, 1), 4, 1), ("gemm_1x1", 32, 1, (1, 1), 1, 1),
        ):  # fmt: skip
            for batch in (1, 2):
                x = fill((batch, channels, *sizes), dtype)
                w = fill((channels, maps, window, window), dtype)
                yield partial(_conv_transpose, algorithm, x, w, (stride, stride))
        yield partial(_conv_transpose, "rows", fill((1, 3, 3, 4), dtype), fill((4, 4, 3, 3), dtype), (2, 2), "NHWC")
        x, w = fill((1, 4, 1, 1), dtype), fill((4, 3, 4, 4), dtype)
        yield partial(functional.conv_transpose, x, w, pads=(1, 1, 1, 1))  # only some taps reach an output
    axes = (Axis(34, 16, Window(4, 2)),) * 2
    for dtype in (np.float32, np.float64):  # weights for every shape of tiles
        w = fill((32, 3, 4, 4), dtype)
        for cut in phases_plan.blockings(axes, 32, 3, w.itemsize, 1)[: len(phases_plan.tile_shapes())]:
            yield partial(_pack, w, cut)


def _pack(w: Any, cut: phases_plan.Blocking) -> Any:
    with _packing_in_kernels():
        return phases_pack.pack(w, cut, 1)


def _packing_in_kernels() -> Any:
    """A context in which compiled code packs even small arrays of weights."""
    return patch.object(phases_pack, "PACKING", PACKING._replace(weights_once=0))


def _conv_transpose(algorithm: str, x: Any, w: Any, strides: tuple[int, int], layout: Any = "NCHW") -> Any:
    only = (conv_transpose.named(algorithm),)
    with patch.object(conv_transpose, "algorithms", lambda _: only), _packing_in_kernels():
        kept = functional.prepare_conv_transpose(w, strides=strides, layout=layout)(x, threads=1)
        return kept, functional.conv_transpose(x, w, strides=strides, layout=layout, threads=1)
