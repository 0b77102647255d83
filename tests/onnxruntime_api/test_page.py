"""docs/onnxruntime.md: every method and option has its line, and each line is what both modules answer today."""

import doctest

import onnxruntime
import pytest

import unpool
from conformance import ROOT
from conformance.onnxruntime_api import page, probe
from conformance.onnxruntime_api.page import PAGE, SECTIONS, row_of
from conformance.onnxruntime_api.probe import Answer, Probe, Verdict, judged

CLASSES = {
    "Methods of InferenceSession": onnxruntime.InferenceSession,
    "Attributes of SessionOptions": onnxruntime.SessionOptions,
    "Attributes of RunOptions": onnxruntime.RunOptions,
    "OrtValue": onnxruntime.OrtValue,
    "IOBinding": onnxruntime.IOBinding,
}
TEXT = PAGE.read_text(encoding="utf-8")


class Module:
    """Stands for a module in probes of a name `run`."""

    def __init__(self, value=None, error=None, **names):
        self.value, self.error = value, error
        self.__dict__.update(names)


def ask(module):
    """What the stand-in holds."""
    if module.error is not None:
        raise module.error
    return module.value


@pytest.mark.parametrize("section", CLASSES)
def test_every_public_name_has_a_line(section):
    """The probes of a class are all of its public names."""
    names = {name for name in dir(CLASSES[section]) if not name.startswith("_")}

    assert names - {one.name for one in SECTIONS[section]} == set()


@pytest.fixture(scope="module")
def rows():
    """What both modules answer today."""
    return {section: [row_of(one, onnxruntime, unpool) for one in probes] for section, probes in SECTIONS.items()}


@pytest.mark.of_the_page
@pytest.mark.parametrize("section", SECTIONS)
def test_the_lines_are_up_to_date(rows, section):
    """Each line of the table is what is answered; `python -m conformance.onnxruntime_api` writes the page."""
    part = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]

    assert [line for line in part.splitlines() if line.startswith("| ")][2:] == list(map(str, rows[section]))


@pytest.mark.of_the_page
def test_the_page_is_up_to_date(rows):
    """All below the line of versions is what the program writes."""
    assert TEXT.splitlines()[3:] == page.page(rows).splitlines()[3:]


def test_the_page_is_of_the_release_that_is_pinned():
    """The tests above look at the table with the release that the project is built with."""
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (release,) = [pin.partition("==")[2] for pin in pins if pin.startswith("onnxruntime==")]

    assert f"with onnxruntime {release}, " in TEXT


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (Module(3, run=1), Verdict.SAME),
        (Module(4, run=1), Verdict.DIFFERS),
        (Module(0, run=1), Verdict.IGNORED),
        (Module(3), Verdict.MISSING),
        (Module(error=KeyError(), run=1), Verdict.DIFFERS),
    ],
)
def test_verdicts(ours, verdict):
    """An answer is the same, another, the one without the option, or the name is missing."""
    asked = Probe("run", ask, lambda module: 0, needs="run")

    assert judged(asked, Module(3, run=1), ours)[0] is verdict


@pytest.mark.parametrize(("ours", "verdict"), [(KeyError(), Verdict.SAME), (ValueError(), Verdict.DIFFERS)])
def test_verdicts_of_exceptions(ours, verdict):
    """An exception is the same when a script that catches onnxruntime's class catches it."""
    assert judged(Probe("run", ask), Module(error=LookupError()), Module(error=ours))[0] is verdict


def test_an_answer_says_itself():
    """A value as Python writes it, an exception by its class."""
    assert (str(Answer([1])), str(Answer(raised=("Fail", "Exception")))) == ("[1]", "raises Fail")


@pytest.mark.parametrize("module", [page, probe], ids=["page", "probe"])
def test_examples_in_docstrings(module):
    """The examples print what they claim."""
    assert doctest.testmod(module).failed == 0
