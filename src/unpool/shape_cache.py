"""LRU caches for functions of shapes, with one limit on their bytes.

Tables of a large shape are megabytes, and a process may see any number of shapes: so all caches share one limit. Every
step is a single operation on a dictionary, so that no lock is held, in forks either.
"""

from collections.abc import Callable, Hashable
from functools import update_wrapper
from itertools import count
from typing import Any, Generic, ParamSpec, TypeVar

MAX_BYTES = 1 << 28  # in all caches together; a larger result is not cached

P = ParamSpec("P")
R = TypeVar("R")

_COUNT_PARTS = 64  # caches are counted when MAX_BYTES / _COUNT_PARTS were added

_clock = count()
_uncounted = 0
_caches: "list[LruCache[Any, Any]]" = []
shortcuts: dict[Hashable, Any] = {}
"""Results of the caches, or what is made of them, by keys that take less time; an eviction empties it."""
MAX_SHORTCUTS = 1024


class _Entry:
    """A result, and the time of its last use; a result that grows has the property `nbytes`."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.used = next(_clock)
        self._size = None if hasattr(type(value), "nbytes") else nbytes_of(value)

    @property
    def size(self) -> int:
        size: int = self.value.nbytes if self._size is None else self._size
        return size


class LruCache(Generic[P, R]):
    """A function with a cache of its results."""

    def __init__(self, function: Callable[P, R], max_entries: int) -> None:
        self._function = function
        self._max_entries = max_entries
        self.entries: dict[Hashable, _Entry] = {}
        update_wrapper(self, function)
        _caches.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The cached result, or that of the function."""
        key = (args, *kwargs.items())
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = _Entry(self._function(*args, **kwargs))
            if len(self.entries) > self._max_entries:
                _evict(_entries_of(self), lambda entries_left, _: entries_left <= self._max_entries * 3 // 4)
            count_bytes(entry.size)
        entry.used = next(_clock)
        value: R = entry.value
        return value

    def cache_clear(self) -> None:
        """Empty the cache."""
        self.entries.clear()


def cached(max_entries: int) -> Callable[[Callable[P, R]], LruCache[P, R]]:
    """Cache the last `max_entries` results of a function of hashable arguments, within MAX_BYTES.

    >>> @cached(2)
    ... def squared(x):
    ...     return [x * x]
    >>> squared(3) is squared(3)
    True
    """
    return lambda function: LruCache(function, max_entries)


def add_shortcut(key: Hashable, result: object) -> None:
    """Keep a result under a key of `shortcuts`; without room for another one, all are dropped first."""
    if len(shortcuts) >= MAX_SHORTCUTS:
        shortcuts.clear()
    shortcuts[key] = result


def nbytes_of(value: Any, depth: int = 5) -> int:
    """Bytes of the arrays, and roughly of the numbers, in a value, its items, slots, attributes and closure."""
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(value, (int, float)):
        return 32
    if depth == 0 or isinstance(value, (str, bytes, type)):
        return 0
    if isinstance(value, (tuple, list)):
        if value and isinstance(value[0], int):  # tables have thousands of integers, and nothing else
            return 32 * len(value)
        return sum(nbytes_of(each, depth - 1) for each in value)
    slots = (getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name))
    cells = (cell.cell_contents for cell in getattr(value, "__closure__", None) or ())
    attributes = getattr(value, "__dict__", {}).values() if type(value).__module__.startswith("unpool") else ()
    return sum(nbytes_of(each, depth - 1) for each in (*slots, *cells, *attributes))


def total_bytes() -> int:
    """Bytes in all caches."""
    return sum(entry.size for each in _caches for entry in each.entries.copy().values())


def count_bytes(size: int) -> None:
    """Note that `size` bytes were added to a cache, and evict the least recently used results beyond the limit."""
    global _uncounted
    _uncounted += size
    if _uncounted * _COUNT_PARTS < MAX_BYTES:
        return
    _uncounted = 0
    if total_bytes() > MAX_BYTES:
        entries = [entry for each in _caches for entry in _entries_of(each)]
        _evict(entries, lambda _, size: size <= MAX_BYTES * 3 // 4)


def _entries_of(owner: LruCache[Any, Any]) -> list[tuple[LruCache[Any, Any], Hashable, _Entry]]:
    return [(owner, key, entry) for key, entry in owner.entries.copy().items()]


def _evict(entries: list[tuple[LruCache[Any, Any], Hashable, _Entry]], is_enough: Callable[[int, int], bool]) -> None:
    entries.sort(key=lambda each: each[2].used)
    sizes = [entry.size for _, _, entry in entries]
    entries_left, size = len(entries), sum(sizes)
    for (owner, key, _), freed_bytes in zip(entries, sizes, strict=True):
        if is_enough(entries_left, size):
            break
        owner.entries.pop(key, None)
        entries_left, size = entries_left - 1, size - freed_bytes
    shortcuts.clear()
