"""Compiling of the common kernels ahead of time, into Numba's cache on disk, and the seconds spent compiling."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from unpool import functional
from unpool.dtypes import TYPES, AnyArray
from unpool.errors import UnpoolError, suggest_name

COMMON_TYPES = ("float32",)


def steps(types: Sequence[str] = COMMON_TYPES) -> Iterator[tuple[str, Callable[[], object]]]:
    """Pairs of a description and a call that compiles kernels, or loads them from the cache, for some element types.

    >>> [name for name, _ in steps(["int8"])][:2]
    ['int8 MaxPool, window 2, stride 2', 'int8 MaxPool, window 2, stride 2, indices']
    """
    for name in types:
        if name not in TYPES:
            raise UnpoolError(
                f"warmup: expected types of {', '.join(TYPES)}; got {name!r}. {suggest_name(name, TYPES)}"
            )
    for name in types:
        x = np.zeros((1, 16, 72, 72), TYPES[name].dtype)
        yield from _pools(name, x)
        if TYPES[name].is_float:
            yield from _upsampling(name, x)


def _pools(name: str, x: AnyArray) -> Iterator[tuple[str, Callable[[], object]]]:
    for window, stride in ((2, 2), (3, 2), (3, 1)):
        for wants_indices in (False, True):
            suffix = ", indices" if wants_indices else ""
            options: dict[str, Any] = {"kernel_shape": [window] * 2, "strides": [stride] * 2}
            call = partial(functional.max_pool, x, **options, return_indices=wants_indices)
            yield f"{name} MaxPool, window {window}, stride {stride}{suffix}", call


def _upsampling(name: str, x: AnyArray) -> Iterator[tuple[str, Callable[[], object]]]:
    def unpool() -> object:
        y, indices = functional.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
        shape = (*x.shape[:2], 73, 73)
        return functional.max_unpool(y, indices, shape, kernel_shape=[2, 2], strides=[2, 2])

    def dense() -> object:
        features = np.zeros((1, 8, 48, 48), x.dtype)
        return functional.conv_transpose(features, np.zeros((8, 16, 2, 2), features.dtype), strides=[2, 2])

    def depthwise() -> object:
        return functional.conv_transpose(x, np.zeros((16, 1, 3, 3), x.dtype), group=16)

    def wide(window: int, stride: int) -> object:
        features, w = np.zeros((1, 32, 32, 32), x.dtype), np.zeros((32, 32, window, window), x.dtype)
        return functional.prepare_conv_transpose(w, strides=[stride] * 2)(features)

    yield f"{name} MaxUnpool", unpool
    yield f"{name} ConvTranspose", dense
    yield f"{name} ConvTranspose, depthwise", depthwise
    for window, stride in ((4, 2), (3, 1)):
        yield f"{name} ConvTranspose, window {window}, stride {stride}", partial(wide, window, stride)


def compiling_seconds() -> float:
    """Seconds of compiling in this process, including the compiler that runs at the moment; nothing is imported."""
    cache = sys.modules.get("unpool.kernels.cpu.machine.cache")  # compiling imports it
    return 0.0 if cache is None else float(cache.compile_seconds())
