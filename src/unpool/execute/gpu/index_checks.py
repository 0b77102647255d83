"""Errors of indices on a GPU: the device finds them, and the host waits for them only on request.

Wrong indices never write outside an output: a new output is NaN then, and the caller's memory keeps its contents.
With check="now" the error is raised at once. Otherwise the result of the check is copied to the host on the stream of
the kernels, and the next call that finds it there raises the error, or `raise_pending`, which waits.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.indices import outside_its_plane

_MAX_PENDING = 1024
"""Checks whose results are awaited; a further one waits for the oldest, so that no error is lost."""

_pending: deque["_PendingCheck"] = deque()
_lock = Lock()


@dataclass(frozen=True)
class _PendingCheck:
    """A result on its way to `host`, where it is once `event` has happened; no event where it is there already."""

    host: torch.Tensor
    event: Any
    to_error: Callable[[list[int]], IndicesError | None]

    def raise_error(self) -> None:
        """Wait for the result, and raise its error."""
        if self.event is not None:
            self.event.synchronize()
        error = self.to_error(self.host.tolist())
        if error:
            raise error


def raise_or_defer(result: torch.Tensor, check: str, to_error: Callable[[list[int]], IndicesError | None]) -> None:
    """Raise the error of a check, now or later; `to_error` makes it of the result, None where all indices are right."""
    if check == "now":
        _PendingCheck(result, None, to_error).raise_error()
    elif not result.is_cuda:
        _defer(_PendingCheck(result, None, to_error))
    elif not torch.cuda.is_current_stream_capturing():
        host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        host.copy_(result, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(result.device))
        _defer(_PendingCheck(host, event, to_error))


def raise_known() -> None:
    """Raise the first error among the results that have arrived, without waiting for others."""
    if not _pending:
        return

    def has_arrived(event: Any) -> bool:  # no event is queried while a CUDA graph is captured, since that ends it
        return event is None or (not torch.cuda.is_current_stream_capturing() and event.query())

    while _pending and (first := _pop_if(has_arrived)) is not None:
        first.raise_error()


def raise_pending() -> None:
    """Wait for all results, and raise the first error."""
    while (first := _pop_if(lambda _: True)) is not None:
        first.raise_error()


def _defer(pending: _PendingCheck) -> None:
    with _lock:
        oldest = _pending.popleft() if len(_pending) >= _MAX_PENDING else None
        _pending.append(pending)
    if oldest is not None:
        oldest.raise_error()


def _pop_if(is_due: Callable[[Any], bool]) -> _PendingCheck | None:
    """Remove and return the oldest check if its event is due; no two threads get the same one."""
    with _lock:
        return _pending.popleft() if _pending and is_due(_pending[0].event) else None


def convert_indices(where: str, i: torch.Tensor, spatial: tuple[int, ...]) -> torch.Tensor:
    """The function of `unpool.indices` named `where`; an index outside its plane becomes -1, and is reported later."""
    raise_known()
    plane, shape = math.prod(spatial), tuple(i.shape)
    bases = torch.arange(i.shape[0] * i.shape[1], device=i.device).mul_(plane).view(*i.shape[:2], *[1] * len(spatial))
    is_to_torch = where == "to_torch_indices"
    in_plane = torch.where(i == -1, i, i - bases) if is_to_torch else i
    is_wrong = (in_plane < -1) | (in_plane >= plane)
    if i.numel():
        first = is_wrong.flatten().to(torch.uint8).argmax()
        result = torch.stack((is_wrong.any().to(torch.int64), first, in_plane.take(first)))

        def to_error(result: list[int]) -> IndicesError | None:
            is_outside, first, value = result
            place = map(int, np.unravel_index(first, shape))
            return outside_its_plane(where, plane, value, place) if is_outside else None

        raise_or_defer(result, "later", to_error)
    return torch.where(is_wrong | (in_plane == -1), -1, in_plane if is_to_torch else in_plane + bases)
