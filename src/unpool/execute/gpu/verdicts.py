"""What is wrong with indices: only the device knows, and nobody waits for it without being asked.

Wrong indices never write outside a result. A result of our own is NaN then, and memory of the caller stays as it was.
The error comes at once with check="now". Otherwise the verdict is copied to the host behind the kernels, and raised by
the next call that finds it there, or by `raise_pending`, which waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch

from unpool.errors import IndicesError

_MOST = 1024
"""Verdicts on their way; a further one waits for the oldest, so that none is lost."""

_pending: deque["_Pending"] = deque()
_lock = Lock()


@dataclass(frozen=True)
class _Pending:
    """A verdict on its way: `event` has happened when `host` has it; None where it is there."""

    host: torch.Tensor
    event: Any
    describe: Callable[[list[int]], IndicesError | None]


def judge(verdict: torch.Tensor, check: str, describe: Callable[[list[int]], IndicesError | None]) -> None:
    """Raise what a verdict says, now or later; `describe` makes the error of its numbers, None where all is right."""
    if check == "now":
        error = describe(verdict.tolist())
        if error:
            raise error
    elif not verdict.is_cuda:
        _keep(_Pending(verdict, None, describe))
    elif not torch.cuda.is_current_stream_capturing():
        host = torch.empty(verdict.shape, dtype=verdict.dtype, pin_memory=True)
        host.copy_(verdict, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(verdict.device))
        _keep(_Pending(host, event, describe))


def raise_known() -> None:
    """Raise the first error among the verdicts that have come, without waiting for others."""
    while _pending and (first := _first_if(_has_come)) is not None:
        _raise(first)


def _has_come(event: Any) -> bool:
    """Whether the host has a verdict; while a CUDA graph is captured nobody asks, for that would end the capture."""
    return event is None or (not torch.cuda.is_current_stream_capturing() and event.query())


def raise_pending() -> None:
    """Wait for all verdicts, and raise the first error.

    Raises:
        IndicesError: an earlier call had an index outside its tensor.
    """
    while (first := _first_if(lambda _: True)) is not None:
        _wait_and_raise(first)


def _keep(pending: _Pending) -> None:
    """Put a verdict behind the others."""
    with _lock:
        oldest = _pending.popleft() if len(_pending) >= _MOST else None
        _pending.append(pending)
    if oldest is not None:
        _wait_and_raise(oldest)


def _first_if(is_due: Callable[[Any], bool]) -> _Pending | None:
    """Take the oldest verdict, if there is one and its event is due; no other thread gets the same."""
    with _lock:
        return _pending.popleft() if _pending and is_due(_pending[0].event) else None


def _wait_and_raise(pending: _Pending) -> None:
    if pending.event is not None:
        pending.event.synchronize()
    _raise(pending)


def _raise(pending: _Pending) -> None:
    error = pending.describe(pending.host.tolist())
    if error:
        raise error
