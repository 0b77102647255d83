"""The list of deliberate faults is complete and fits the sources; `python -m tools.mutations` tries them."""

import ast
from pathlib import Path

from tests.cases.contract import RULES
from tools.mutations import MUTATIONS
from tools.mutations.record import PASSES, Mutation

ROOT = Path(__file__).parents[2]
LEAST = 40


def test_every_rule_has_a_fault() -> None:
    """Each numbered rule of sections 1 to 4 and 6 is broken by at least one patch, as is a pass, and there are many."""
    assert {mutation.rule for mutation in MUTATIONS} == {*RULES, PASSES}
    assert len(MUTATIONS) >= LEAST


def test_faults_differ() -> None:
    """No patch of a rule is listed twice."""
    patches = [(mutation.rule, mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS]
    assert len(patches) == len(set(patches))


def test_faults_fit_the_source() -> None:
    """What a patch replaces occurs exactly once, on one line, and what comes out is still Python."""
    assert [(each.file, each.old) for each in MUTATIONS if not each.line(ROOT) or "\n" in each.old + each.new] == []
    assert [(each.file, each.new) for each in MUTATIONS if changes_nothing(each)] == []


def changes_nothing(mutation: Mutation) -> bool:
    """Whether a patch leaves the same program."""
    return ast.dump(ast.parse(mutation.patched(ROOT))) == ast.dump(ast.parse(mutation.source(ROOT)))
