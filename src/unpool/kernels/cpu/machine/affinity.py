"""The cores of this process: how many it may use, and on which of them a worker wakes."""

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from unpool.memory import cgroup_folders, read_text


def available_cores() -> int:
    """Cores that this process may run on, 1 or more, and no more than its control groups allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, quota() or cores)


@cache
def quota(root: str = "/") -> int | None:
    """Cores whose time the control groups of this process allow it; part of a core counts as one, None is no limit.

    Args:
        root: the folder with /proc and /sys.
    """
    quotas = [cores for group in cgroup_folders("cpu", Path(root)) for cores in _quota_of(group)]
    return max(1, math.ceil(min(quotas))) if quotas else None


def _quota_of(group: Path) -> Iterator[float]:
    """The time of every period, as a number of cores; nothing where there is no limit."""
    limit = (
        read_text(group / "cpu.max")
        or f"{read_text(group / 'cpu.cfs_quota_us')} {read_text(group / 'cpu.cfs_period_us')}"
    )
    words = limit.split()
    if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
        yield int(words[0]) / int(words[1])


def _find_getcpu() -> Callable[[], int] | None:
    """The function that returns the core of its caller; None where a program cannot place its threads."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


_getcpu = _find_getcpu()


def wake_on_other_core(thread: threading.Thread) -> set[int]:
    """Let a sleeping thread wake on another core than the caller's, where that is allowed.

    Linux looks for an idle core among those that share a cache. In a virtual machine it often knows of none, and a
    woken thread lands on the core of its waker, and waits there while other cores are idle: calls after a pause then
    take up to twice their time (docs/decisions/0001-python-threads.md).

    Returns:
        The cores for `restore_affinity` to give back; none where nothing has changed.
    """
    number = thread.native_id
    if _getcpu is None or number is None:
        return set()
    with suppress(OSError):  # the system may refuse, and nothing depends on it
        usual = os.sched_getaffinity(number)
        others = usual - {_getcpu()}
        if others and others != usual:
            os.sched_setaffinity(number, others)
            return usual
    return set()


def restore_affinity(cores: set[int]) -> None:
    """Let this thread run on these cores again, if there are any."""
    if cores:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
