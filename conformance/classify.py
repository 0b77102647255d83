"""Outcomes: an answer compared with the contract's."""

from enum import StrEnum

import numpy as np

from conformance.questions import Outputs, Question
from conformance.worker import Answer
from tests.support.runners import assert_output


class Outcome(StrEnum):
    """The classes of the report, in the order of the report."""

    EQUAL = "equal"
    VALUES = "different values"
    INDICES = "different indices"
    SHAPE = "different shape"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    CRASHED = "crashed"
    NOT_ASKED = "n/a"


MEANING = {
    Outcome.EQUAL: "the same type, shape and elements as the contract's; or an error where the contract has one",
    Outcome.VALUES: "the shape is right, an element or the element type of output 0 is not",
    Outcome.INDICES: "output 0 is right, Indices are not",
    Outcome.SHAPE: "an output has another shape",
    Outcome.REFUSED: "an error where the contract has an output",
    Outcome.ACCEPTED: "an output where the contract has an error",
    Outcome.CRASHED: "the process died, or ran for 20 seconds; unpool: or raised an error that is not an UnpoolError",
    Outcome.NOT_ASKED: "the runtime cannot express the call, or infers no shape",
}
DIRECT = {"n/a": Outcome.NOT_ASKED, "crashed": Outcome.CRASHED}


def classify(question: Question, answer: Answer) -> Outcome:
    """The class of an answer; MaxPool and MaxUnpool are compared bit for bit."""
    expected = question.expected
    if answer.kind in DIRECT:
        return DIRECT[answer.kind]
    if answer.kind == "refused":
        return Outcome.EQUAL if expected is None else Outcome.REFUSED
    if answer.kind == "shapes":
        return of_shapes(expected, answer.shapes)
    if expected is None:
        return Outcome.ACCEPTED
    if [output.shape for output in answer.outputs] != [output.shape for output in expected]:
        return Outcome.SHAPE
    if not is_same(answer.outputs[0], expected[0], question.tolerance, question.is_exact):
        return Outcome.VALUES
    if len(expected) == 2 and not is_same(answer.outputs[1], expected[1], 0.0, True):
        return Outcome.INDICES
    return Outcome.EQUAL


def of_shapes(expected: Outputs | None, shapes: tuple[tuple[int, ...], ...]) -> Outcome:
    """The class of shapes alone; what the contract refuses may be refused for values that shapes do not know."""
    if expected is None:
        return Outcome.NOT_ASKED
    return Outcome.EQUAL if shapes == tuple(output.shape for output in expected) else Outcome.SHAPE


def is_same(got: np.ndarray, expected: np.ndarray, tolerance: float, is_exact: bool) -> bool:
    """Whether the tests would take one for the other."""
    try:
        assert_output(got, expected, tolerance, is_exact, "")
    except AssertionError:
        return False
    return True
