"""Memory of this process: its limits, as far as the system states them, and what it uses."""

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

resource: ModuleType | None
try:
    import resource
except ImportError:  # not on Windows
    resource = None

UNKNOWN = 2**47
"""Bytes of a usual address space, if the system states no limit."""

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")


def memory_limit() -> int:
    """Bytes that this process may use: the least of the machine, its control group and its address space limit."""
    return min(_hard_limit(), _address_space())


def available() -> int:
    """Bytes that are free at the moment, including swap."""
    fields = {line.split(":")[0]: line.split() for line in read_text(_MEMINFO).splitlines()}
    if "MemAvailable" not in fields:
        return UNKNOWN
    return sum(int(fields[name][1]) << 10 for name in ("MemAvailable", "SwapFree") if name in fields)


def rss() -> int:
    """Resident bytes of this process; 0 if the system does not state them."""
    pages = read_text(_STATM).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def trim() -> None:
    """Return freed memory to the system, so that `rss` does not count it; only glibc can."""
    if sys.platform == "linux":
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if give_back is not None:
            give_back(0)


def peak_rss() -> int:
    """Largest number of resident bytes of this process so far; 0 if the system does not state it."""
    lines = {line.split(":")[0]: line.split() for line in read_text(_STATUS).splitlines()}
    if "VmHWM" in lines:
        return int(lines["VmHWM"][1]) << 10
    if resource is None:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


@cache
def _hard_limit() -> int:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = UNKNOWN
    limits = (
        read_text(group / "memory.max") or read_text(group / "memory.limit_in_bytes")
        for group in cgroup_folders("memory")
    )
    return min(machine, *(int(limit) for limit in limits if limit.strip().isdecimal()), UNKNOWN)


def _address_space() -> int:
    if resource is None:
        return UNKNOWN
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return UNKNOWN if soft < 0 or soft == resource.RLIM_INFINITY else soft


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders of control groups with limits of this process, outermost first; these limit a container (Linux).

    Args:
        controller: such as "cpu" or "memory", of version 1 or 2.
        root: the folder with /proc and /sys.
    """
    for line in read_text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in (controllers, controller) if controllers else ("", "unified"):
            for depth in range(len(names) + 1):
                yield root.joinpath("sys/fs/cgroup", mount, *names[:depth])


def read_text(path: Path) -> str:
    """The content of a file of the system; empty if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
