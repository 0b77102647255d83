"""The benchmarks of a GPU, without one: what they count, compute from times and write, and that engines agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import shapes
from benchmarks.gpu import cases, device, run
from benchmarks.gpu.cases import FORWARD, TRAINING, GpuCase, matching_gpu
from benchmarks.gpu.device import Device
from benchmarks.gpu.page import page
from benchmarks.measure import DisagreementError
from benchmarks.pages import BEGIN, END
from benchmarks.rows import GpuDeviceRow, GpuRow, read
from tests.support.gpu import DEVICE, routed

pytestmark = pytest.mark.slow

POOL, UNPOOL, GROW = shapes.MAX_POOL[0], shapes.MAX_UNPOOL[0], shapes.CONV_TRANSPOSE[0]


class Mark:
    """An event that is never looked at."""

    def record(self):
        """Nothing to record."""


class Stopwatch:
    """A clock whose every step takes a part of the seconds after which no new sample begins."""

    def __init__(self, part=1.0):
        self.flushed, self.part = 0, part

    def flush(self, host):
        """Count instead."""
        self.flushed += 1

    def marks(self):
        """Two that record nothing."""
        return Mark(), Mark()

    def seconds(self, before, after):
        """Always the same."""
        return device.SECONDS * self.part


def small(call):
    """The call on a shape that the interpreter can do."""
    return replace(call, shape=(1, 4, *[4] * call.rank), channels=call.channels and 4, dtype="float32")


def row(engine, median, way=FORWARD, operator="max_pool", flops=0):
    """A result of 80 MB moved on a device that copies 1 GB/ms."""
    names = operator, "a case", "(1,2)", "float32", way, engine, "1.0", "a GPU"
    return GpuRow(*names, median, 2 * median, 80_000_000, flops, "2026-01-01")


DEVICES = [GpuDeviceRow("a GPU", "float32", 1e12, 2e13, "2026-01-01")]


def test_bytes_and_operations():
    """What a case has to move, by hand: with gradients, the inputs of both passes and the outputs of both."""
    pool, grow = replace(POOL, shape=(1, 2, 4, 4)), replace(GROW, shape=(1, 2, 4, 4), channels=3, window=2, pad=0)
    unpool = replace(UNPOOL, shape=(1, 2, 4, 4))

    assert (GpuCase(pool, FORWARD).bytes, GpuCase(pool, TRAINING).bytes) == (128 + 96, 224 + 32 + 64 + 128)
    assert GpuCase(unpool, TRAINING).bytes == (32 + 64 + 128) + (32 + 64 + 32)
    assert GpuCase(grow, TRAINING).bytes == (128 + 96 + 768) + (768 + 128 + 96 + 128 + 96)
    assert GpuCase(grow, TRAINING).flops == 3 * GpuCase(grow, FORWARD).flops == 3 * 2 * 32 * 3 * 4
    assert GpuCase(POOL, FORWARD).is_large
    assert not GpuCase(pool, FORWARD).is_large
    assert not GpuCase(GROW, FORWARD).is_large


def test_cases_have_names_of_their_own():
    """No result replaces that of another case, and every operator is there, both ways."""
    every = cases.cases()

    assert len({case.path for case in every}) == len(every)
    assert {(case.way, case.call.operator) for case in every} == {
        (way, name) for way in (FORWARD, TRAINING) for name in ("max_pool", "max_unpool", "conv_transpose")
    }
    with pytest.raises(ValueError, match="found none for nothing"):
        matching_gpu(["nothing"])


@pytest.mark.parametrize("way", [FORWARD, TRAINING])
def test_engines_agree(monkeypatch, way):
    """Every operator is asked for the same by unpool and PyTorch; what comes back are their times."""
    clock = Stopwatch()
    monkeypatch.setattr(device, "WARMUP", 0)
    monkeypatch.setattr(run, "ENGINES", {name: run.ENGINES[name] for name in ("unpool", "torch")})
    every = [GpuCase(small(call), way) for call in (POOL, UNPOOL, GROW)]
    every += [GpuCase(small(replace(POOL, layout="NHWC")), way)]
    with routed():
        found = list(run.measure(every, Device("a GPU", 1e12, {}), clock, DEVICE))

    assert [each.engine for each in found] == ["unpool", "torch"] * 4
    assert {each.median for each in found} == {device.SECONDS}


def test_a_wrong_result_is_not_timed(monkeypatch):
    """Where unpool and PyTorch differ, the run ends."""
    monkeypatch.setattr(run, "disagreement", lambda *_: "another number")
    with routed(), pytest.raises(DisagreementError, match="unpool gives another number"):
        list(run.measure([GpuCase(small(POOL), FORWARD)], Device("a GPU", 1e12, {}), Stopwatch(), DEVICE, ("unpool",)))


def test_page():
    """The table says times, the best peer's over ours, and shares of what the device can do; goals follow."""
    rows = [row("unpool", 1e-4), row("torch", 2e-4), row("compile", 1.5e-4)]
    rows += [row(name, time, TRAINING, "conv_transpose", 10**9) for name, time in (("unpool", 1e-4), ("cudnn", 9e-5))]
    text = page(rows, DEVICES)

    assert "| a case (1,2) | float32 | 0.100 | 0.200 | 0.200 | 0.150 | 1.50× | 800 | 80% | – | – |" in text
    assert "| a case (1,2) | float32 | 0.100 | 0.200 | 0.0900 | 0.90× | 800 | 80% | 10.0 | 50% |" in text
    assert "- 0 of 1 pools and unpoolings" in text
    assert "take cuDNN 0.90× as long as unpool in the geometric mean, 0.90× at least" in text


def test_command(monkeypatch, capsys, tmp_path):
    """Without a GPU one sentence says what is needed; with one, results and page are written."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["gpu"]) == 2
    assert "expected an NVIDIA GPU that torch can use, found none" in capsys.readouterr().err

    found = tmp_path / "page.md"
    found.write_text(f"before\n{BEGIN}\n{END}\nafter")
    monkeypatch.setattr(device, "check_device", lambda: None)
    monkeypatch.setattr(device, "Clock", Stopwatch)
    monkeypatch.setattr(device, "measured", lambda _: Device("a GPU", 1e12, {"float32": 2e13}))
    monkeypatch.setattr(run, "measure", lambda *_: [row("unpool", 1e-4), row("torch", 2e-4)])

    assert command.main(["gpu", "--page", str(found), "--results", str(tmp_path)]) == 0
    assert "| 2.0× |" in found.read_text()
    assert [each.engine for each in read(tmp_path / "gpu.csv", GpuRow)] == ["unpool", "torch"]
    assert np.isclose(read(tmp_path / "gpu_device.csv", GpuDeviceRow)[0].flops, 2e13)
