"""How threads share the parts of a call through Python: what the plain mode of `numba_seam.py` has for `board.py`.

Every part is a call of the kernel. A thread holds the interpreter lock in between, when it takes its next part.
"""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import Lock
from typing import Any


class Parts:
    """The parts of one call: who is first takes the next one."""

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...], first: int, stop: int, count: int) -> None:
        """As `kernel(*args, first, stop)`, in so many parts."""
        edges = [first + (stop - first) * part // count for part in range(count + 1)]
        self._kernel = kernel
        self._args = args
        self._left = deque(enumerate(pairwise(edges)))
        self._results = [0] * count
        self._raised: list[BaseException] = []
        self._at_work: list[Any] = []  # a lock for each helper, held until it has ended

    def help(self) -> None:
        """A worker's side: compute parts until none is left to take."""
        with (mine := Lock()):
            self._at_work.append(mine)
            self._work()

    def compute(self, wakes: list[Callable[..., None]]) -> list[int]:
        """The caller's side: what the parts give, in order, once nobody is at work any more.

        What the handler of a signal raises, such as Ctrl-C, may come between any two lines, and is raised afterwards.

        Args:
            wakes: each has a thread call what it is given, perhaps.
        """
        is_over = False
        while not is_over:
            try:
                while wakes:
                    wakes.pop()(self.help)
                self._work()
                for lock in self._at_work:
                    with lock:
                        pass
                is_over = True
            except BaseException as cause:
                self._raised.append(cause)
        self._args = ()
        if self._raised:
            raise self._raised.pop()
        return self._results

    def _work(self) -> None:
        while self._left:
            try:
                part, (start, stop) = self._left.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                self._results[part] = int(self._kernel(*self._args, start, stop) or 0)
            except Exception as cause:
                self._raised.append(cause)
