"""The differences report: classes, worker processes, records, the page, and the report that is committed.

`version`, `answer`, `NOISE` and `REFUSAL` make this module a runtime that a worker process can load.
"""

import doctest
import json
import os
import pkgutil
import re
import time
from importlib import import_module

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from numpy import inf, nan

import conformance
import unpool
from conformance import examples, record, render
from conformance.__main__ import JSON, MARKDOWN, main
from conformance.classify import Outcome, classify
from conformance.questions import questions
from conformance.run import Judged, Report, judge
from conformance.runtimes import BY_NAME, NoMapping, Shapes, pytorch, unpool_session
from conformance.worker import Answer, Worker, WorkerError

pytestmark = pytest.mark.slow

NOISE = (r"at \S+: ",)
REFUSAL = ValueError
ONES = np.ones((1, 1, 3), np.float32)
COMMITTED = json.loads(JSON.read_text(encoding="utf-8"))
KNOWN = {
    "1.1": ("onnxruntime", "reference", "pytorch"),
    "1.4": ("onnxruntime", "reference", "pytorch"),
    "1.5": ("onnxruntime",),
    "3.1": ("onnxruntime", "reference", "openvino", "pytorch", "inference"),
    "3.2": ("openvino", "inference"),
    "3.3": ("onnxruntime", "openvino", "inference"),
    "3.4": ("reference", "openvino", "inference"),
    "3.5": ("reference",),
    "3.6": ("onnxruntime",),
    "3.7": ("onnxruntime", "reference"),
    "3.8": ("onnxruntime", "reference", "openvino"),
    "3.9": ("reference",),
    "3.10": ("onnxruntime", "reference", "openvino", "pytorch"),
    "3.11": ("onnxruntime", "openvino"),
    "3.12": ("onnxruntime", "reference", "openvino", "pytorch"),
    "3.14": ("reference", "openvino"),
    "3.18": ("reference",),
    "4.5": ("onnxruntime", "reference", "openvino", "inference"),
    "4.6": ("inference",),
    "4.7": ("onnxruntime", "reference", "openvino"),
    "4.8": ("onnxruntime", "reference"),
    "4.11": ("onnxruntime", "reference", "openvino"),
    "4.12": ("reference", "openvino"),
    "4.15": ("reference", "openvino", "pytorch"),
    "5": ("onnxruntime", "reference", "openvino", "pytorch"),
    "6.1": ("onnxruntime", "reference", "openvino"),
    "8.1": ("onnxruntime", "reference", "openvino", "pytorch"),
}


def version():
    return "1.2"


def answer(model, feeds):
    if model == b"sleep":
        time.sleep(60)
    if model == b"die":
        os._exit(3)
    if model == b"raise":
        raise ValueError("at /deep/folder/pool.cc:7: kernel\n   is 0")
    if model == b"break":
        raise KeyError("x")
    if model == b"unasked":
        raise NoMapping("no such rank")
    if model == b"shapes":
        return Shapes(((1, 1, 2),))
    return [feeds["X"], feeds["X"].shape]


def question(name):
    """The question of this name."""
    (found,) = [one for one in questions() if one.name == name]
    return found


POOLED = question("3.1-floor-opset22")
REFUSED = question("3.16-kernel_0-opset22")
Y, INDICES = POOLED.expected


@pytest.mark.parametrize(
    ("asked", "given", "outcome"),
    [
        (POOLED, Answer("outputs", (Y, INDICES)), Outcome.EQUAL),
        (POOLED, Answer("outputs", (Y + 1, INDICES)), Outcome.VALUES),
        (POOLED, Answer("outputs", (Y.astype(np.float64), INDICES)), Outcome.VALUES),
        (POOLED, Answer("outputs", (Y, INDICES + 1)), Outcome.INDICES),
        (POOLED, Answer("outputs", (Y + 1, INDICES + 1)), Outcome.VALUES),
        (POOLED, Answer("outputs", (Y, INDICES.astype(np.int32))), Outcome.INDICES),
        (POOLED, Answer("outputs", (Y[..., :1], INDICES)), Outcome.SHAPE),
        (POOLED, Answer("outputs", (Y,)), Outcome.SHAPE),
        (POOLED, Answer("shapes", shapes=(Y.shape, Y.shape)), Outcome.EQUAL),
        (POOLED, Answer("shapes", shapes=(Y.shape, (1, 1, 3))), Outcome.SHAPE),
        (POOLED, Answer("refused", message="no"), Outcome.REFUSED),
        (POOLED, Answer("crashed"), Outcome.CRASHED),
        (POOLED, Answer("n/a"), Outcome.NOT_ASKED),
        (REFUSED, Answer("refused", message="no"), Outcome.EQUAL),
        (REFUSED, Answer("outputs", (Y,)), Outcome.ACCEPTED),
        (REFUSED, Answer("shapes", shapes=(Y.shape,)), Outcome.NOT_ASKED),
        (REFUSED, Answer("crashed"), Outcome.CRASHED),
    ],
)
def test_classes(asked, given, outcome):
    """An answer falls into the class that the legend describes."""
    assert classify(asked, given) == outcome


def test_worker_gives_outputs_and_refusals():
    """Outputs come back as arrays, exceptions as one line without noise and folders."""
    with Worker(__name__) as worker:
        assert worker.version == "1.2"
        good = worker.ask(b"", {"X": ONES})
        assert [output.tolist() for output in good.outputs] == [ONES.tolist(), [1, 1, 3]]
        assert worker.ask(b"raise", {}).message == "ValueError: kernel is 0"
        broken = worker.ask(b"break", {})
        assert broken.kind == "crashed"
        assert broken.details.startswith("Traceback")
        assert worker.ask(b"unasked", {}).kind == "n/a"
        assert worker.ask(b"shapes", {}).shapes == ((1, 1, 2),)
        assert worker.starts == 1


def test_worker_is_restarted():
    """A process that dies or is too slow costs its own answer and no other."""
    with Worker(__name__, seconds=2) as worker:
        slow, dead, good = (worker.ask(model, {"X": ONES}) for model in (b"sleep", b"die", b""))
        assert (slow.kind, slow.message) == ("crashed", "no answer in 2 s")
        assert (dead.kind, dead.message) == ("crashed", "the process ended with exit code 3")
        assert good.kind == "outputs"
        assert worker.starts == 3


def test_worker_that_cannot_start():
    """A runtime that is not installed is an error that names it, not an empty column."""
    with pytest.raises(WorkerError, match=r"no_such_runtime: .*ModuleNotFoundError"), Worker("no_such_runtime"):
        pass


MINE = """
import onnx
from onnx.reference import ReferenceEvaluator


def version():
    return "9.9"


def answer(model, feeds):
    return ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds)
"""


def test_a_runtime_in_a_file_of_its_own(tmp_path, capsys):
    """The two functions of the documentation are enough: what they raise is a refusal, not a crash."""
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    assert main(["--quick", "--runtime", str(file), "--rules", "3.5"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert re.match(r"mine 9\.9: .*\d+ refused", lines[1])
    assert "crashed" not in lines[1]
    assert not any(line.startswith("unpool") for line in lines)


def test_the_first_crash_is_shown(tmp_path, capsys):
    """Its traceback is printed once, with the name of the case."""
    file = tmp_path / "mine.py"
    file.write_text(
        MINE.replace("return Ref", "raise KeyError('fault')\n    return Ref") + "\n\nREFUSAL = ValueError\n"
    )
    main(["--quick", "--runtime", str(file), "--rules", "3.5"])
    text = capsys.readouterr().err
    assert text.count("Traceback") == 1
    assert "mine: the first crash is 3.5-" in text
    assert "KeyError: 'fault'" in text


@pytest.mark.parametrize("name", ["absent.py", "mine.txt"])
def test_a_file_that_is_no_runtime(tmp_path, capsys, name):
    """It is named, and nothing runs."""
    (tmp_path / "mine.txt").touch()
    assert main(["--quick", "--runtime", str(tmp_path / name)]) == 2
    assert f"expected a Python file that exists, got {tmp_path / name}" in capsys.readouterr().err


class Changing:
    """A worker whose outputs differ from call to call."""

    calls = 0

    def ask(self, model, feeds):
        self.calls += 1
        return Answer("outputs", (Y + self.calls, INDICES))


def test_values_that_change_are_not_recorded():
    """Outputs that a second call does not give again are noted by their shape."""
    judged = judge(Changing(), POOLED)

    assert judged.varies
    assert record.answer_of(judged)["outputs"][0] == {"type": "float32", "shape": [1, 1, 2]}


def test_pytorch_counts_in_the_whole_tensor():
    """PyTorch's indices of the second plane come back with the plane's base, and go in without it."""
    pooled = question("7-the_second_plane_counts_on-opset22")
    got = pytorch.answer(pooled.model.SerializeToString(), pooled.feeds)

    assert classify(pooled, Answer("outputs", tuple(got))) == Outcome.EQUAL
    for name in ("2.6-no_sample-opset22", "2.7-every_version_infers_alike-opset22"):
        grown = question(name)
        got = pytorch.answer(grown.model.SerializeToString(), grown.feeds)
        assert classify(grown, Answer("outputs", tuple(got))) == Outcome.EQUAL


def test_quick_asks_the_newest_opset():
    """--quick has every case of the whole run once."""
    quick = questions(quick=True)

    assert {one.label for one in quick} == {one.label for one in questions()}
    assert len(quick) == len({one.label for one in quick})


def test_a_run_from_the_command_line(tmp_path, capsys):
    """A few rules through two runtimes give the outcomes that both are known for, as JSON and as a page."""
    out, page = tmp_path / "out.json", tmp_path / "out"
    options = ["--rules", "3.9", "4.12", "--runtimes", "unpool", "reference"]
    assert main([*options, "--json", str(out), "--markdown", str(page)]) == 0
    results = json.loads(out.read_text(encoding="utf-8"))
    outcomes = {one["name"]: one["outcomes"] for one in results["questions"]}
    assert {one["unpool"] for one in outcomes.values()} == {"equal"}
    assert outcomes["3.9-pads_at_the_end_only-opset22"]["reference"] == "different shape"
    assert outcomes["4.12-two_groups-opset1"]["reference"] == "refused"
    assert outcomes["4.12-group_0-opset22"]["reference"] == "equal"
    assert "[ConvTranspose](conv-transpose.md)" in (page / "index.md").read_text(encoding="utf-8")
    assert "### 4.12 `group`" in (page / "conv-transpose.md").read_text(encoding="utf-8")
    assert "onnx ReferenceEvaluator" in capsys.readouterr().err


def test_quick_passes_for_unpool():
    """The package keeps the contract at the newest opset of every case; nothing is written."""
    index = MARKDOWN / "index.md"
    before = JSON.read_bytes(), index.read_bytes()

    assert main(["--quick", "--runtimes", "unpool"]) == 0
    assert (JSON.read_bytes(), index.read_bytes()) == before


def test_a_wrong_unpool_fails_the_run(monkeypatch, capsys):
    """The exit code is 1 when unpool differs, and the question is named."""

    def wrong(runtime, asked):
        return Report(runtime, "0", [Judged(Outcome.VALUES, Answer("outputs", one.expected)) for one in asked])

    monkeypatch.setattr("conformance.__main__.ask", wrong)

    assert main(["--rules", "3.9", "--runtimes", "unpool"]) == 1
    assert "3.9-pads_at_the_end_only-opset22" in capsys.readouterr().err


def test_an_unknown_rule_is_an_error():
    """Asking nothing is not a pass."""
    assert main(["--rules", "9.99"]) == 2


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, -0.0, inf], [-inf, nan, 1e-7]], np.float32),
        np.array([0xFFC00007, 0x7FC00000], np.uint32).view(np.float32),
        np.array([0.1, 65504, -0.0, nan], np.float16),
        np.array([0.1, 3.0, nan], ml_dtypes.bfloat16),
        np.array([1 + 2.0**-52, 2.0**60]),
        np.array([[-(2**62), 2**62 + 1]], np.int64),
        np.array([-128, 127], np.int8),
        np.zeros((2, 0, 3), np.float32),
    ],
    ids=lambda array: array.dtype.name,
)
def test_arrays_survive_the_record(array):
    """An array read back from the JSON, or pasted from the page, has the bits of the one that was stored."""
    found = json.loads(json.dumps(record.stored(array), allow_nan=False))
    pasted = eval(examples.literals.python(found), {"np": np, "ml_dtypes": ml_dtypes, "nan": nan, "inf": inf})

    for again in (record.loaded(found), pasted):
        assert again.dtype == array.dtype
        assert again.shape == array.shape
        assert again.tobytes() == array.tobytes()


def test_committed_pages_are_those_of_the_committed_results():
    """The files of docs/differences are rendered from conformance/results.json."""
    files = {path.name: path.read_text(encoding="utf-8") for path in MARKDOWN.iterdir()}

    assert files == render.pages(COMMITTED)


def test_committed_results_are_a_whole_run():
    """The committed run asked all runtimes, and unpool gave the contract's answer everywhere."""
    assert [runtime["name"] for runtime in COMMITTED["runtimes"]] == list(BY_NAME)
    assert {one["outcomes"]["unpool"] for one in COMMITTED["questions"]} == {"equal"}


@pytest.mark.parametrize("rule", KNOWN)
def test_known_differences_are_shown(rule):
    """The committed run has a question that tells each of these runtimes from the contract."""
    asked = [one for one in COMMITTED["questions"] if one["rule"] == rule]

    assert [name for name in KNOWN[rule] if all(one["outcomes"][name] in examples.FINE for one in asked)] == []


@pytest.mark.parametrize("page", render.PAGES.values())
def test_committed_examples_can_be_pasted(page):
    """Every example of differences/max-pool.md, differences/max-unpool.md and differences/conv-transpose.md runs.

    It runs after the page's own imports, and unpool answers as the page says.
    """
    text = (MARKDOWN / page).read_text(encoding="utf-8")
    (start, *pasted) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    by_code = {examples.code(one): one for one in COMMITTED["questions"] if "model" in one}
    names = {}
    exec(start, names)

    assert len(pasted) > 30
    for block in pasted:
        exec(block, names)
        contract = by_code[block.rstrip("\n")]["contract"]
        if contract is None:
            with pytest.raises(unpool_session.REFUSAL):
                unpool.InferenceSession(names["model"], exact=True).run(None, names["feeds"])
        else:
            got = unpool.InferenceSession(names["model"], exact=True).run(None, names["feeds"])
            assert [output.shape for output in got] == [tuple(output["shape"]) for output in contract]
            for output, stored in zip(got, contract, strict=True):
                with np.errstate(invalid="ignore"):
                    pair = output.astype(np.float64), record.loaded(stored).astype(np.float64)
                np.testing.assert_allclose(*pair, rtol=1e-6)


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.iter_modules(conformance.__path__, "conformance.") if not module.ispkg]
)
def test_examples_in_docstrings(name):
    """The examples of a module print what they claim."""
    assert doctest.testmod(import_module(name)).failed == 0


def test_text_models_are_the_models():
    """ONNX's parser reads the text of an example as the model that was asked."""
    for one in questions(quick=True):
        assert onnx.parser.parse_model(record.model_text(one.model)) == one.model


def test_differences_are_named_without_a_page(capsys):
    """A run of some rules that writes no page names each answer that differs, and says what its class means."""
    assert main(["--rules", "4.12", "--runtimes", "reference"]) == 0
    said = capsys.readouterr().err

    assert "onnx ReferenceEvaluator: refused: 4.12-two_groups-opset1\n" in said
    assert "refused: an error where the contract has an output\n" in said
    assert "accepted: " not in said
