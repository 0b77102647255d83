"""Asynchronous runs: on threads of their own, with results for a callback of the caller."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeAlias

from unpool.errors import UnpoolError
from unpool.execute import available_cores

Callback: TypeAlias = Callable[[Any, Any, str], Any]

MAX_THREADS = 4
"""Runs at the same time: each uses several cores itself."""


class AsyncRunner:
    """Threads for the runs of one session, started with the first run.

    Args:
        threads: that the session may use; None for all cores.
    """

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    def start(self, run: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
        """Run on another thread, and call `callback(results, user_data, error)` there; `error` is "" after success.

        Raises:
            UnpoolError: the session has only the thread of its caller.
        """
        threads = self._threads or available_cores()
        if threads < 2:
            raise UnpoolError(
                "run_async: expected a session of 2 threads or more, got 1. Set SessionOptions.intra_op_num_threads."
            )
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(min(threads, MAX_THREADS), "unpool-async")
        self._pool.submit(_run, run, callback, user_data).add_done_callback(_reraise)


def _run(run: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
    results: list[Any] = []
    message = ""
    try:
        results = run()
    except Exception as error:
        message = str(error) or type(error).__name__
    callback(results, user_data, message)


def _reraise(future: Any) -> None:
    """Raise an error of the callback, which the thread prints, because no code waits for the future."""
    future.result()
