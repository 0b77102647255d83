"""System calls of Linux that workers use, by their numbers: the C library has no functions for all of them."""

from typing import NamedTuple


class LinuxCalls(NamedTuple):
    """Numbers of system calls."""

    futex: int
    sched_setaffinity: int
    sched_getaffinity: int


LINUX_CALLS = {"x86_64": LinuxCalls(202, 203, 204), "aarch64": LinuxCalls(98, 122, 123)}
"""By machine, as `platform.machine` has it."""

FUTEX_WAIT, FUTEX_WAKE = 128, 129  # only between threads of one process
