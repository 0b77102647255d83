"""How many cores this process may use: those that it may run on, and no more than its control groups grant it."""

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from unpool.memory_limits import cgroup_folders, read_text


def available() -> int:
    """Cores that this process may use, 1 or more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, granted() or cores)


@cache
def granted(root: str = "/") -> int | None:
    """Cores whose time the control groups of this process grant it; part of a core counts as one, None is no limit.

    Args:
        root: the folder with /proc and /sys.
    """
    found = [cores for group in cgroup_folders("cpu", Path(root)) for cores in _quota(group)]
    return max(1, math.ceil(min(found))) if found else None


def _quota(group: Path) -> Iterator[float]:
    """Microseconds of time in every period, as a number of cores; nothing where there is no limit."""
    found = (
        read_text(group / "cpu.max")
        or f"{read_text(group / 'cpu.cfs_quota_us')} {read_text(group / 'cpu.cfs_period_us')}"
    )
    words = found.split()
    if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
        yield int(words[0]) / int(words[1])
