"""A sample of pools and of transposed convolutions, at the width that Numba's environment asks for; prints JSON."""

import json
from typing import Any

import numpy as np
from numba import njit, types

import direct_cases
import growth_cases
import kernel_cases
from direct_cases import direct_case
from growth_cases import growth_case, winograd_case
from kernel_cases import SAMPLE_KERNELS, pool_case
from unpool.kernels.cpu.host import vector_bytes
from unpool.kernels.cpu.vector import load, store

CASES = 200  # of either kind, and a quarter as many by Winograd and directly
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
    """What differs, and the widths that the kernels were written and compiled for."""
    pools = (kernel_cases.difference(pool_case(number, SAMPLE_KERNELS), 1 + number % 2) for number in range(CASES))
    growths = (growth_cases.difference(growth_case(number), 1 + number // 4 % 2) for number in range(CASES))
    tiles = (growth_cases.difference(winograd_case(number), 1 + number % 2) for number in range(CASES // 4))
    few = (direct_cases.difference(direct_case(number), 1 + number % 2) for number in range(CASES // 4))
    results = [*pools, *growths, *tiles, *few]
    wrong = [each for each in results if each]
    return {"cases": len(results), "wrong": wrong, "vector_bytes": vector_bytes(), "compiled_bytes": compiled_bytes()}


if __name__ == "__main__":
    print(json.dumps(report()))  # noqa: T201
