"""What is kept for the next call is bounded in bytes, used last is kept longest, and threads share it."""

import threading

import numpy as np
import pytest

import unpool
from unpool import shape_cache
from unpool.execute import clear_cache

MEBIBYTE = 1 << 20


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit of a mebibyte, of which nothing is used."""
    for each in shape_cache._caches:
        monkeypatch.setattr(each, "entries", {})
    monkeypatch.setattr(shape_cache, "MAX_BYTES", MEBIBYTE)
    return MEBIBYTE


def table(number: int) -> np.ndarray:
    """A tenth of a mebibyte."""
    return np.full(MEBIBYTE // 10, number, np.uint8)


def test_the_same_is_given_again(little: int) -> None:
    """A result is made once for its arguments, by position or name."""
    made = shape_cache.cached(4)(lambda a, b=0: [a, b])
    assert made(1, b=2) is made(1, b=2)
    assert made(1, b=3) is not made(1, b=2)
    made.cache_clear()
    assert not made.entries


def test_bytes_are_bounded_over_all_functions(little: int) -> None:
    """However many results, and of however many functions, they take no more than the limit; the last ones stay."""
    first, second = (
        shape_cache.cached(1000)(table),
        shape_cache.cached(1000)(lambda number: (table(number), [table(number)])),
    )
    for number in range(50):
        first(number)
        second(number)
        first(99)
        assert shape_cache.total_bytes() <= little * 65 // 64
    assert ((99,),) in first.entries
    assert ((49,),) in first.entries


def test_numbers_are_bounded(little: int) -> None:
    """Small results are as many as is said."""
    small = shape_cache.cached(8)(lambda number: number)
    for number in range(50):
        assert small(number) == number
        assert len(small.entries) <= 8


def test_what_is_larger_than_the_limit_is_not_kept(little: int) -> None:
    """It is given, and forgotten."""
    large = shape_cache.cached(8)(lambda: np.zeros(2 * MEBIBYTE, np.uint8))
    assert large().nbytes == 2 * MEBIBYTE
    assert shape_cache.total_bytes() == 0


def test_prepared_calls_of_large_shapes_are_dropped(little: int) -> None:
    """Tables of many shapes of every operator stay below the limit, those that a call makes while it runs too."""
    w = np.ones((3, 4, 3, 3), np.float32)
    for size in range(64, 128, 4):
        x = np.zeros((1, 3, size, size), np.float32)
        unpool.conv_transpose(x, w)
        y, places = unpool.max_pool(x, kernel_shape=2, strides=2, return_indices=True)
        unpool.max_unpool(y, places, x.shape, kernel_shape=2, strides=2)
        unpool.max_pool(x.transpose(0, 2, 3, 1), kernel_shape=2, strides=2, layout="NHWC")
        assert shape_cache.total_bytes() <= little * 65 // 64
    assert 0 < len(shape_cache.shortcuts) < 4 * 16
    clear_cache()


def test_threads_share_what_is_kept(little: int) -> None:
    """Look-ups while others drop results give what the function gives."""
    made, wrong = shape_cache.cached(5)(table), []

    def look_up(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 30, 400).tolist():
            wrong.extend({number} - {int(made(number)[0])})

    threads = [threading.Thread(target=look_up, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(made.entries) <= 5
