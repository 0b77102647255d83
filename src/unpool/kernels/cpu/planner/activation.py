"""Steps that activate the output of a kernel in place."""

from typing import Any

from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.vector.registration import jit_inline


@jit_inline
def can_activate(request: Any) -> bool:
    """True if there is no activation, or one whose step can be added."""
    return not words.has_activation(request)


@jit_inline
def add_activation(blob: Any, request: Any, operand: int, count: int) -> None:
    """The step that activates an operand with this number of elements."""
