"""Every case by every engine that has it, on the GPU at hand; nothing is timed that has not been compared."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.util import find_spec

import torch
from torch import Tensor

from benchmarks.compare import TOLERANCE
from benchmarks.gpu.cases import FORWARD, GpuCase
from benchmarks.gpu.device import Clock, Device, timed
from benchmarks.gpu.engines import ENGINES, Step, Tensors
from benchmarks.measure import DisagreementError, say
from benchmarks.rows import GpuDeviceRow, GpuRow


def tensors_of(case: GpuCase, device: str) -> Tensors:
    """Random inputs of a case, made on the device; indices are those of torch, and channels-last is a memory format."""
    call, kind = case.call, getattr(torch, case.call.dtype)
    generator = torch.Generator(device).manual_seed(0)

    def normal(shape: Sequence[int]) -> Tensor:
        return torch.randn(tuple(shape), generator=generator, device=device).to(kind)

    given = {"X": normal(call.shape)}
    if call.operator == "max_unpool":
        pool = getattr(torch.nn.functional, f"max_pool{call.rank}d")
        given["X"], given["I"] = pool(given["X"], call.window, call.stride, return_indices=True)
    if call.operator == "conv_transpose":
        given["W"] = normal(call.w_shape)
    if case.way != FORWARD:
        given["dY"] = normal(call.y_shape)
    if call.layout == "NHWC":
        given["X"] = given["X"].contiguous(memory_format=torch.channels_last)
    return given


def measure(
    cases: Iterable[GpuCase], device: Device, clock: Clock, place: str = "cuda", engines: Sequence[str] = tuple(ENGINES)
) -> Iterator[GpuRow]:
    """The results, case by case; `place` is where torch puts the tensors, `engines` are asked besides PyTorch.

    Raises:
        DisagreementError: unpool's result is not that of PyTorch.
    """
    for case in cases:
        given = tensors_of(case, place)
        with _cudnn(searches=False):
            steps = _agreeing(case, given, engines)
        for name, step in steps.items():
            with _cudnn(searches=ENGINES[name].searches):
                found = timed(step, clock)
            call, engine = case.call, ENGINES[name]
            say(f"{case.path} {name}: {found.median * 1e6:.1f} µs")
            yield GpuRow(
                call.operator, call.name, call.title, call.dtype, case.way, name, engine.release(), device.name,
                found.median, found.p95, case.bytes, case.flops, datetime.now(UTC).date().isoformat(),
            )  # fmt: skip


def _cudnn(*, searches: bool) -> AbstractContextManager[None]:
    """Let cuDNN search for its best algorithm, or not; float32 stays float32 for everyone."""
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, benchmark=searches, allow_tf32=False)
    return flags


def device_rows(device: Device) -> Sequence[GpuDeviceRow]:
    """What the device can do, as results."""
    today = datetime.now(UTC).date().isoformat()
    return [GpuDeviceRow(device.name, kind, device.copy, flops, today) for kind, flops in device.flops.items()]


def _agreeing(case: GpuCase, given: Tensors, engines: Sequence[str]) -> dict[str, Step]:
    """The steps of all engines that have a case and give PyTorch's result; others are named and left out.

    Sums are compared with those that PyTorch adds in float64.
    """
    steps = {
        name: engine.prepare(case, given)
        for name, engine in ENGINES.items()
        if name in engines and engine.takes(case) and (name != "cupy" or find_spec("cupy"))
    }
    if is_summed(case):
        given = {name: each.double() if each.is_floating_point() else each for name, each in given.items()}
    expected = ENGINES["torch"].prepare(case, given)()
    wrong = {}
    for name, step in steps.items():
        if words := disagreement(case, expected, step()):
            wrong[name] = words
    if "unpool" in wrong:
        raise DisagreementError(f"{case.path}: unpool gives {wrong['unpool']}.")
    for name, words in wrong.items():
        say(f"{case.path}: {name} is left out, it gives {words}")
    return {name: step for name, step in steps.items() if name not in wrong}


def is_summed(case: GpuCase) -> bool:
    """True if a result is rounded, so that engines may differ."""
    return case.way != FORWARD or case.call.operator == "conv_transpose"


def disagreement(case: GpuCase, expected: Sequence[Tensor], got: Sequence[Tensor]) -> str:
    """What is wrong with a result: pools and indices are as expected, sums and gradients close to it."""
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        one, other = one.detach(), other.detach()
        kind = getattr(torch, case.call.dtype) if one.dtype == torch.float64 else one.dtype
        if one.shape != other.shape or other.dtype != kind:
            return f"output {number} is {other.dtype}{list(other.shape)} instead of {kind}{list(one.shape)}"
        if not is_summed(case):
            if not torch.equal(one, other):
                return f"output {number}: {int((one != other).sum())} of {one.numel()} elements differ"
        elif one.numel():
            one, other = one.double(), other.double()
            error = float((one - other).abs().max() / one.abs().max().clamp_min(torch.finfo(torch.float64).tiny))
            if not error <= TOLERANCE[case.call.dtype]:
                return f"output {number}: largest error {error:.1e} of the largest value"
    return ""
