"""Errors that come late: none is lost, and none is raised twice."""

import threading

import pytest
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu import index_checks

pytestmark = pytest.mark.usefixtures("none_pending")


def put(number):
    """Judge a call later; its error says the number, and 0 is no error."""
    index_checks.raise_or_defer(
        torch.tensor([number]), "later", lambda found: IndicesError(str(found[0])) if found[0] else None
    )


def test_errors_come_in_the_order_of_the_calls():
    """Each is raised once, the first one first, and what was right is passed over."""
    for number in (0, 1, 0, 2):
        put(number)
    for number in (1, 2):
        with pytest.raises(IndicesError, match=rf"^{number}$"):
            index_checks.raise_pending()
    index_checks.raise_pending()


def test_an_error_that_many_calls_follow_is_not_lost(monkeypatch):
    """Once the most results are awaited, the next call raises the error of the oldest."""
    monkeypatch.setattr(index_checks, "_MAX_PENDING", 3)
    for number in (7, 0, 0):
        put(number)
    with pytest.raises(IndicesError, match=r"^7$"):
        put(0)
    assert len(index_checks._pending) == 3


def test_threads_share_the_errors():
    """Threads that ask at the same time raise every error once."""
    count, raised, lock = 400, [], threading.Lock()
    for number in range(1, count + 1):
        put(number)

    def ask():
        while index_checks._pending:
            try:
                index_checks.raise_known()
            except IndicesError as error:
                with lock:
                    raised.append(int(str(error)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(raised) == list(range(1, count + 1))
