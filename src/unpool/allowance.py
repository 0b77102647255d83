"""How much memory this process may take, as far as the system says."""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from unpool.control_groups import groups, text

resource: ModuleType | None
try:
    import resource
except ImportError:  # not on Windows
    resource = None

UNKNOWN = 2**47
"""Bytes, the usual address space: where the system does not tell."""

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")


def allowance() -> int:
    """Bytes that this process may ever have: of the machine, of its control group, of its limit on addresses."""
    return min(_fixed(), _address_space())


def at_hand() -> int:
    """Bytes that can be had at the moment without taking them from other processes; swap counts."""
    words = {line.split(":")[0]: line.split() for line in text(_MEMINFO).splitlines()}
    if "MemAvailable" not in words:
        return UNKNOWN
    return sum(int(words[name][1]) << 10 for name in ("MemAvailable", "SwapFree") if name in words)


def taken() -> int:
    """Bytes of memory that this process has now; 0 where the system does not tell."""
    pages = text(_STATM).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def trim() -> None:
    """Give memory that was freed back to the system, so that `taken` does not count it; only glibc can."""
    if sys.platform == "linux":
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if give_back is not None:
            give_back(0)


def peak() -> int:
    """Bytes of memory that this process has had at most; 0 where the system does not tell."""
    lines = {line.split(":")[0]: line.split() for line in text(_STATUS).splitlines()}
    if "VmHWM" in lines:
        return int(lines["VmHWM"][1]) << 10
    if resource is None:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


@cache
def _fixed() -> int:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = UNKNOWN
    found = (text(group / "memory.max") or text(group / "memory.limit_in_bytes") for group in groups("memory"))
    return min(machine, *(int(limit) for limit in found if limit.strip().isdecimal()), UNKNOWN)


def _address_space() -> int:
    if resource is None:
        return UNKNOWN
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return UNKNOWN if soft < 0 or soft == resource.RLIM_INFINITY else soft
