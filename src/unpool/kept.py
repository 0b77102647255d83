"""What functions of shapes gave, kept for the next call: what was used last, and few bytes of it altogether.

Tables of a large shape are megabytes, and a process may see any number of shapes. All that is kept, by whatever
function, shares one limit. Every step is a single operation on a dictionary, so that no lock is held, in forks too.
"""

from collections.abc import Callable, Hashable
from functools import update_wrapper
from itertools import count
from typing import Any, Generic, ParamSpec, TypeVar

MOST_BYTES = 1 << 28
"""Bytes that all functions keep together; single results beyond that are not kept."""

P = ParamSpec("P")
R = TypeVar("R")

_PARTS = 64  # of MOST_BYTES, which are counted together

_clock = count()
_uncounted = 0
_all: "list[Kept[Any, Any]]" = []
when_dropped: list[Callable[[], object]] = []
"""Called when something is no longer kept, for those who have it too."""


class _Entry:
    """A result, and when it was used; one that grows while it is kept says its bytes itself."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.used = next(_clock)
        self._size = None if hasattr(type(value), "nbytes") else bytes_of(value)

    @property
    def size(self) -> int:
        size: int = self.value.nbytes if self._size is None else self._size
        return size


class Kept(Generic[P, R]):
    """A function whose results are kept."""

    def __init__(self, make: Callable[P, R], most: int) -> None:
        self._make = make
        self._most = most
        self.entries: dict[Hashable, _Entry] = {}
        update_wrapper(self, make)
        _all.append(self)

    def __call__(self, *args: P.args, **named: P.kwargs) -> R:
        """As the function."""
        key = (args, *named.items())
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = _Entry(self._make(*args, **named))
            if len(self.entries) > self._most:
                _drop(_entries_of(self), lambda left, _: left <= self._most * 3 // 4)
            grew(entry.size)
        entry.used = next(_clock)
        value: R = entry.value
        return value

    def cache_clear(self) -> None:
        """Keep nothing."""
        self.entries.clear()


class kept:  # noqa: N801  a decorator
    """Keep the last `most` results of a function of hashable arguments, as far as MOST_BYTES allows.

    >>> @kept(2)
    ... def squared(x):
    ...     return [x * x]
    >>> squared(3) is squared(3)
    True
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self, make: Callable[P, R]) -> Kept[P, R]:
        """The function, with what it keeps."""
        return Kept(make, self._most)


def bytes_of(value: Any, depth: int = 5) -> int:
    """Bytes of the arrays, and roughly of the numbers, in a value, in what it is made of, and in its variables."""
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(value, (int, float)):
        return 32
    if depth == 0 or isinstance(value, (str, bytes, type)):
        return 0
    if isinstance(value, (tuple, list)):
        return sum(bytes_of(each, depth - 1) for each in value)
    slots = (getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name))
    cells = (cell.cell_contents for cell in getattr(value, "__closure__", None) or ())
    attributes = getattr(value, "__dict__", {}).values() if type(value).__module__.startswith("unpool") else ()
    return sum(bytes_of(each, depth - 1) for each in (*slots, *cells, *attributes))


def total() -> int:
    """Bytes that are kept."""
    return sum(entry.size for each in _all for entry in each.entries.copy().values())


def grew(size: int) -> None:
    """So many bytes more are kept: what was used longest ago is dropped where that is too much.

    Everything is counted only when enough has come since it was counted last.
    """
    global _uncounted
    _uncounted += size
    if _uncounted * _PARTS < MOST_BYTES:
        return
    _uncounted = 0
    if total() > MOST_BYTES:
        _drop([entry for each in _all for entry in _entries_of(each)], lambda _, left: left <= MOST_BYTES * 3 // 4)


def _entries_of(owner: Kept[Any, Any]) -> list[tuple[Kept[Any, Any], Hashable, _Entry]]:
    return [(owner, key, entry) for key, entry in owner.entries.copy().items()]


def _drop(entries: list[tuple[Kept[Any, Any], Hashable, _Entry]], is_enough: Callable[[int, int], bool]) -> None:
    entries.sort(key=lambda each: each[2].used)
    sizes = [entry.size for _, _, entry in entries]
    left, size = len(entries), sum(sizes)
    for (owner, key, _), freed in zip(entries, sizes, strict=True):
        if is_enough(left, size):
            break
        owner.entries.pop(key, None)
        left, size = left - 1, size - freed
    for tell in when_dropped:
        tell()
