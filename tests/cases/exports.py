"""Modules to export, with the operators that the file must have: pools, unpoolings, transposed convolutions, nets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from tests.support import networks

POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
UNPOOLS = {1: nn.MaxUnpool1d, 2: nn.MaxUnpool2d, 3: nn.MaxUnpool3d}
GROWS = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
EVEN, ODD = (8, 6, 4), (7, 9, 5)


class RoundTrip(nn.Module):
    """MaxPool with indices, then MaxUnpool, back to the size of the input when `sized`."""

    def __init__(self, rank, sized, kernel, stride=None, padding=0, dilation=1, ceil_mode=False, reach=None):
        super().__init__()
        self.pool = POOLS[rank](kernel, stride, padding, dilation, return_indices=True, ceil_mode=ceil_mode)
        self.unpool = UNPOOLS[rank](reach or kernel, stride, padding)
        self.rank, self.sized = rank, sized

    def forward(self, x):
        values, indices = self.pool(x)
        size = x.shape[-self.rank :] if self.sized else None
        return self.unpool(values, indices, output_size=size)


class TwoLevels(nn.Module):
    """Two pools and two unpoolings; the inner indices stay in use outside, as a third output."""

    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        half, outer = self.pool(x)
        quarter, inner = self.pool(half)
        grown = self.unpool(quarter, inner, output_size=half.shape)
        return self.unpool(torch.relu(grown), outer, output_size=x.shape), inner


class Doubled(nn.Module):
    """A pool whose indices unpool into planes of another size than it had."""

    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(3, 3)

    def forward(self, x):
        return self.unpool(*self.pool(x))


@dataclass(frozen=True)
class ExportCase:
    """A module and its inputs.

    `dynamic` are the axes of every input that stay open, by name; `others` are inputs of other sizes for them. `pools`
    and `unpools` count the nodes that the file must have, `indexed` of the pools with a second output.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, ...]
    pools: int = 0
    indexed: int = 0
    unpools: int = 0
    grows: int = 0
    dynamic: tuple[int, ...] = ()
    others: tuple[tuple[torch.Tensor, ...], ...] = ()
    tolerance: float = 0.0

    def module(self):
        """The module with seeded weights, in the type of the inputs, in evaluation mode."""
        torch.manual_seed(20)
        return self.build().to(self.inputs[0].dtype).eval()


def noise(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def descending(*shape):
    """Noise from high to low: every window's largest value is its first."""
    return noise(*shape).flatten().sort(descending=True).values.reshape(shape)


def round_trip(name, rank, sized, *setting, shape=None, dtype=torch.float32, **options):
    """The case of one pool and one unpooling."""
    x = noise(*(shape or (2, 3, *ODD[:rank])), dtype=dtype)
    case = partial(ExportCase, name, lambda: RoundTrip(rank, sized, *setting, **options), (x,))
    return case(pools=1, indexed=1, unpools=1)


def round_trips():
    for rank in (1, 2, 3):
        name = f"{rank}-D"
        yield round_trip(f"{name} round trip", rank, False, 2, shape=(2, 3, *EVEN[:rank]))
        narrowed = descending(2, 3, *((4, 5, 6) if rank == 3 else ODD[:rank]))
        build = partial(RoundTrip, rank, False, 2)
        yield ExportCase(f"{name} round trip, odd size without output_size", build, (narrowed,), 1, 1, 1)
        yield round_trip(f"{name} round trip, odd size", rank, True, 2)
        yield round_trip(f"{name} round trip, k3s2p1", rank, False, 3, 2, 1)
        yield round_trip(f"{name} round trip, k3s2p1, output_size", rank, True, 3, 2, 1, shape=(2, 3, *EVEN[:rank]))
        yield round_trip(f"{name} round trip without a batch", rank, True, 2, shape=(3, *ODD[:rank]))
    yield round_trip("2-D round trip, k3s1p1", 2, True, 3, 1, 1)
    yield round_trip("2-D round trip, k3s3", 2, True, 3)
    yield round_trip("2-D round trip, k2s3", 2, True, 2, 3)
    yield round_trip("2-D round trip, k(2,3)s(1,2)p(1,0)", 2, True, (2, 3), (1, 2), (1, 0))
    yield round_trip("2-D round trip, k2s1p1 grows", 2, True, 2, 1, 1)
    yield round_trip("2-D round trip, ceil_mode", 2, True, 2, ceil_mode=True)
    yield round_trip("2-D round trip, k3s2p1, ceil_mode", 2, True, 3, 2, 1, ceil_mode=True, shape=(2, 3, 8, 9))
    yield round_trip("2-D round trip, dilation", 2, True, 3, 2, dilation=2, reach=5, shape=(2, 3, 9, 11))
    yield round_trip("2-D round trip, one plane", 2, True, 2, shape=(1, 1, 7, 9))
    yield ExportCase("2-D round trip, two levels", TwoLevels, (noise(2, 3, 11, 14),), 2, 2, 2)
    yield ExportCase("2-D unpooling into larger planes", Doubled, (noise(2, 3, 6, 8),), 1, 1, 1)
    for rank in (1, 2, 3):
        inputs = POOLS[rank](2, return_indices=True)(noise(2, 3, *EVEN[:rank]))
        yield ExportCase(f"{rank}-D unpooling of inputs", partial(UNPOOLS[rank], 2), inputs, unpools=1)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        yield round_trip(f"2-D round trip, {str(dtype).removeprefix('torch.')}", 2, True, 2, dtype=dtype)


def pools():
    settings = {
        "k2": {"kernel_size": 2},
        "k3s2p1": {"kernel_size": 3, "stride": 2, "padding": 1},
        "dilation": {"kernel_size": 2, "stride": 1, "dilation": 2},
        "ceil_mode": {"kernel_size": 2, "ceil_mode": True},
        "k3s2p1, ceil_mode": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    }
    for rank in (1, 2, 3):
        x = noise(2, 3, *EVEN[:rank]) if rank < 3 else noise(2, 3, 5, 6, 7)
        for what, setting in settings.items():
            build = partial(POOLS[rank], **setting, return_indices=True)
            yield ExportCase(f"{rank}-D indices, {what}", build, (x,), pools=1, indexed=1)
        yield ExportCase(
            f"{rank}-D indices without a batch", partial(POOLS[rank], 2, return_indices=True), (x[0],), 1, 1
        )
        yield ExportCase(f"{rank}-D pool, k3s2p1", partial(POOLS[rank], 3, 2, 1), (x,), pools=1)
    everything = partial(nn.MaxPool2d, 3, 2, 1, 2, return_indices=True, ceil_mode=True)
    yield ExportCase("2-D indices, padding, dilation and ceil_mode", everything, (noise(2, 3, 9, 10),), 1, 1)
    yield ExportCase("2-D pool, k1s2, ceil_mode", partial(nn.MaxPool2d, 1, 2, ceil_mode=True), (noise(2, 3, 8, 6),), 1)
    yield ExportCase(
        "2-D pool, k3s2p1, ceil_mode", partial(nn.MaxPool2d, 3, 2, 1, ceil_mode=True), (noise(2, 3, 8, 6),), 1
    )
    yield ExportCase("2-D pool without a batch", partial(nn.MaxPool2d, 2), (noise(3, 8, 6),), pools=1)


def transposed_convolutions():
    settings = {
        "k3": {},
        "s2p1, output_padding": {"stride": 2, "padding": 1, "output_padding": 1},
        "groups": {"groups": 2, "stride": 2},
        "depthwise": {"groups": 4},
        "dilation": {"dilation": 2, "bias": False},
        "everything": {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2, "dilation": 2},
    }
    for rank in (1, 2, 3):
        for what, setting in settings.items():
            build = partial(GROWS[rank], 4, 8, 3, **setting)
            x = noise(2, 4, *ODD[:rank])
            yield ExportCase(f"{rank}-D ConvTranspose, {what}", build, (x,), grows=1, tolerance=1e-5)
    double = noise(2, 4, 5, 7, dtype=torch.float64)
    yield ExportCase(
        "2-D ConvTranspose, float64", partial(nn.ConvTranspose2d, 4, 8, 3, 2), (double,), grows=1, tolerance=1e-12
    )


def dynamic():
    """Cases with open axes, and inputs of other sizes."""
    for rank, sized in ((1, True), (2, True), (3, True), (2, False)):
        name = f"{rank}-D round trip" + ("" if sized else " without output_size")
        x, larger = noise(2, 3, *(8, 6, 10)[:rank]), [11, 7, 13] if sized else [12, 8, 14]
        counts = {"pools": 1, "indexed": 1, "unpools": 1}
        build = partial(RoundTrip, rank, sized, 2)
        batches = ((noise(5, *x.shape[1:]),),)
        yield ExportCase(f"{name}, any batch", build, (x,), **counts, dynamic=(0,), others=batches)
        axes, others = (0, *range(2, rank + 2)), ((noise(3, 3, *larger[:rank]),), (noise(1, *x.shape[1:]),))
        yield ExportCase(f"{name}, any batch and size", build, (x,), **counts, dynamic=axes, others=others)
    x, others = noise(2, 3, 8, 10), ((noise(1, 3, 9, 13),), (noise(4, 3, 10, 8),))
    counts = {"pools": 1, "indexed": 1, "dynamic": (0, 2, 3), "others": others}
    yield ExportCase(
        "2-D round trip, k3s2p1, any size", partial(RoundTrip, 2, True, 3, 2, 1), (x,), unpools=1, **counts
    )
    yield ExportCase(
        "2-D round trip, ceil_mode, any size", partial(RoundTrip, 2, True, 2, ceil_mode=True), (x,), unpools=1, **counts
    )
    yield ExportCase("2-D indices, any size", partial(nn.MaxPool2d, 2, return_indices=True), (x,), **counts)
    x, others = noise(2, 4, 5, 7), ((noise(3, 4, 6, 4),),)
    build = partial(nn.ConvTranspose2d, 4, 8, 3, 2, 1)
    yield ExportCase(
        "2-D ConvTranspose, any size", build, (x,), grows=1, dynamic=(0, 2, 3), others=others, tolerance=1e-5
    )


def whole_networks():
    for name, counts in {"SegNet": (3, 3, 3, 1), "ENet": (3, 2, 2, 3), "U-Net 2-D": (2, 0, 0, 2)}.items():
        network, x = networks.build(name)
        yield ExportCase(name, lambda network=network: network, (x,), *counts, tolerance=1e-4)


CASES = {
    case.name: case
    for family in (round_trips, pools, transposed_convolutions, dynamic, whole_networks)
    for case in family()
}
