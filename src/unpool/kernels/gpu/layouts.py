"""Copies between (N, C, D1..Dk) and (N, D1..Dk, C): the last two axes of (N, rows, columns) change places."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.elements import bits_of
from unpool.kernels.gpu.launch import LIMIT32, Start, blocks, power_of_two

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor], None]
"""Writes y (N, columns, rows) of x (N, rows, columns), both bits without gaps."""

_SIDE = 64


class _Sizes(NamedTuple):
    """Of a matrix of x."""

    rows: int
    columns: int


class _Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    sizes: _Sizes


@dataclass(frozen=True)
class _How:
    """What the compiled kernel depends on: sides of a block, and whether places have 64 bits."""

    rows: int
    columns: int
    is_wide: bool


def exchange(batch: int, rows: int, columns: int) -> Run:
    """What copies so many matrices of (rows, columns)."""
    how = _How(power_of_two(rows, _SIDE), power_of_two(columns, _SIDE), batch * rows * columns >= LIMIT32)
    programs = batch * blocks(rows, how.rows) * blocks(columns, how.columns)
    return Start(copy_turned, programs, _Call(_Sizes(rows, columns)), how)


def channels_last(batch: int, channels: int, places: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """What copies (N, C, D1..Dk) without gaps to (N, D1..Dk, C); the copy has the shape that it had."""
    run = exchange(batch, channels, places)

    def copy(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(bits_of(x), bits_of(y))
        return y

    return copy


@triton.jit
def copy_turned(x, y, call, how: tl.constexpr):
    """One block of a matrix, turned."""
    ROWS: tl.constexpr = how.rows
    COLUMNS: tl.constexpr = how.columns
    sizes = call.sizes
    number = tl.program_id(0)
    if how.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(sizes.columns, COLUMNS)
    down = tl.cdiv(sizes.rows, ROWS)
    column = number % across * COLUMNS + tl.arange(0, COLUMNS)
    number = number // across
    row = number % down * ROWS + tl.arange(0, ROWS)
    first = number // down * sizes.rows * sizes.columns
    is_row, is_column = row < sizes.rows, column < sizes.columns
    block = tl.load(
        x + first + row[:, None] * sizes.columns + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0
    )
    places = y + first + column[:, None] * sizes.rows + row[None, :]
    tl.store(places, tl.trans(block), mask=is_column[:, None] & is_row[None, :])
