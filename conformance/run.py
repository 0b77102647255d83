"""Asks every runtime every question."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.classify import Outcome, classify
from conformance.questions import Question
from conformance.runtimes import Runtime
from conformance.worker import SECONDS_PER_ANSWER, Answer, Worker

FINE = (Outcome.EQUAL, Outcome.NOT_ASKED)
SECONDS_PER_LINE = 5.0  # between two lines of progress


@dataclass(frozen=True, eq=False)
class Judged:
    """An answer and its class.

    Attributes:
        outcome: the class.
        answer: what came back.
        varies: a second call gave other bits, which happens with uninitialized memory.
    """

    outcome: Outcome
    answer: Answer
    varies: bool = False


@dataclass(frozen=True, eq=False)
class Report:
    """One runtime's answers, in the order of the questions."""

    runtime: Runtime
    version: str
    judged: Sequence[Judged]


def ask(runtime: Runtime, asked: Sequence[Question], seconds: float = SECONDS_PER_ANSWER) -> Report:
    """All answers of one runtime, from a process of its own.

    Args:
        runtime: to be asked.
        asked: questions.
        seconds: allowed for one answer.

    Raises:
        WorkerError: the runtime cannot be started.
    """
    started = time.perf_counter()
    with Worker(runtime.module, seconds) as worker:
        version = worker.version
        judged: list[Judged] = []
        said, has_crashed = started, False
        for question in asked:
            judged.append(judge(worker, question))
            answer = judged[-1].answer
            if answer.kind == "crashed" and not has_crashed:
                has_crashed = True
                say(f"{runtime.title}: the first crash is {question.name}: {answer.message}\n{answer.details}")
            if time.perf_counter() - said > SECONDS_PER_LINE:
                said = time.perf_counter()
                say(f"{runtime.title}: {len(judged)} of {len(asked)} questions")
        starts = worker.starts
    counts = Counter(one.outcome for one in judged)
    words = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    again = f", started {starts} times" if starts > 1 else ""
    say(f"{runtime.title} {version}: {words} in {time.perf_counter() - started:.1f} s{again}")
    return Report(runtime, version, judged)


def judge(worker: Worker, question: Question) -> Judged:
    """The class of a worker's answer; one that differs is asked for twice."""
    model = question.model.SerializeToString()
    answer = worker.ask(model, question.feeds)
    outcome = classify(question, answer)
    if answer.kind != "outputs" or outcome in FINE:
        return Judged(outcome, answer)
    return Judged(outcome, answer, varies=bits(answer.outputs) != bits(worker.ask(model, question.feeds).outputs))


def bits(outputs: Sequence[np.ndarray]) -> list[bytes]:
    """The elements of every output."""
    return [output.tobytes() for output in outputs]


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
