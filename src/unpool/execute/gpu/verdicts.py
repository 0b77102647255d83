"""What is wrong with indices: only the device knows, and nobody waits for it without being asked.

Wrong indices never write outside a result. A result of our own is NaN then, and memory of the caller stays as it was.
The error comes at once with check="now". Otherwise the verdict is copied to the host behind the kernels, and raised by
the next call that finds it there, or by `raise_pending`, which waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unpool.errors import IndicesError

_MOST = 1024
_pending: deque["_Pending"] = deque(maxlen=_MOST)


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
        _pending.append(_Pending(verdict, None, describe))
    elif not torch.cuda.is_current_stream_capturing():
        host = torch.empty(verdict.shape, dtype=verdict.dtype, pin_memory=True)
        host.copy_(verdict, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(verdict.device))
        _pending.append(_Pending(host, event, describe))


def raise_known() -> None:
    """Raise the first error among the verdicts that have come, without waiting for others."""
    while _pending and _has_come(_pending[0].event):
        _raise(_pending.popleft())


def _has_come(event: Any) -> bool:
    """Whether the host has a verdict; while a CUDA graph is captured nobody asks, for that would end the capture."""
    return event is None or (not torch.cuda.is_current_stream_capturing() and event.query())


def raise_pending() -> None:
    """Wait for all verdicts, and raise the first error.

    Raises:
        IndicesError: an earlier call had an index outside its tensor.
    """
    while _pending:
        if _pending[0].event is not None:
            _pending[0].event.synchronize()
        _raise(_pending.popleft())


def _raise(pending: _Pending) -> None:
    error = pending.describe(pending.host.tolist())
    if error:
        raise error
