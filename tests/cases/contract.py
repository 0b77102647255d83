"""Every example of the contract, sections 1 to 8, as a named case with its expected values typed in."""

from pathlib import Path

from tests.cases.record import Case, read_cases

FILES = ("max_unpool", "max_pool", "conv_transpose", "types", "nhwc")
CASES: list[Case] = [case for name in FILES for case in read_cases(Path(__file__).with_name(f"{name}.txt"))]

RULES: tuple[str, ...] = (
    *(f"1.{i}" for i in range(1, 6)),
    *(f"2.{i}" for i in range(1, 8)),
    *(f"3.{i}" for i in range(1, 19)),
    *(f"4.{i}" for i in range(1, 18)),
    *(f"6.{i}" for i in range(1, 7)),
)
