"""Memory of this process: its limits, what it uses, and the memory of outputs.

Outputs are checked against the limits, as far as the system states them, and recycled, except for small blocks.
The first touch of fresh memory costs about as much as writing it. So blocks of MIN_RECYCLED_BYTES or more go to a pool
when their last array is freed, and the next output of the same size takes them. UNPOOL_RECYCLE_BYTES in the environment
or `set_pool_limit` limit the pool; 0 turns it off.
"""

import _thread
import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import element_count

resource: ModuleType | None
try:
    import resource
except ImportError:  # not on Windows
    resource = None

MIN_RECYCLED_BYTES = 1 << 19  # smallest block of the pool: the allocator itself recycles smaller ones
MAX_BLOCKS = 64  # of the pool, which is searched linearly
DEFAULT_LIMIT = 1 << 29  # bytes of the pool, without a setting in the environment
SMALL = 1 << 24  # bytes below which an array is not checked: the allocation fails if there is no memory
LARGE = 1 << 30  # bytes from which an array is compared with the free memory, which takes 50 microseconds
UNKNOWN = 2**47  # bytes of a usual address space, if the system states no limit

PROC = Path("/proc")  # only on Linux
MAX_HEAP_BLOCK = 1 << 25  # bytes, of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h

_LINE = 64  # bytes; blocks start at a line of the cache

_size = attrgetter("nbytes")


class _BlockPool:
    """Free blocks, the most recently used at the end; without a lock, as single operations on a deque are atomic."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.blocks: deque[AnyArray] = deque()

    def take(self, size: int) -> tuple[AnyArray, bool]:
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
        self.blocks.append(block)
        self.trim()

    def trim(self) -> None:
        while len(self.blocks) > MAX_BLOCKS or sum(map(_size, self.blocks.copy())) > self.limit:
            try:
                self.blocks.popleft()
            except IndexError:
                break


class _Owner:
    """The base of an output's array, freed with its last view."""

    def __init__(self, block: AnyArray, is_recycled: bool) -> None:
        self.is_recycled = is_recycled
        self.__array_interface__ = block.__array_interface__
        self._life = _life(block, _pool.give)
        next(self._life)


def _life(block: AnyArray, give: Callable[[AnyArray], None]) -> Iterator[None]:
    """Hold a block, and return it to the pool when this generator is freed.

    A signal handler may run in any line of Python, and its exception is lost in a destructor. The end of a generator
    begins inside its `try`: Ctrl-C is caught there, and raised again as soon as the generator has ended.
    """
    try:
        try:
            yield
        finally:
            give(block)
    except KeyboardInterrupt:
        _again = _Interrupt()


class _Interrupt:
    """Raises Ctrl-C when it is freed, without running a line of Python."""

    __del__ = _thread.interrupt_main


_setting = os.environ.get("UNPOOL_RECYCLE_BYTES", "")
_pool = _BlockPool(int(_setting) if _setting.isascii() and _setting.isdigit() else DEFAULT_LIMIT)


def set_pool_limit(size: int) -> None:
    """Limit the pool of freed outputs to `size` bytes; 0 frees it and turns it off."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        fact = f"size is a number of bytes, 0 or more; got {size!r}"
        raise UnpoolError(f"set_pool_limit: {fact}. Pass 0 to keep nothing.")
    _pool.limit = size
    _pool.trim()


def pool_limit() -> int:
    """Largest number of bytes in the pool."""
    return _pool.limit


def free_pool() -> None:
    """Free the memory of earlier outputs that are no longer used."""
    _pool.blocks.clear()


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> AnyArray:
    """Uninitialised memory for an output; more bytes than this process may use are a ShapeError."""
    size = check(shape, dtype, where)
    try:
        if size < MIN_RECYCLED_BYTES or size > _pool.limit:
            return np.empty(shape, dtype)
        return np.asarray(_Owner(*_pool.take(size))).view(dtype).reshape(shape)
    except MemoryError as cause:
        raise _too_large(size, _array(shape, dtype), where, "has less left") from cause


class RuntimeOutput(np.ndarray[Any, Any]):
    """An output in memory of another runtime, which recycles it, and discards it if the call fails."""


def is_recycled(array: AnyArray) -> bool:
    """True if an array lies in a block of an earlier output: its pages need no first touch.

    >>> is_recycled(np.empty(3))
    False
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        if type(owner) is RuntimeOutput:
            return True
        owner = owner.base
    return isinstance(owner, _Owner) and owner.is_recycled


def check(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> int:
    """The bytes of an array; more than this process may use, or for a large array than are free, are a ShapeError."""
    needed = element_count((*shape, dtype.itemsize), where)
    if needed >= SMALL:
        check_bytes(needed, _array(shape, dtype), where)
    return needed


def _array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"an array of {'x'.join(map(str, shape))} {dtype.name}"


def check_bytes(needed: int, what: str, where: str) -> None:
    """As `check`, for a number of bytes, and the words of the error for what needs them."""
    limit = memory_limit()
    if needed > limit:
        raise _too_large(needed, what, where, f"may take {_gib(limit)}")
    if needed >= LARGE and needed > (free := available()):
        raise _too_large(needed, what, where, f"has {_gib(free)} left")


def _too_large(needed: int, what: str, where: str, limit: str) -> ShapeError:
    return ShapeError(f"{where}: {what} needs {_gib(needed)}, this process {limit}. Reduce sizes or work in tiles.")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


@contextmanager
def memory_errors(where: str, *arrays: Any) -> Iterator[None]:
    """Turn a MemoryError of the block into a ShapeError that names the shapes of the arrays."""
    try:
        yield
    except MemoryError as cause:
        raise memory_error(where, arrays, cause) from cause


def memory_error(where: str, arrays: Iterable[Any], cause: MemoryError) -> ShapeError:
    """The error of a call on some arrays that ran out of memory."""
    shapes = ", ".join(format_shape(each.shape) for each in arrays if hasattr(each, "shape"))
    detail = f" ({cause})" if str(cause) else ""
    return ShapeError(f"{where}: out of memory in a call on {shapes}{detail}. Reduce sizes or work in tiles.")


def memory_limit() -> int:
    """Bytes that this process may use: the least of the machine, its control group and its address space limit."""
    soft = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    is_limited = resource is not None and soft >= 0 and soft != resource.RLIM_INFINITY
    return min(_hard_limit(), soft if is_limited else UNKNOWN)


def available() -> int:
    """Bytes that are free at the moment, including swap; all of the machine where the system does not state them."""
    if sys.platform == "win32":
        return int(_machine_memory().commit_free) or UNKNOWN
    fields = _fields(PROC / "meminfo")
    if "MemAvailable" not in fields:
        return _hard_limit()
    return sum(int(fields[name][1]) << 10 for name in ("MemAvailable", "SwapFree") if name in fields)


def rss() -> int:
    """Resident bytes of this process; their peak where the system states no more, as macOS."""
    if sys.platform == "win32":
        return int(_process_memory().now)
    pages = read_text(PROC / "self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else peak_rss()


def trim_heap() -> None:
    """Return freed memory to the system, so that `rss` does not count it; only glibc can."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if malloc_trim is not None:
            malloc_trim(0)


def map_blocks(size: int = MAX_HEAP_BLOCK) -> None:
    """Let the allocator map blocks from `size` bytes on their own from now on: freed ones are no longer resident.

    glibc by itself puts blocks of up to 32 MiB into its heap, whose gaps stay resident: twice the memory in use. Only
    glibc can do otherwise. Touching fresh pages takes more time. As where glibc itself changes the size, up to twice as
    much stays free at the end of the heap.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, size)
            mallopt(_M_TRIM_THRESHOLD, 2 * size)


def peak_rss() -> int:
    """Largest number of resident bytes of this process so far; 0 if the system does not state it."""
    if sys.platform == "win32":
        return int(_process_memory().peak)
    fields = _fields(PROC / "self/status")
    if "VmHWM" in fields:
        return int(fields["VmHWM"][1]) << 10
    if resource is None:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


@cache
def _hard_limit() -> int:
    if sys.platform == "win32":
        return int(_machine_memory().total) or UNKNOWN
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = UNKNOWN
    limits = (
        read_text(group / "memory.max") or read_text(group / "memory.limit_in_bytes")
        for group in cgroup_folders("memory")
    )
    return min(machine, *(int(limit) for limit in limits if limit.strip().isdecimal()), UNKNOWN)


class _MachineMemory(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = [("size", ctypes.c_uint32), ("load", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64)
        for name in ("total", "free", "commit_limit", "commit_free", "addresses", "addresses_free", "extended_free")
    ]


class _ProcessMemory(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of Windows."""

    _fields_ = [("size", ctypes.c_uint32), ("page_faults", ctypes.c_uint32)] + [
        (name, ctypes.c_size_t)
        for name in ("peak", "now", "paged_peak", "paged", "non_paged_peak", "non_paged", "commit", "commit_peak")
    ]


def _machine_memory() -> Any:
    memory = _MachineMemory(ctypes.sizeof(_MachineMemory))
    _kernel32().GlobalMemoryStatusEx(ctypes.byref(memory))
    return memory


def _process_memory() -> Any:
    memory, this_process = _ProcessMemory(ctypes.sizeof(_ProcessMemory)), ctypes.c_void_p(-1)
    _kernel32().K32GetProcessMemoryInfo(this_process, ctypes.byref(memory), ctypes.sizeof(memory))
    return memory


def _kernel32() -> Any:
    windows: Any = ctypes
    return windows.WinDLL("kernel32")


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders of control groups that limit this process, outermost first, of version 1 or 2; a container has them."""
    for line in read_text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in (controllers, controller) if controllers else ("", "unified"):
            for depth in range(len(names) + 1):
                yield root.joinpath("sys/fs/cgroup", mount, *names[:depth])


def _fields(path: Path) -> dict[str, list[str]]:
    return {line.split(":")[0]: line.split() for line in read_text(path).splitlines()}


def read_text(path: Path) -> str:
    """The content of a file of the system; empty if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
