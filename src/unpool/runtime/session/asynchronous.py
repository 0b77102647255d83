"""Runs on threads of their own, whose results go to a function of the caller."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeAlias

from unpool.errors import UnpoolError
from unpool.execute import available_cores

Callback: TypeAlias = Callable[[Any, Any, str], Any]

MOST_THREADS = 4
"""Runs at a time: each uses several cores itself."""


class AsyncRuns:
    """Threads for the runs of one session, started with the first run.

    Args:
        threads: that the session may use; None for all cores.
    """

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    def start(self, run: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
        """Run on another thread, and call the function there: with results, data and "", or with [], data and words.

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
                self._pool = ThreadPoolExecutor(min(threads, MOST_THREADS), "unpool-async")
        self._pool.submit(_answer, run, callback, user_data).add_done_callback(_raise_on)


def _answer(run: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
    results: list[Any] = []
    words = ""
    try:
        results = run()
    except Exception as error:
        words = str(error) or type(error).__name__
    callback(results, user_data, words)


def _raise_on(future: Any) -> None:
    """What the caller's function raises is printed by the thread, as nobody waits for it."""
    future.result()
