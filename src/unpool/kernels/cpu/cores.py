"""How many cores this process may use: those that it may run on, and no more than its control groups grant it."""

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path


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
    return max(1, math.ceil(min(found))) if (found := list(_quotas(Path(root)))) else None


def _quotas(root: Path) -> Iterator[float]:
    """Cores that each group grants, from the outermost that can be seen to that of this process."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in (controllers, "cpu") if controllers else ("", "unified"):
            for depth in range(len(names) + 1):
                yield from _quota(root.joinpath("sys/fs/cgroup", mount, *names[:depth]))


def _quota(group: Path) -> Iterator[float]:
    """Microseconds of time in every period, as a number of cores; nothing where there is no limit."""
    text = _text(group / "cpu.max") or f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
    words = text.split()
    if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
        yield int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    """A file, empty where it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
