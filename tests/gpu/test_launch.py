"""Launches without a kernel: what goes through Triton once, and what every later launch passes."""

import pytest
import torch

from unpool.kernels.gpu import launch
from unpool.kernels.gpu.launch import Launcher


class Kernel:
    """Notes what it is compiled with, and what the compiled kernel is started with."""

    def __init__(self):
        self.compiled, self.started = [], []

    def __getitem__(self, grid):
        if len(grid) == 3:
            return lambda *operands: self.started.append(operands)

        def compile_and_start(*operands, **options):
            self.compiled.append(operands)
            return self

        return compile_and_start


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """As with Triton's compiler: its interpreter starts every kernel again."""
    monkeypatch.setattr(launch, "INTERPRETED", False)


def test_later_launches_pass_addresses():
    """The first one has tensors, as bits but for those that the kernel takes as floats; numbers stay numbers."""
    kernel, x, y = Kernel(), torch.zeros(8), torch.zeros(8, dtype=torch.float16)
    launcher = Launcher(kernel, 2, "args", "meta", floats=(0,))
    for _ in range(3):
        launcher(x, y, True)

    ((first, second, *others),) = kernel.compiled
    assert (first.dtype, second.dtype) == (torch.float32, torch.int16)
    assert others == [True, "args", "meta"]
    assert kernel.started == [(x.data_ptr(), y.data_ptr(), True, "args", "meta")] * 2


def test_alignment_is_compiled_for():
    """A tensor at an address that 16 does not divide needs a kernel of its own."""
    kernel, x = Kernel(), torch.zeros(12)
    launcher = Launcher(kernel, 1, "args", "meta")
    for start in (0, 1, 4, 5, 0):
        launcher(x[start:])

    assert len(kernel.compiled) == 2
    assert len(kernel.started) == 3


def test_nothing_is_launched_for_nothing():
    """Without programs, no kernel is compiled."""
    kernel = Kernel()
    Launcher(kernel, 0, "args", "meta")(torch.zeros(0))

    assert not kernel.compiled
