"""Time of calls on the host: from Python until the kernels are queued, without waiting for the device.

With a stub of the launches this needs no GPU: tensors of the CPU take the way of those on a GPU, and no kernel starts.
That leaves out what Triton and CUDA take for each launch, which is why launches are counted too.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import unpool.torch
from benchmarks.gpu.device import Samples, summary
from unpool.arrays import GPU_DEVICE_TYPES
from unpool.kernels.gpu.launch import Launcher
from unpool.runtime.measure.timing import uncollected

CALLS = 2000
WARMUP = 100
SYNC_EVERY = 50
"""Calls after which the device is waited for, outside of the times: a full queue would make the host wait."""


@dataclass(frozen=True)
class HostCall:
    """One call by unpool and by PyTorch."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def host_calls(place: str) -> Mapping[str, HostCall]:
    """Calls on tensors so small that the device is faster than the host; 16-bit floats, which no fallback takes."""
    x = torch.rand(1, 8, 8, 8, device=place).half()
    y, indices = torch.nn.functional.max_pool2d(x.float(), 2, return_indices=True)
    y, w = y.half(), torch.rand(8, 8, 2, 2, device=place).half()
    ours, theirs, prepared = unpool.torch, torch.nn.functional, unpool.prepare_conv_transpose(w, strides=[2, 2])
    xs, ys, ws = (each.clone().requires_grad_() for each in (x, y, w))
    return {
        "pool with indices": HostCall(
            lambda: ours.max_pool2d(x, 2, return_indices=True), lambda: theirs.max_pool2d(x, 2, return_indices=True)
        ),
        "pool": HostCall(lambda: ours.max_pool2d(x, 2), lambda: theirs.max_pool2d(x, 2)),
        "unpool": HostCall(lambda: ours.max_unpool2d(y, indices, 2), lambda: theirs.max_unpool2d(y, indices, 2)),
        "ConvTranspose": HostCall(
            lambda: ours.conv_transpose2d(x, w, stride=2), lambda: theirs.conv_transpose2d(x, w, stride=2)
        ),
        "ConvTranspose, prepared weights": HostCall(
            lambda: prepared(x), lambda: theirs.conv_transpose2d(x, w, stride=2)
        ),
        "pool with indices, trained": HostCall(
            *(_trained(lambda m=m: m.max_pool2d(xs, 2, return_indices=True)[0], xs) for m in (ours, theirs))
        ),
        "unpool, trained": HostCall(
            *(_trained(lambda m=m: m.max_unpool2d(ys, indices, 2), ys) for m in (ours, theirs))
        ),
        "ConvTranspose, trained": HostCall(
            *(_trained(lambda m=m: m.conv_transpose2d(xs, ws, stride=2), xs, ws) for m in (ours, theirs))
        ),
    }


def _trained(forward: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Callable[[], Any]:
    """A call and its gradients."""

    @torch.enable_grad()
    def step() -> Any:
        y = forward()
        return torch.autograd.grad(y, leaves, torch.ones_like(y))

    return step


def host_time(call: Callable[[], Any], wait: Callable[[], None], calls: int | None = None) -> Samples:
    """Seconds of a call on the host; `wait` waits for the device."""
    found = []
    with torch.no_grad():
        for _ in range(WARMUP):
            call()
        with uncollected():
            for number in range(calls or CALLS):
                if number % SYNC_EVERY == 0:
                    wait()
                begin = time.perf_counter()
                call()
                found.append(time.perf_counter() - begin)
        wait()
        unpool.raise_pending()
    return summary(found)


def launches(call: Callable[[], Any]) -> int:
    """The number of kernels that a call of ours starts by Triton."""
    count, start = [0], Launcher.__call__

    def counted(launcher: Launcher, *operands: Any) -> None:
        count[0] += bool(launcher.programs)
        start(launcher, *operands)

    Launcher.__call__ = counted  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            call()
    finally:
        Launcher.__call__ = start  # type: ignore[method-assign]
    return count[0]


@contextmanager
def stubbed() -> Iterator[None]:
    """A block in which tensors of the CPU take the way of those on a GPU, and no kernel starts."""
    prepare, types = Launcher.prepare, set(GPU_DEVICE_TYPES)
    Launcher.prepare = lambda *_: _start_nothing  # type: ignore[method-assign]
    GPU_DEVICE_TYPES.add("cpu")
    try:
        yield
    finally:
        Launcher.prepare = prepare  # type: ignore[method-assign]
        GPU_DEVICE_TYPES.clear()
        GPU_DEVICE_TYPES.update(types)


def _start_nothing(*_: Any) -> None:
    """What a launch is with the stub."""
