"""Zeros, with every element of x where its index says: what is asked for, and the kernels in their order."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import bits_of
from unpool.kernels.gpu.launch import LIMIT32
from unpool.kernels.gpu.max_unpool import cells, judge, owners, windows

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
"""Writes y of (x, indices, y, whether y is the caller's memory); returns the verdict, see `judge.py`.

x and y have no gaps and one layout; indices are int64 (N, C, d1..dk) without gaps in either layout.
"""


@dataclass(frozen=True, slots=True)
class Unpool:
    """One call.

    Attributes:
        axes: one per spatial axis, whose large size is that of y.
        inferred: spatial sizes in which indices may count instead.
        batch: N.
        channels: C.
        kind: of the elements, as `unpool.dtypes` calls it.
        index_space: "output", "inferred" or "auto".
        is_channels_last: whether x and y are (N, D1..Dk, C) in memory.
        per_plane: whether indices count inside their own plane, rather than in the whole tensor.
        activation: its name, "" for none.
        params: what it takes.
    """

    axes: tuple[Axis, ...]
    inferred: tuple[int, ...]
    batch: int
    channels: int
    kind: str
    index_space: str = "output"
    is_channels_last: bool = False
    per_plane: bool = False
    activation: str = ""
    params: tuple[float, ...] = ()

    @property
    def planes(self) -> int:
        """N * C."""
        return self.batch * self.channels

    @property
    def small(self) -> int:
        """Elements of a plane of x."""
        return math.prod(axis.small for axis in self.axes)

    @property
    def large(self) -> int:
        """Elements of a plane of y."""
        return math.prod(axis.large for axis in self.axes)

    @property
    def spaces(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sizes that indices may count in: those of y, and the inferred ones, where these are in question."""
        large = tuple(axis.large for axis in self.axes)
        return large, large if self.index_space == "output" else self.inferred

    @property
    def is_wide(self) -> bool:
        """Whether places have 64 bits."""
        reach = max(axis.small * axis.window.stride + axis.window.size + axis.begin for axis in self.axes)
        return max(self.planes * max(self.large, self.small), reach) >= LIMIT32


def launch(unpool: Unpool) -> Run:
    """What computes a call."""
    judged, by_owners = judge.launch(unpool), owners.launch(unpool)
    is_one_pass = unpool.index_space == "output" and cells.fits(unpool.axes, is_channels_last=unpool.is_channels_last)
    at_once = cells.launch(unpool, judges=True) if is_one_pass else None
    if_near = cells.launch(unpool, waits=True) if is_one_pass else windows.launch(unpool)

    def run(x: torch.Tensor, indices: torch.Tensor, y: torch.Tensor, is_callers: bool) -> torch.Tensor:
        verdict = judge.blank(indices.device)
        elements, places = bits_of(x), bits_of(y)
        if at_once and not is_callers:
            at_once(elements, indices, places, verdict)
        else:
            judged(indices, verdict)
            if_near(elements, indices, places, verdict)
        by_owners(elements, indices, places, verdict, is_callers)
        return verdict

    return run
