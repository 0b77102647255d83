"""Copies between (N, C, D1..Dk) and (N, D1..Dk, C): the last two axes of (N, rows, columns) change places."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.elements import bits_of
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks, power_of_two

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor], None]  # writes the transposes of x to y, bits without gaps

_SIDE = 64


class _MatrixSize(NamedTuple):
    """Arguments of the kernel in addition to its tensors: the size of a matrix of x."""

    rows: int
    columns: int


@dataclass(frozen=True)
class _TransposeMeta:
    """Constants of the compiled kernel: sides of a block, and whether places have 64 bits."""

    rows: int
    columns: int
    is_wide: bool


def transpose(batch: int, rows: int, columns: int) -> Run:
    """A function that transposes `batch` matrices of (rows, columns)."""
    is_wide = batch * rows * columns >= LIMIT32
    meta = _TransposeMeta(power_of_two(rows, _SIDE), power_of_two(columns, _SIDE), is_wide)
    programs = batch * blocks(rows, meta.rows) * blocks(columns, meta.columns)
    return Launcher(transpose_blocks, programs, _MatrixSize(rows, columns), meta)


def to_channels_last(batch: int, channels: int, places: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies (N, C, D1..Dk) without gaps to (N, D1..Dk, C); the copy keeps the shape of its input."""
    run = transpose(batch, channels, places)

    def copy(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(bits_of(x), bits_of(y))
        return y

    return copy


@triton.jit
def transpose_blocks(x, y, sizes, meta: tl.constexpr):
    """Transpose one block of a matrix."""
    ROWS: tl.constexpr = meta.rows
    COLUMNS: tl.constexpr = meta.columns
    number = tl.program_id(0)
    if meta.is_wide:
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
