"""A question to a module, its answer, and what the answers of both say of unpool."""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

Ask = Callable[[Any], Any]


class Verdict(StrEnum):
    """What is said of unpool."""

    SAME = "same"
    DIFFERS = "differs"
    MISSING = "missing"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Probe:
    """A question.

    Attributes:
        name: of the method, attribute, entry or situation.
        ask: takes a module and gives what can be compared.
        without: the same without the option; None where that cannot be.
        needs: the name that has to be there, such as "InferenceSession.run"; "" for none.
        note: what a reader has to know.
    """

    name: str
    ask: Ask
    without: Ask | None = None
    needs: str = ""
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """What came: a value, or the classes of an exception, the nearest first."""

    value: Any = None
    raised: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"raises {self.raised[0]}" if self.raised else repr(self.value)

    def is_as(self, other: "Answer") -> bool:
        """Whether a script that expects the other answer is content with this one."""
        if other.raised or self.raised:
            return bool(other.raised) and other.raised[0] in self.raised
        return bool(self.value == other.value)


def asked(ask: Ask, module: Any) -> Answer:
    """The answer of a module, in an empty folder, with nothing printed and no warnings."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), _silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Answer(ask(module))
        except Exception as error:
            return Answer(raised=tuple(kind.__name__ for kind in type(error).__mro__))


def judged(probe: Probe, theirs: Any, ours: Any) -> tuple[Verdict, Answer, Answer]:
    """What both modules answer, and what that says of ours."""
    expected, got = asked(probe.ask, theirs), asked(probe.ask, ours)
    if probe.needs and not has(ours, probe.needs):
        return Verdict.MISSING, expected, got
    if got.is_as(expected):
        return Verdict.SAME, expected, got
    if probe.without is not None and not got.raised and got.is_as(asked(probe.without, ours)):
        return Verdict.IGNORED, expected, got
    return Verdict.DIFFERS, expected, got


def has(module: Any, name: str) -> bool:
    """Whether a module has a name such as 'InferenceSession.run'."""
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def logged(act: Callable[[], Any]) -> str:
    """What an action writes to the log of the process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        with _silence(path):
            act()
        return path.read_text(encoding="utf-8", errors="replace")


def warned(act: Callable[[], Any]) -> Sequence[str]:
    """The classes of the warnings of an action."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    return sorted({one.category.__name__ for one in found})


@contextmanager
def _silence(path: Path = Path(os.devnull)) -> Iterator[None]:
    """What the process writes to stdout and stderr goes to a file: libraries write past `sys.stderr`."""
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    kept = os.dup(1), os.dup(2)
    with path.open("wb") as file:
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            for stream in streams:
                stream.flush()
            for number, before in enumerate(kept, 1):
                os.dup2(before, number)
                os.close(before)
