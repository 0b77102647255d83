"""Seeded random cases: the oracle against the public functions, and how often each rule of the contract is met."""

import re
from collections import Counter
from dataclasses import replace

import pytest

import unpool
from tests.cases.contract import RULES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.oracle.rows import LAYOUTS, VERSIONS, row_version, types
from tests.support.runners import assert_outputs, bits, run_function

CHUNKS = 25
PER_CHUNK = 120
LEAST = 20
UNPOOL_OPSETS = (9, 11, 22)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_oracle(chunk: int) -> None:
    """Outputs and refusals of the public functions are the oracle's, case by case."""
    wrong = []
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        case, expected, rules = judged(seed)
        try:
            if expected is None:
                assert_refused(case)
            else:
                assert_outputs(case, run_function(case), expected)
                if "2.7" in rules:
                    assert_versions_agree(case)
        except Exception as failure:
            wrong.append(f"{case.name}\n{type(failure).__name__}: {failure}")
    assert not wrong, f"{len(wrong)} of {PER_CHUNK} cases differ:\n" + "\n\n".join(wrong)


def refusal(case: Case) -> str:
    """The message of the error, or what came instead."""
    try:
        got = run_function(case)
    except unpool.UnpoolError as error:
        return str(error)
    return f"accepted, outputs {[list(y.shape) for y in got]}"


def assert_refused(case: Case) -> None:
    """An UnpoolError whose message starts with the operator."""
    message = refusal(case)
    assert re.match(rf"{case.operator}(-\d+)?( \([a-z.]+\))?: .", message), message


def assert_versions_agree(case: Case) -> None:
    """2.7: MaxUnpool 9, 11 and 22 mean the same."""
    results = {bits(run_function(replace(case, opset=opset))[0]) for opset in UNPOOL_OPSETS}
    assert len(results) == 1, f"{case.name}: opsets {UNPOOL_OPSETS} differ"


def test_every_rule_is_met() -> None:
    """Each numbered rule of sections 1 to 4 and 6 decides something in at least 20 of the random cases."""
    counts: Counter[str] = Counter()
    for seed in range(CHUNKS * PER_CHUNK):
        counts.update(judged(seed)[2])
    print(*(f"{rule}: {counts[rule]}" for rule in RULES), sep="\n")  # noqa: T201
    rare = {rule: counts[rule] for rule in RULES if counts[rule] < LEAST}
    assert not rare


def test_refusals_are_a_part_not_the_rule() -> None:
    """Between a tenth and half of each operator's cases are refused, so both sides are tested."""
    refused: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for seed in range(CHUNKS * PER_CHUNK):
        case, expected, _ = judged(seed)
        total[case.operator] += 1
        refused[case.operator] += expected is None
    for operator, count in total.items():
        assert 0.1 < refused[operator] / count < 0.5, operator


def test_every_combination_is_met() -> None:
    """Each type of each version and layout, and each rank of each compat and layout, is computed at least once."""
    rows, ranks = set(), set()
    for seed in range(CHUNKS * PER_CHUNK):
        case, expected, _ = judged(seed)
        if expected is not None:
            x = case.inputs[0]
            version = case.opset and row_version(case.operator, case.opset, case.layout)
            rows.add((case.operator, version, case.layout, x.dtype))
            ranks.add((case.operator, x.ndim - 2, case.compat, case.layout))
    layouts = LAYOUTS.items()
    wanted = {
        (operator, version, layout, kind)
        for layout, versions in layouts
        for operator in versions
        for version in (None, *versions[operator])
        for kind in types(operator, version)
    }
    assert wanted - rows == set()
    assert len(ranks) == len(VERSIONS) * 4 * 2 * len(layouts)
