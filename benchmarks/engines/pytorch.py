"""PyTorch's functions on the CPU, without gradients except for training."""

from typing import Any

import numpy as np
import torch

from benchmarks.case import Call, Case, Training
from benchmarks.engines import Ready, operator
from benchmarks.one_node import Arrays
from benchmarks.refusal import NotOffered
from benchmarks.values import whole_tensor
from conformance.runtimes.pytorch import to_array, to_tensor

__all__ = ["prepare", "start", "to_tensor", "version"]


def version() -> str:
    """Of the installed package."""
    return str(torch.__version__)


def start(threads: int) -> None:
    """Set the number of threads, and no gradients."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001 - set at the start
    """A call of the function."""
    if isinstance(case, Training):
        return Ready(operator(case).by_torch(case, arrays), lambda made: tuple(to_array(one) for one in made))
    if not isinstance(case, Call):
        raise NotOffered("it is measured on operators only")
    spatial = case.shape[2:]

    def read(made: Any) -> tuple[np.ndarray, ...]:
        values, *places = made if isinstance(made, tuple) else (made,)
        return (to_array(values), *(whole_tensor(to_array(one), spatial) for one in places))

    return Ready(operator(case).by_torch(case, arrays), read)
