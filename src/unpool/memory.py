"""Memory of outputs: checked against the machine before it is taken, and all but small blocks used again.

The first touch of fresh memory costs about as much as writing it, so blocks of RECYCLED_FROM bytes and more are kept
when the last array on them is gone, and given to the next output of the same size. What is kept is limited: by
UNPOOL_RECYCLE_BYTES in the environment, or by `limit_recycling`; 0 keeps nothing.
"""

import _thread
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from unpool.allowance import allowance, at_hand
from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import element_count

RECYCLED_FROM = 1 << 19
"""Bytes from which on a block is kept: what is smaller the allocator keeps, and mostly does not give back."""

MOST_BLOCKS = 64
"""Blocks kept at most: they are looked through one by one."""

DEFAULT_LIMIT = 1 << 29
"""Bytes kept at most, unless the environment says otherwise."""

SMALL = 1 << 24
"""Bytes below which an array is not compared with anything: where it cannot be had, the system says so."""

LARGE = 1 << 30
"""Bytes from which on an array is compared with the memory that is free at the moment, which takes 50 microseconds."""

_LINE = 64  # bytes; blocks start at a line of the cache


_size = attrgetter("nbytes")


class _Kept:
    """Blocks without owner, the one used last at the end.

    Single operations on a deque are atomic, so no lock is held, at exit and in forks too.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.blocks: deque[AnyArray] = deque()

    def take(self, size: int) -> tuple[AnyArray, bool]:
        """The kept block of exactly this size that was used last, or a new one; and whether it was kept."""
        others: list[AnyArray] = []
        try:
            while True:
                block = self.blocks.pop()
                if block.nbytes == size:
                    return block, True
                others.append(block)
        except IndexError:
            pass
        finally:
            if others:
                self.blocks.extend(reversed(others))
        fresh = np.empty(size + _LINE, np.uint8)
        start = -fresh.ctypes.data % _LINE
        return fresh[start : start + size], False

    def give(self, block: AnyArray) -> None:
        """Keep a block; those used longest ago go when there are too many, or too many bytes."""
        self.blocks.append(block)
        self.trim()

    def trim(self) -> None:
        """Free what is beyond the limits."""
        while len(self.blocks) > MOST_BLOCKS or sum(map(_size, self.blocks.copy())) > self.limit:
            try:
                self.blocks.popleft()
            except IndexError:
                break


class _Owner:
    """What an output's array is based on; it is gone when the last view is."""

    def __init__(self, block: AnyArray, was_written: bool) -> None:
        self.was_written = was_written
        self.__array_interface__ = block.__array_interface__
        self._life = _life(block, _kept.give)
        next(self._life)


def _life(block: AnyArray, give: Callable[[AnyArray], None]) -> Iterator[None]:
    """Hold a block, and give it back when nobody holds this any more.

    A signal's handler may run in any line of Python, and what it raises in a destructor is lost. The end of a generator
    begins inside its `try`: Ctrl-C is caught, and comes again as soon as this has ended.
    """
    try:
        try:
            yield
        finally:
            give(block)
    except KeyboardInterrupt:
        _again = _Interrupt()


class _Interrupt:
    """Ctrl-C, when it is freed, which runs no line of Python."""

    __del__ = _thread.interrupt_main


def _limit_from_environment() -> int:
    text = os.environ.get("UNPOOL_RECYCLE_BYTES", "")
    return int(text) if text.isascii() and text.isdigit() else DEFAULT_LIMIT


_kept = _Kept(_limit_from_environment())


def limit_recycling(size: int) -> None:
    """Keep at most `size` bytes of outputs that nobody uses any more; 0 keeps nothing and frees what is kept.

    Raises:
        UnpoolError: not an int of 0 or more.

    >>> limit_recycling(0)
    >>> limit_recycling(DEFAULT_LIMIT)
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise UnpoolError(
            f"limit_recycling: size is a number of bytes, 0 or more; got {size!r}. Pass 0 to keep nothing."
        )
    _kept.limit = size
    _kept.trim()


def free_recycled() -> None:
    """Free the memory of outputs that nobody uses any more."""
    _kept.blocks.clear()


def recycled_at_most() -> int:
    """Bytes of memory without owner that are kept for the next outputs, at most."""
    return _kept.limit


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> AnyArray:
    """Uninitialised memory for an output.

    Raises:
        ShapeError: more bytes than this process can have.
    """
    size = check(shape, dtype, where)
    try:
        if size < RECYCLED_FROM or size > _kept.limit:
            return np.empty(shape, dtype)
        return np.asarray(_Owner(*_kept.take(size))).view(dtype).reshape(shape)
    except MemoryError as cause:
        raise _too_large(size, _array(shape, dtype), where, "has less left") from cause


def was_written(array: AnyArray) -> bool:
    """Whether the array lies in a block that an output had before; its pages need no first touch.

    >>> was_written(np.empty(3))
    False
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, _Owner) and owner.was_written


def check(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> int:
    """The bytes of an array, refused where this process cannot hold them.

    Raises:
        ShapeError: more bytes than this process may take, or for large arrays, than there are at hand.
    """
    needed = element_count((*shape, dtype.itemsize), where)
    if needed >= SMALL:
        check_bytes(needed, _array(shape, dtype), where)
    return needed


def _array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"an array of {'x'.join(map(str, shape))} {dtype.name}"


def check_bytes(needed: int, what: str, where: str) -> None:
    """Refuse what this process cannot hold.

    Args:
        needed: bytes.
        what: how the error calls it.
        where: who asks for it.

    Raises:
        ShapeError: as `check`.
    """
    limit = allowance()
    if needed > limit:
        raise _too_large(needed, what, where, f"may take {_gib(limit)}")
    if needed >= LARGE and needed > (left := at_hand()):
        raise _too_large(needed, what, where, f"has {_gib(left)} left")


def _too_large(needed: int, what: str, where: str, limit: str) -> ShapeError:
    return ShapeError(f"{where}: {what} needs {_gib(needed)}, this process {limit}. Reduce sizes or work in tiles.")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


@contextmanager
def sized(where: str, *arrays: Any) -> Iterator[None]:
    """Memory that runs out inside becomes an error of ours, which says how large the arrays are that were worked on.

    Raises:
        ShapeError: instead of MemoryError.
    """
    try:
        yield
    except MemoryError as cause:
        raise out_of_memory(where, arrays, cause) from cause


def out_of_memory(where: str, arrays: Iterable[Any], cause: MemoryError) -> ShapeError:
    """The error of a call that ran out of memory while it worked on these arrays."""
    shapes = ", ".join("x".join(map(str, each.shape)) for each in arrays if hasattr(each, "shape"))
    said = f" ({cause})" if str(cause) else ""
    return ShapeError(
        f"{where}: expected memory for a call on {shapes}, got none{said}. Reduce sizes or work in tiles."
    )
