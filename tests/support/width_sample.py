"""A sample of calls beside protected pages, at the width that Numba's environment asks for; prints JSON."""

import json
import os
from typing import Any

import numpy as np
from numba import njit, types

from tests.cases import guarded as guard_cases
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector import load, store

REGISTERS = {"zmm": 64, "ymm": 32, "xmm": 16}


def compiled_bytes() -> int:
    """Bytes of the widest x86 register that Numba uses for a wide vector; 0 for other machines."""
    lanes = max(REGISTERS.values()) // np.dtype(np.float32).itemsize

    @njit("void(int64, int64)")
    def double(x, out):
        value = load(x, types.float32, lanes)
        store(out, value + value)

    text = "\n".join(double.inspect_asm().values())
    return max((size for name, size in REGISTERS.items() if name in text), default=0)


def report() -> dict[str, Any]:
    """What differs, which kernels did not run, and the widths that the kernels were written and compiled for."""
    count, wrong = guard_cases.run(int(os.environ["UNPOOL_GUARDED_CASES"]))
    return {
        "cases": count,
        "wrong": wrong,
        "missed": guard_cases.missed(),
        "vector_bytes": vector_bytes(),
        "compiled_bytes": compiled_bytes(),
    }


if __name__ == "__main__":
    print(json.dumps(report()))  # noqa: T201
