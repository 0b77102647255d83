"""The public functions of unpool, `unpool.torch` for training, and the session for whole networks."""

from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.case import POOLED, Call, Case
from benchmarks.engines import Ready, operator
from benchmarks.one_node import Arrays
from unpool.memory import DEFAULT_LIMIT, set_pool_limit


def version() -> str:
    """Of the installed package."""
    return metadata.version("unpool")


def start(threads: int) -> None:
    """Nothing to set up: every call is told its number of threads."""


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:
    """A call whose outputs are made of memory that is used again ("pooled"), or of new memory each time ("fresh")."""
    set_pool_limit(0)
    if outputs == POOLED:
        set_pool_limit(DEFAULT_LIMIT)
    call = operator(case).by_unpool(case, arrays, threads)

    def read(made: Any) -> tuple[np.ndarray, ...]:
        every = made if isinstance(made, (tuple, list)) else (made,)
        is_last = isinstance(case, Call) and case.layout == "NHWC"
        return (np.moveaxis(every[0], -1, 1) if is_last else every[0], *every[1:])

    return Ready(call, read)
