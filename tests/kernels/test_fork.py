"""A child computes, whatever other threads of its parent were doing when it was forked."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import unpool

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]
PATIENCE = 60.0
X = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
MAXIMA = X[:, :, 1::2, 1::2]


def is_right() -> bool:
    return np.array_equal(unpool.max_pool(X, kernel_shape=[2, 2], strides=[2, 2]), MAXIMA)


def compile_one() -> bool:
    from numba import njit

    return njit(lambda x: x + 1)(1) == 2


def forked(check: Callable[[], bool]) -> int:
    """The exit code of a child that exits with 0 if `check()` holds; one that hangs is ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    ended, deadline = 0, time.monotonic() + PATIENCE
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(status)


def compiler_lock():
    from numba.core.compiler_lock import global_compiler_lock

    return global_compiler_lock


def llvm_lock():
    from llvmlite.binding import ffi

    return ffi.lib._lock


@pytest.fixture(params=[compiler_lock, llvm_lock], ids=lambda lock: lock.__name__)
def lock(request):
    """What a thread holds while it compiles."""
    assert is_right()
    assert compile_one()
    return request.param()


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


def test_a_fork_waits_for_the_compiler(lock, monkeypatch) -> None:
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
import os, sys, threading, time
import numpy as np, unpool
x = np.ones((1, 1, 6, 6), np.float32)
call = lambda: unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
thread = threading.Thread(target=call)
thread.start()
while {wanted!r} not in sys.modules and thread.is_alive():
    time.sleep(0)
child = os.fork()
if child == 0:
    call()
    os._exit(0)
thread.join()
deadline = time.monotonic() + {patience}
while not (ended := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > deadline:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.01)
sys.exit(os.waitstatus_to_exitcode(ended[1]))
"""


@pytest.mark.parametrize("wanted", ["numba.core.types", "unpool.kernels.cpu.vector"])
def test_a_fork_waits_for_imports(wanted) -> None:
    """Forked while another thread's first call imports the kernels, the child can call them."""
    code = IMPORTING.format(wanted=wanted, patience=PATIENCE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
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
            assert pool.map_async(computed, range(4)).get(PATIENCE) == [True] * 4
    finally:
        is_over.set()
        thread.join()
