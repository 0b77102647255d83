"""Triton's compiler turns the kernels into machine code for an H100 or H200, without a GPU: what it says of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = 227 * 1024  # bytes of shared memory that a program may have on these devices
DENSE = {"add_products", "add_positions"}


def compiled(folder, *what):
    """What became of each kernel: see tests/support/compiled.py. Nothing is interpreted in that process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled", *what],
        cwd=Path(__file__).parents[2], env={**environment, "TRITON_CACHE_DIR": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(kernels):
    """No program spills registers or takes more shared memory than there is; launches pass the arguments it takes."""
    assert [each for each in kernels if each["STACK"] or each["LOCAL"] or each["shared"] > SHARED] == []
    assert kernels
    for each in kernels:
        passed, declared = each["arguments"]
        assert declared[: len(passed)] == passed, each
        assert declared[len(passed) :] in ([], [8], [8, 8]), each  # pointers to scratch memory, which no kernel uses


@pytest.mark.slow
def test_every_kernel(tmp_path):
    """Every type, rank and layout."""
    check(compiled(tmp_path, "all"))


@pytest.mark.slow
def test_large_tensors_have_places_of_64_bits(tmp_path):
    """Beyond 2**31 elements no kernel adds a place of 32 bits to a pointer; 16-bit floats meet on matrix units."""
    kernels = compiled(tmp_path, "wide")
    names = {each["kernel"] for each in kernels}
    assert names >= {"pool_windows", "unpool_cells", "gather_windows", "copy_owned", "sum_planes", *DENSE}
    assert {each["kernel"]: each["offsets"] for each in kernels if each["offsets"] != ["i64"]} == {}
    assert all(each["has_matrix_units"] for each in kernels if each["kernel"] in DENSE)
    check(kernels)


@pytest.mark.slow
def test_random_cases(tmp_path):
    """Sizes of 1 and what else the random cases have: all of it compiles."""
    check(compiled(tmp_path, "random", "53"))
