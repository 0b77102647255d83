"""The questions: cases of the tests and a few more, as models of one node with the contract's answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from tests import oracle
from tests.cases import contract as cases
from tests.cases.record import Case, read_cases
from tests.support.runners import NEWEST_OPSET, feeds_of, is_model, model_of, run_oracle

Outputs = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Question:
    """A model, its inputs, and what the contract says.

    Attributes:
        name: unique; rule, reason and opset.
        rule: number of the rule in the contract.
        why: the fact that it shows.
        operator: ONNX name.
        opset: version of the operator's set that the model imports.
        model: of the single node.
        feeds: input name to array.
        expected: the outputs in order; None: refused.
        tolerance: relative, for sums.
        is_exact: output 0 is compared bit for bit.
    """

    name: str
    rule: str
    why: str
    operator: str
    opset: int
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: Outputs | None
    tolerance: float
    is_exact: bool

    @property
    def label(self) -> str:
        """The name without the opset."""
        return f"{self.rule}-{self.why.replace(' ', '_')}"


def is_asked(case: Case) -> bool:
    """Whether a model without options of unpool can say the case."""
    return case.compat == "spec" and case.index_space == "auto" and is_model(case)


def questions(quick: bool = False, rules: Sequence[str] = ()) -> list[Question]:
    """All questions in the order of the contract, none twice.

    Args:
        quick: only the newest opset of every case.
        rules: numbers such as "3.2"; none means all.
    """
    more = read_cases(Path(__file__).with_name("more_cases.txt"))
    asked = sorted(unique(question_of(case) for case in (*cases.CASES, *more) if is_asked(case)), key=place)
    if rules:
        asked = [question for question in asked if question.rule in rules]
    if not quick:
        return asked
    newest = {question.label: question.opset for question in sorted(asked, key=lambda question: question.opset)}
    return [question for question in asked if newest[question.label] == question.opset]


def place(question: Question) -> tuple[int, ...]:
    """The rule's number as numbers; the order within a rule stays as written."""
    return tuple(int(part) for part in question.rule.split("."))


def unique(found: Iterator[Question]) -> Iterator[Question]:
    """Without those that ask the same of the same rule: no opset and the newest opset are one model."""
    seen = set()
    for question in found:
        inputs = tuple((name, array.dtype.name, array.tobytes()) for name, array in question.feeds.items())
        key = (question.label, question.model.SerializeToString(), inputs)
        if key not in seen:
            seen.add(key)
            yield question


def question_of(case: Case) -> Question:
    """The case as a model with an opset."""
    opset = case.opset or NEWEST_OPSET
    case = replace(case, opset=opset)
    model = model_of(case)
    if case.why == "an empty name is an input left out":
        model.graph.node[0].input.append("")
    label = f"{case.rule}-{case.why.replace(' ', '_')}"
    return Question(
        f"{label}-opset{opset}",
        case.rule,
        case.why,
        case.operator,
        opset,
        model,
        feeds_of(case),
        expected_of(case),
        case.tolerance,
        case.operator != "ConvTranspose" and "activation" not in case.attributes,
    )


def expected_of(case: Case) -> Outputs | None:
    """The oracle's answer."""
    try:
        return run_oracle(case)
    except oracle.Refused:
        return None
