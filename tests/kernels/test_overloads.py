"""Functions that compiled code chooses by type."""

import subprocess
import sys

import numpy as np
import pytest
from numba import njit, types

from unpool.kernels.cpu.machine.jit import Kernel
from unpool.kernels.cpu.vector.registration import overload_by_type


@overload_by_type()
def half_of(x):
    if isinstance(x, types.Float):
        return lambda x: x / 2
    return lambda x: x


def test_types_choose() -> None:
    """What is compiled depends on the type of the argument."""
    halve = njit(lambda x: half_of(x))
    assert halve(3.0) == 1.5
    assert halve(np.int64(3)) == 3


def test_python_cannot_call_it() -> None:
    """Outside compiled code there is nothing to call, which is said by name."""
    with pytest.raises(TypeError, match="half_of: only compiled code can call it"):
        half_of(3.0)


def test_a_kernel_is_looked_up_once_for_the_types_of_its_arguments(monkeypatch) -> None:
    """Workers call theirs whenever they wake, and a look-up takes longer than many calls."""
    asked = []
    kernel = Kernel("name", dict)
    monkeypatch.setattr(Kernel, "entry_point", lambda kernel, args: asked.append(args) or (lambda *args: len(args)))
    assert [kernel(1, 2), kernel(3, 4), kernel(1.5, 2)] == [2, 2, 2]
    assert asked == [(1, 2), (1.5, 2)]


FIRST_OPERATION = """
from numba import njit
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.max_pool.separable_combine import put

@njit("void(int64)")
def store(x):
    put(x, 32, vec.splat(x, 4), vec.splat(x, 4), 2)
"""


def test_the_first_operation_of_a_kernel_is_known_inside_a_function() -> None:
    """Operations of one kernel are imported before the first function that has one is compiled."""
    subprocess.run([sys.executable, "-c", FIRST_OPERATION], check=True)
