"""The contract on a GPU, or in Triton's interpreter: examples and random cases against the oracle."""

import re

import pytest

import unpool
from tests.cases.contract import CASES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.gpu import GPU, run_gpu
from tests.support.runners import assert_outputs

SAMPLE = 8
"""Of so many examples and random cases one is in the default run."""

CHUNKS = 60
PER_CHUNK = 50


def check(case: Case, expected: tuple | None) -> None:
    """The outputs that are expected, or, for None, an error whose message starts with the operator."""
    if expected is not None:
        assert_outputs(case, run_gpu(case), expected)
        return
    with pytest.raises(unpool.UnpoolError) as caught:
        run_gpu(case)
    assert re.match(rf"{case.operator}\b", str(caught.value)), str(caught.value)


def agree(seeds: range) -> None:
    """All random cases of these seeds."""
    wrong = []
    for seed in seeds:
        case, expected = judged(seed)
        try:
            check(case, expected)
        except (Exception, pytest.fail.Exception) as failure:
            wrong.append(f"{case.name}\n{type(failure).__name__}: {failure}")
    assert not wrong, f"{len(wrong)} of {len(seeds)} cases differ:\n" + "\n\n".join(wrong)


@pytest.mark.sample(7)
@pytest.mark.parametrize("case", CASES[::SAMPLE], ids=lambda case: case.name)
def test_example(case: Case) -> None:
    """A sample of the contract's examples."""
    check(case, case.expected)


@pytest.mark.gpu_interpreter
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_example(case: Case) -> None:
    """All of them."""
    check(case, case.expected)


@pytest.mark.slow
def test_random_cases() -> None:
    """A sample of the random cases: every version, type, layout and rank in turn."""
    agree(range(0, CHUNKS * PER_CHUNK, 100 + 1))


@pytest.mark.gpu_interpreter
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_random_cases(chunk: int) -> None:
    """All of them."""
    agree(range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK))


def test_the_runner_says_every_case() -> None:
    """No example is left out because it could not be said."""
    assert all(GPU.can_express(case) for case in CASES)
