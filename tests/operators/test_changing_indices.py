"""Indices that another thread writes to while a call reads them: the call gives some result or an error of ours."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numba import njit

import unpool
from tests.support.guarded import beside_guard, survives
from unpool import execute, per_plane
from unpool.kernels.cpu import indices as recount
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.max_unpool import scatter

FAR = (1 << 40, -(1 << 40), -1, np.iinfo(np.int64).min, np.iinfo(np.int64).max)
SHAPE, LARGE = (2, 3, 20, 21), (2, 3, 40, 42)
SECONDS = 0.6


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Elements, and places all over their own planes, between pages that nobody may touch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=SHAPE).astype(np.float32)
    places = rng.integers(0, 40 * 42, SHAPE) + np.arange(6).reshape(2, 3, 1, 1) * 40 * 42
    return beside_guard(x, at_end=True), beside_guard(places, at_end=True)


def given(x: np.ndarray, layout: str) -> np.ndarray:
    """The elements in a layout."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x


def grown(x: np.ndarray, indices: np.ndarray, layout: str = "NCHW", **options: Any) -> np.ndarray:
    """Unpooled by windows that overlap, so that elements are scattered."""
    settings = {"kernel_shape": [3, 3], "strides": [2, 2], "layout": layout, **options}
    return unpool.max_unpool(given(x, layout), indices, np.array(LARGE), **settings)


def into_own(x: np.ndarray, indices: np.ndarray) -> None:
    """Into the caller's memory, in both layouts."""
    grown(x, indices, out=np.empty(LARGE, np.float32))
    grown(x, indices, "NHWC", out=np.empty((2, 40, 42, 3), np.float32))


def across(x: np.ndarray, indices: np.ndarray) -> None:
    """From one index space to another."""
    settings = {"kernel_shape": [2, 2], "strides": [2, 2], "index_space": "inferred"}
    unpool.max_unpool(x, indices, np.array((2, 3, 41, 43)), **settings)


def inside_planes(x: np.ndarray, indices: np.ndarray) -> None:
    """Unpooling and all gradients on indices of planes; those of one plane stand for all."""
    local = indices[:1, :1]
    per_plane.max_unpool(x[:1, :1], local, LARGE[2:])
    per_plane.max_pool_backward(x[:1, :1], local, LARGE[2:])
    per_plane.max_unpool_backward(np.zeros((1, 1, *LARGE[2:]), np.float32), local)


def converted(_: np.ndarray, indices: np.ndarray) -> None:
    """From one way of counting to another."""
    unpool.to_onnx_indices(unpool.to_torch_indices(indices, LARGE[2:]), LARGE[2:])


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "plain": grown,
    "channels last": lambda x, indices: grown(x, indices, "NHWC"),
    "own memory": into_own,
    "across": across,
    "inside planes": inside_planes,
    "converted": converted,
}


@njit(nogil=True)
def flip(indices, kept, values, state):
    """Until told to stop, write values that are out of range for a while, then what was there for longer."""
    number = 0
    while state[0] == 0:
        first, value = number % 97, values[number % values.size]
        for _ in range(number % 64):
            for position in range(first, indices.size, 97):
                indices[position] = value
        for _ in range(64 + number * 7 % 256):
            for position in range(first, indices.size, 97):
                indices[position] = kept[position]
        number += 1


def under_fire(way: Callable[[np.ndarray, np.ndarray], Any]) -> None:
    """Call again and again while the indices change."""
    x, indices = drawn()
    state, kept = np.zeros(1, np.int64), indices.reshape(-1).copy()
    writer = threading.Thread(target=flip, args=(indices.reshape(-1), kept, np.array(FAR), state))
    writer.start()
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            with suppress(unpool.IndicesError):
                way(x, indices)
    finally:
        state[0] = 1
        writer.join()


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
def test_under_fire(way: str) -> None:
    """No call touches memory that is not its own, or raises anything but an IndicesError."""
    x, indices = drawn()
    WAYS[way](x, indices)
    flip(indices.reshape(-1), indices.reshape(-1), np.array(FAR), np.ones(1, np.int64))
    assert survives(lambda: under_fire(WAYS[way]))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("value", FAR)
def test_an_index_that_changes_behind_the_check(layout: str, value: int) -> None:
    """What is written with is what is checked: an index that goes out of range after the check is refused."""
    x, indices = drawn()
    range_check = scatter._range_check

    class ChangingLaunch:
        def __init__(self, *args: int) -> None:
            self._launch = range_check(*args)

        def run(self, *args: Any) -> list[int]:
            results = self._launch.run(*args)
            indices[1, 2, 7, 5] = value
            return results

    def call() -> None:
        execute.clear_cache()
        with (
            patch.object(scatter, "_range_check", ChangingLaunch),
            pytest.raises(unpool.IndicesError, match="changed during the call"),
        ):
            grown(x, indices, layout)

    grown(x, indices, layout)
    assert survives(call)


def test_an_index_that_changes_before_it_is_counted_elsewhere() -> None:
    """Counted in another index space, what is out of range becomes -1, for the check to refuse; nothing wraps."""
    far = np.array([5, 1 << 40, -1, -(1 << 40), 16, 15])
    moved = np.empty_like(far)
    launch = recount.launch(recount.rebased(1, (4, 4), (5, 5)), 1, 1, far.size)
    launch.run((), 1, readonly(far), moved)
    assert moved.tolist() == [6, -1, -1, -1, -1, 18]
