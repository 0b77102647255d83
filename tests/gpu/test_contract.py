"""The contract on a GPU, or in Triton's interpreter: examples and random cases against the oracle."""

import re

import pytest

import unpool
from tests.cases.contract import CASES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.gpu import run_gpu
from tests.support.runners import assert_outputs

CHUNKS = 61  # which no period of the cases divides
RANDOM_CASES = 3000


@pytest.mark.sample(56)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_example(case: Case) -> None:
    """Every example of the contract gives its outputs, or an error whose message starts with the operator."""
    check(case, case.expected)


def check(case: Case, expected: tuple | None) -> None:
    """The outputs that are expected; None: an error."""
    if expected is not None:
        assert_outputs(case, run_gpu(case), expected)
        return
    with pytest.raises(unpool.UnpoolError) as caught:
        run_gpu(case)
    assert re.match(rf"{case.operator}\b", str(caught.value)), str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_cases(chunk: int) -> None:
    """So does every random case; each chunk has all versions, types, layouts and ranks in turn."""
    wrong = []
    for seed in range(chunk, RANDOM_CASES, CHUNKS):
        case, expected = judged(seed)
        try:
            check(case, expected)
        except (Exception, pytest.fail.Exception) as failure:
            wrong.append(f"{case.name}\n{type(failure).__name__}: {failure}")
    assert not wrong, f"{len(wrong)} cases differ:\n" + "\n\n".join(wrong)
