"""Every case by every engine that has it, on the GPU at hand; nothing is timed that has not been compared."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.util import find_spec

import numpy as np
import torch

import unpool
from benchmarks.case import Training
from benchmarks.compare import Outputs, differences
from benchmarks.engines import operator
from benchmarks.engines.pytorch import to_tensor
from benchmarks.gpu.cases import FORWARD, GpuCase
from benchmarks.gpu.device import Clock, Device, timed
from benchmarks.gpu.engines import ENGINES, Step, Tensors
from benchmarks.measure import DisagreementError, say
from benchmarks.rows import GpuDeviceRow, GpuRow
from benchmarks.values import random_values
from conformance.runtimes.pytorch import to_array


def tensors_of(case: GpuCase, rng: np.random.Generator, device: str) -> Tensors:
    """Random inputs of a case on a device; indices are those of torch, and channels-last is a memory format."""
    call = case.call
    arrays = dict(operator(call).arrays(call, rng))
    if "I" in arrays:
        arrays["I"] = unpool.to_torch_indices(arrays["I"], call.shape[2:])
    given = {name: to_tensor(each).to(device) for name, each in arrays.items()}
    if case.way != FORWARD:
        given["dY"] = to_tensor(random_values(call, rng, call.y_shape)).to(device)
    if call.layout == "NHWC":
        given["X"] = given["X"].movedim(-1, 1)
    return given


def measure(cases: Iterable[GpuCase], device: Device, clock: Clock, place: str = "cuda") -> Iterator[GpuRow]:
    """The results, case by case; `place` is where torch puts the tensors.

    Raises:
        DisagreementError: unpool's result is not that of PyTorch.
    """
    rng = np.random.default_rng(0)
    for case in cases:
        given = tensors_of(case, rng, place)
        with _cudnn(searches=False):
            steps = _agreeing(case, given)
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


def _agreeing(case: GpuCase, given: Tensors) -> dict[str, Step]:
    """The steps of all engines that have a case and give PyTorch's result; others are named and left out."""
    steps = {
        name: engine.prepare(case, given)
        for name, engine in ENGINES.items()
        if engine.takes(case) and (name != "cupy" or find_spec("cupy"))
    }
    answers = {name: _answer(step) for name, step in steps.items()}
    wrong = disagreements(case, answers)
    if "unpool" in wrong:
        raise DisagreementError(f"{case.path}: unpool gives {wrong['unpool']}.")
    for name, words in wrong.items():
        say(f"{case.path}: {name} is left out, it gives {words}")
    return {name: step for name, step in steps.items() if name not in wrong}


def disagreements(case: GpuCase, answers: dict[str, Outputs]) -> dict[str, str]:
    """What is wrong with each engine whose result is not PyTorch's."""
    call = case.call
    is_training = case.way != FORWARD
    compared = Training(suite="gpu", operator="training", name=call.name, shape=call.shape, dtype=call.dtype, call=call)
    return differences(compared if is_training else call, answers, "torch")


def _answer(step: Step) -> Outputs:
    return [to_array(each.detach().cpu()) for each in step()]
