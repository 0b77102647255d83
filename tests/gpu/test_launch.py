"""Launches without a GPU: what is compiled once, and what every launch passes to Triton or to CUDA's driver."""

import ctypes
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from unpool.kernels.gpu import launch
from unpool.kernels.gpu.launch import Launcher, kernel_arguments


class Size(NamedTuple):
    """Arguments of a kernel in addition to its tensors."""

    rows: int
    columns: int


SIZE = Size(5, 7)


class Kernel:
    """Notes what it is compiled with, and what Triton is asked to start."""

    def __init__(self, **metadata):
        self.compiled, self.started = [], []
        self.function = 1234
        self.metadata = SimpleNamespace(num_warps=4, shared=96, global_scratch_size=0, **metadata)
        self.src = SimpleNamespace(signature={})

    def warmup(self, *operands, grid, **options):
        self.compiled.append(operands)
        kinds = ["*i32" if isinstance(x, torch.Tensor) else "i1" for x in operands[:-2]]
        self.src.signature = dict(enumerate([*kinds, ("i32", "constexpr"), "constexpr"]))
        return self

    def __getitem__(self, grid):
        return lambda *values, stream: self.started.append((grid, *values))


class Driver:
    """CUDA's driver as far as launches use it: a kernel whose arguments have these sizes in bytes."""

    def __init__(self, sizes, codes=()):
        self.sizes, self.codes, self.launched = sizes, list(codes), []

    def cuFuncGetParamInfo(self, function, number, offset, size):  # noqa: N802 - named by CUDA
        if number.value >= len(self.sizes):
            return 1
        size._obj.value = self.sizes[number.value]
        return 0

    def cuLaunchKernel(self, function, *others):  # noqa: N802
        *grid, stream, parameters, _ = others
        pairs = zip(parameters, self.sizes, strict=True)
        passed = [int.from_bytes(ctypes.string_at(place, size), "little") for place, size in pairs]
        self.launched.append((function.value, [each.value for each in grid], stream.value, passed))
        return self.codes.pop(0) if self.codes else 0


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """As with Triton's compiler, whose interpreter starts every kernel again; and without CUDA."""
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "cuda_driver", lambda: None)


def test_launches_pass_addresses():
    """A kernel is compiled for tensors, as bits but for those that it takes as floats; numbers stay numbers."""
    kernel, x, y = Kernel(), torch.zeros(8), torch.zeros(8, dtype=torch.float16)
    launcher = Launcher(kernel, 2, SIZE, "meta", floats=(0,))
    for _ in range(3):
        launcher(x, y, True)
    ((first, second, *others),) = kernel.compiled
    assert (first.dtype, second.dtype) == (torch.float32, torch.int16)
    assert others == [True, SIZE, "meta"]
    assert kernel.started == [((2, 1, 1), x.data_ptr(), y.data_ptr(), True, SIZE, "meta")] * 3


def test_the_driver_gets_new_addresses_and_old_numbers(monkeypatch):
    """Constants of the kernel are no arguments; the scratch memory that Triton adds is null."""
    driver, kernel = Driver([8, 8, 1, 4, 8, 8]), Kernel()
    monkeypatch.setattr(launch, "cuda_driver", lambda: driver)
    launcher = Launcher(kernel, 3, SIZE, "meta")
    for x, y in ((torch.zeros(8), torch.zeros(4)) for _ in range(2)):
        launcher(x, y, True)
        number, grid, stream, passed = driver.launched[-1]
        assert (number, grid, stream) == (1234, [3, 1, 1, 128, 1, 1, 96], None)
        assert passed == [x.data_ptr(), y.data_ptr(), 1, 5, 0, 0]
    assert kernel.started == []


@pytest.mark.parametrize(
    ("sizes", "metadata"),
    [([8, 4, 4, 8, 8], {}), ([8, 1, 4, 8, 8, 8], {}), ([8, 1], {})]
    + [([8, 1, 4, 8, 8], each) for each in (
        {"profile_scratch_size": 128}, {"launch_cooperative_grid": True}, {"num_ctas": 2},
    )],
    ids=["another size", "too many", "too few", "scratch memory", "cooperative", "clusters"],
)  # fmt: skip
def test_triton_launches_what_the_driver_does_not_confirm(monkeypatch, sizes, metadata):
    """Nothing is launched with arguments that may be others."""
    driver, kernel, x = Driver(sizes), Kernel(**metadata), torch.zeros(8)
    monkeypatch.setattr(launch, "cuda_driver", lambda: driver)
    Launcher(kernel, 2, SIZE, "meta")(x, False)
    assert driver.launched == []
    assert kernel.started == [((2, 1, 1), x.data_ptr(), False, SIZE, "meta")]


def test_triton_launches_where_the_driver_fails(monkeypatch):
    """As in a thread that has no context of CUDA yet."""
    driver, kernel, x = Driver([8, 1, 4, 8, 8], codes=[201]), Kernel(), torch.zeros(8)
    monkeypatch.setattr(launch, "cuda_driver", lambda: driver)
    launcher = Launcher(kernel, 2, SIZE, "meta")
    launcher(x, True)
    launcher(x, True)
    assert len(kernel.started) == 1
    assert len(driver.launched) == 2


def test_unknown_types_are_left_to_triton():
    """Such as descriptors of tensors, and floats."""
    assert kernel_arguments(("*i32", "fp32"), (torch.zeros(1), 1.0)) is None
    assert kernel_arguments(("*i32", ("i32", ("fp64",))), (torch.zeros(1), (1, (1.0,)))) is None


def test_alignment_is_compiled_for():
    """A tensor at an address that 16 does not divide needs a kernel of its own."""
    kernel, x = Kernel(), torch.zeros(12)
    launcher = Launcher(kernel, 1, SIZE, "meta")
    for start in (0, 1, 4, 5, 0):
        launcher(x[start:])
    assert len(kernel.compiled) == 2
    assert len(kernel.started) == 5


def test_nothing_is_launched_for_nothing():
    """Without programs, no kernel is compiled."""
    kernel = Kernel()
    Launcher(kernel, 0, SIZE, "meta")(torch.zeros(0))
    assert not kernel.compiled
