"""The list of deliberate faults is complete and fits the sources; `python -m tests.mutations` tries them."""

import ast
from pathlib import Path

import pytest

from tests.cases.contract import RULES
from tests.mutations import MUTATIONS
from tests.mutations.record import Mutation

ROOT = Path(__file__).parents[2]
LEAST = 40


def test_every_rule_has_a_fault() -> None:
    """Each numbered rule of sections 1 to 4 and 6 is broken by at least one patch, and there are many."""
    assert {mutation.rule for mutation in MUTATIONS} == set(RULES)
    assert len(MUTATIONS) >= LEAST


def test_faults_differ() -> None:
    """No patch of a rule is listed twice."""
    patches = [(mutation.rule, mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS]
    assert len(patches) == len(set(patches))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}-{mutation.breaks}")
def test_fault_fits_the_source(mutation: Mutation) -> None:
    """What a patch replaces occurs exactly once, on one line, and what comes out is still Python."""
    assert mutation.line(ROOT), f"{mutation.file}: expected exactly once: {mutation.old}"
    assert "\n" not in mutation.old + mutation.new
    assert ast.dump(ast.parse(mutation.patched(ROOT))) != ast.dump(ast.parse(mutation.source(ROOT)))
