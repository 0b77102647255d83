"""How much memory this process may take, as far as the system says."""

import os
from functools import cache
from pathlib import Path

UNKNOWN = 2**47
"""Bytes, the usual address space: where the system does not tell."""

_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MEMINFO = "/proc/meminfo"


def allowance() -> int:
    """Bytes that this process may ever have: of the machine, of its control group, of its limit on addresses."""
    return min(_fixed(), _address_space())


def at_hand() -> int:
    """Bytes that can be had at the moment without taking them from other processes; swap counts."""
    words = {line.split(":")[0]: line.split() for line in _text(_MEMINFO).splitlines()}
    if "MemAvailable" not in words:
        return UNKNOWN
    return sum(int(words[name][1]) << 10 for name in ("MemAvailable", "SwapFree") if name in words)


@cache
def _fixed() -> int:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = UNKNOWN
    groups = (_text(path).strip() for path in _groups())
    return min(machine, *(int(text) for text in groups if text.isdigit()), UNKNOWN)


def _groups() -> list[str]:
    """Files that may hold the limit of this process's control group: its own, and the whole container's."""
    own = [line.split(":", 2) for line in _text("/proc/self/cgroup").splitlines() if line.count(":") >= 2]
    paths = [f"/sys/fs/cgroup{path}/memory.max" for _, names, path in own if not names]
    paths += [f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes" for _, names, path in own if "memory" in names]
    return [*_GROUPS, *paths]


def _address_space() -> int:
    try:
        import resource
    except ImportError:
        return UNKNOWN
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return UNKNOWN if soft < 0 or soft == resource.RLIM_INFINITY else soft


def _text(path: str) -> str:
    """What a file of the system says; nothing where there is no such file."""
    try:
        return Path(path).read_text()
    except (OSError, ValueError):
        return ""
