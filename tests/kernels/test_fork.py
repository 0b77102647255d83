"""A child computes, whatever other threads of its parent were doing when it was forked."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import unpool
from tests.support.guarded import forked

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]
X = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
MAXIMA = X[:, :, 1::2, 1::2]


def is_right() -> bool:
    return np.array_equal(unpool.max_pool(X, kernel_shape=[2, 2], strides=[2, 2]), MAXIMA)


def compile_one() -> bool:
    from numba import njit

    return njit(lambda x: x + 1)(1) == 2


@pytest.fixture(params=["compiler", "LLVM"])
def lock(request):
    """What a thread holds while it compiles."""
    from llvmlite.binding import ffi
    from numba.core.compiler_lock import global_compiler_lock

    assert is_right()
    assert compile_one()
    return global_compiler_lock if request.param == "compiler" else ffi.lib._lock


def hold(lock, seconds: float) -> threading.Thread:
    """Another thread, which has the lock for a while."""
    has_it = threading.Event()

    def work() -> None:
        with lock:
            has_it.set()
            time.sleep(seconds)

    thread = threading.Thread(target=work)
    thread.start()
    has_it.wait()
    return thread


def test_a_fork_waits_for_the_compiler(lock) -> None:
    """Forked while another thread compiles, the child can compile, and the parent too."""
    thread = hold(lock, 0.3)
    assert forked(compile_one) == 0
    assert compile_one()
    thread.join()


def test_a_fork_does_not_wait_for_ever(lock, monkeypatch) -> None:
    """Whoever compiles may wait for the thread that forks: after a while that goes on, with locks that are free."""
    from unpool import fork_safety

    monkeypatch.setattr(fork_safety, "MAX_SECONDS", 0.05)
    thread = hold(lock, 1)
    assert forked(compile_one) == 0
    thread.join()
    assert compile_one()


def test_a_fork_inside_a_compilation(lock) -> None:
    """Who compiles may fork: in both processes that goes on where it was."""
    with lock:
        assert forked(compile_one) == 0
        assert compile_one()
    assert forked(compile_one) == 0


def test_forks_of_several_threads(lock) -> None:
    """Threads that fork at once wait for each other, not for ever."""
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(forked(compile_one))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 3


IMPORTING = """
import sys, threading, time
from tests.kernels.test_fork import forked, is_right
thread = threading.Thread(target=is_right)
thread.start()
while {wanted!r} not in sys.modules and thread.is_alive():
    time.sleep(0)
code = forked(is_right)
thread.join()
sys.exit(code)
"""


@pytest.mark.parametrize("wanted", ["numba.core.types", "unpool.kernels.cpu.vector"])
def test_a_fork_waits_for_imports(wanted) -> None:
    """Forked while another thread's first call imports the kernels, the child can call them."""
    command = [sys.executable, "-c", IMPORTING.format(wanted=wanted)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def computed(_: int) -> bool:
    return is_right()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_processes(method) -> None:
    """However processes are started, while threads of the parent compute, they compute the same."""
    x = np.zeros((2, 8, 301, 303), np.float32)
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], threads=2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map_async(computed, range(4)).get(60) == [True] * 4
    finally:
        is_over.set()
        thread.join()
