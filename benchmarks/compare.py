"""Do the engines agree? Nothing is timed that has not been compared."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.case import Case

TOLERANCE = {"float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}  # of sums, over the largest value
TOLERANCE_OF_NETWORKS = 1e-3

Outputs = Sequence[np.ndarray]


def differences(case: Case, answers: Mapping[str, Outputs], reference: str) -> dict[str, str]:
    """What is wrong with each engine whose answer is not that of `reference`, in words.

    Pools and indices have to be equal, sums and gradients close.
    """
    expected = answers[reference]
    found = {name: _difference(case, expected, got) for name, got in answers.items() if name != reference}
    return {name: words for name, words in found.items() if words}


def _difference(case: Case, expected: Outputs, got: Outputs) -> str:
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {number} is {other.dtype}{list(other.shape)} instead of {one.dtype}{list(one.shape)}"
        words = _far(case, one, other) if _is_summed(case) else _unequal(one, other)
        if words:
            return f"output {number}: {words}"
    return ""


def _is_summed(case: Case) -> bool:
    return case.operator in ("conv_transpose", "training", "network")


def _unequal(expected: np.ndarray, got: np.ndarray) -> str:
    if np.array_equal(expected, got):
        return ""
    return f"{np.count_nonzero(expected != got)} of {expected.size} elements differ"


def _far(case: Case, expected: np.ndarray, got: np.ndarray) -> str:
    allowed = TOLERANCE_OF_NETWORKS if case.operator == "network" else TOLERANCE[case.dtype]
    one, other = expected.astype(np.float64), got.astype(np.float64)
    error = float(np.abs(one - other).max(initial=0) / max(np.abs(one).max(initial=0), np.finfo(np.float64).tiny))
    return "" if error <= allowed else f"largest error {error:.1e} of the largest value, allowed {allowed:.0e}"
