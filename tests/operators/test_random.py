"""Seeded random cases: the oracle against the public functions, and that the cases reach all that the oracle does."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import unpool
from tests import oracle
from tests.cases.generated import case as case_of
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.oracle.rows import FLOATS, LAYOUTS, VERSIONS, row_version, types
from tests.support.runners import assert_outputs, bits, run_function, run_oracle

CHUNKS = 25
PER_CHUNK = 120
ORACLE = Path(oracle.__file__).parent
UNPOOL_OPSETS = (9, 11, 22)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_oracle(chunk: int) -> None:
    """Outputs and refusals of the public functions are the oracle's, case by case."""
    wrong = []
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        case, expected = judged(seed)
        try:
            if expected is None:
                assert_refused(case)
            else:
                assert_outputs(case, run_function(case), expected)
                if case.operator == "MaxUnpool" and case.opset is not None and case.inputs[0].dtype in FLOATS:
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


def lines_of(code: CodeType) -> Iterator[tuple[str, int]]:
    """File and number of every line in the functions of a module."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & CO_OPTIMIZED and inner.co_name != "<genexpr>":  # what runs at import is no function
                yield from ((inner.co_filename, line) for *_, line in inner.co_lines() if line)
            yield from lines_of(inner)


def test_every_line_of_the_oracle_is_met() -> None:
    """Each line of the oracle, which writes out every rule, runs in a random case; of refusals, contract.py has all."""
    met: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if Path(frame.f_code.co_filename).parent != ORACLE:
            return None
        met.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for seed in range(CHUNKS * PER_CHUNK):
            with suppress(oracle.Refused):
                run_oracle(case_of(seed))
    finally:
        sys.settrace(before)
    for path in ORACLE.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        missed = {number for _, number in {*lines_of(compile(text, str(path), "exec"))} - met}
        assert [lines[number - 1] for number in sorted(missed) if "raise Refused(" not in lines[number - 1]] == [], path


def test_refusals_are_a_part_not_the_rule() -> None:
    """Between a tenth and half of each operator's cases are refused, so both sides are tested."""
    refused: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for seed in range(CHUNKS * PER_CHUNK):
        case, expected = judged(seed)
        total[case.operator] += 1
        refused[case.operator] += expected is None
    for operator, count in total.items():
        assert 0.1 < refused[operator] / count < 0.5, operator


def test_every_combination_is_met() -> None:
    """Each type of each version and layout, and each rank of each compat and layout, is computed at least once."""
    rows, ranks = set(), set()
    for seed in range(CHUNKS * PER_CHUNK):
        case, expected = judged(seed)
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
