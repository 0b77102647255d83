"""The benchmarks: what they compute from times, what they write, and that every engine gives the same results."""

import csv
import doctest
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import unpool
from benchmarks import RESULTS, pages, rent, worker
from benchmarks import __main__ as command
from benchmarks.architectures import NETWORKS
from benchmarks.case import FRESH, OWN, POOLED, Call, Goal, Training
from benchmarks.compare import differences
from benchmarks.layers import Layers
from benchmarks.library_tables import latest as latest_library
from benchmarks.machine import Machine, measured
from benchmarks.measure import DisagreementError, Request, run
from benchmarks.mechanisms import MECHANISMS
from benchmarks.pages import (
    BEGIN,
    END,
    NETWORKS_PAGE,
    README_ROWS,
    TITLES,
    networks_page,
    operators_page,
    readme_section,
    write_between,
)
from benchmarks.pair import TURNS, Pair, Side, pairs, report
from benchmarks.rows import LibraryRow, MachineRow, Row, ZooRow, best_machine, merged, read
from benchmarks.shapes import CASES, STEADY, SUITES, matching
from benchmarks.standings import Standings, standing, standings_of
from benchmarks.steady import TURN, Runs, kept_runs, steady
from benchmarks.steady_tables import report as told
from benchmarks.zoo.tables import latest
from tests.support import models
from unpool.runtime.measure.timing import Effort, Timing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TINY = Effort(warmup=0, repetitions=2, seconds=0, limit=0)
MACHINE = Machine("A CPU", 2, read=4e9, written=2e9, flops=1e9)
(ENET,) = matching(["max_unpool/ENet*"])
(VGG,) = matching(["max_pool/VGG-16 pool 1, 8 images/float32"])


def row(case, engine, median, outputs=OWN, number=0, **others):
    """A row of a case that took `median` seconds."""
    what = case.operator, case.name, case.dtype, engine, "1", outputs, MACHINE.cpu, MACHINE.threads
    filled = Row(*what, number, median, p20=median / 2, p80=median * 2, first=1.0, date="2030-01-02")
    return replace(filled, **others)


def stand(case, *rows):
    return Standings(MACHINE, standing(case, rows, MACHINE))


def test_case_paths_are_unique():
    """No two cases share suite, name and type, so that rows of a CSV belong to one case."""
    assert len({case.path for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "name", ["case", "shapes", "tables", "device_parts", "gpu.cases", "gpu.device", "zoo.engine_process"]
)
def test_examples_of_the_benchmarks_hold(name):
    """The examples in the docstrings print what they say."""
    result = doctest.testmod(import_module(f"benchmarks.{name}"))

    assert result.failed == 0
    assert result.attempted > 0


def test_patterns_choose_cases():
    """A suite's name stands for all its cases, a pattern for those that fit, and what is unknown for none."""
    assert [case for suite in SUITES for case in matching([suite])] == list(CASES)
    assert {case.name for case in matching(["network/D*", "network/S*"])} == {"SegNet", "DCGAN generator"}
    assert matching(["average_pool"]) == ()


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case, Call)], ids=lambda case: case.path)
def test_shapes_are_those_of_the_operators(case):
    """The bytes and operations that are counted belong to the shapes that the operators themselves compute."""
    from unpool.operators import conv_transpose, max_pool, max_unpool, resolve

    words = {"max_pool": "MaxPool", "max_unpool": "MaxUnpool", "conv_transpose": "ConvTranspose"}
    attributes = {"kernel_shape": [case.window] * case.rank, "strides": [case.stride] * case.rank,
                  "pads": [case.pad] * 2 * case.rank}  # fmt: skip
    attributes |= {"dilations": [case.dilation] * case.rank} if case.operator == "max_pool" else {}
    attributes |= {"group": case.group} if case.operator == "conv_transpose" else {}
    spec = resolve.spec(words[case.operator], attributes)
    if case.operator == "conv_transpose":
        shape = conv_transpose.call(spec, case.x_shape, case.w_shape, None).large.in_onnx_order()
    elif case.operator == "max_pool":
        shape = max_pool.call(spec, case.x_shape).small.in_onnx_order()
    else:
        shape = max_unpool.call(spec, case.x_shape, case.x_shape, None).large.in_onnx_order()

    assert tuple(shape) == case.y_shape


def test_limit_counts_bytes_and_operations():
    """Reading and writing add up; a transposed convolution takes its multiplications where those are longer."""
    call = Call(suite="s", operator="max_pool", name="n", shape=(1, 2, 4, 4), window=2, stride=2, indices=True)
    assert MACHINE.limit(call) == pytest.approx(32 * 4 / 4e9 + 8 * 12 / 2e9)

    grow = Call(suite="s", operator="conv_transpose", name="n", shape=(1, 2, 3, 3), window=2, stride=2, channels=5)
    assert MACHINE.limit(grow) == pytest.approx(2 * 2 * 9 * 5 * 4 / 1e9)


def test_machine_is_measured():
    """Memory and multipliers give positive rates, and the best of the rounds counts in each respect."""
    found = measured(1, megabytes=1, steps=1000)
    assert min(found.read, found.written, found.flops) > 0

    rows = [
        MachineRow("A CPU", 2, 0, 1.0, 5.0, 3.0, "2030-01-02"),
        MachineRow("A CPU", 2, 1, 4.0, 2.0, 1.0, "2030-01-02"),
    ]
    assert best_machine(rows) == Machine("A CPU", 2, 4.0, 5.0, 3.0)


def test_csv_with_other_columns_is_refused(tmp_path):
    """Results of another form are named, not misread."""
    path = tmp_path / "max_pool.csv"
    path.write_text("operator,case\nmax_pool,x\n")

    with pytest.raises(ValueError, match=r"max_pool.csv: expected columns operator, .* Measure again"):
        read(path, Row)


def test_new_rows_replace_those_of_their_case():
    """A case that is measured again loses all its old rows; other cases, machines and thread counts stay."""
    old = [row(ENET, "torch", 1.0), row(ENET, "torch", 1.0, threads=1), row(VGG, "torch", 1.0)]
    new = [row(ENET, "unpool", 2.0, POOLED)]

    assert merged(old, new) == [*old[1:], *new]


def test_best_round_of_each_engine_counts():
    """The ratio is the fastest peer's best median over ours, for each kind of outputs."""
    every = stand(
        VGG, row(VGG, "unpool", 0.5, POOLED), row(VGG, "unpool", 0.25, POOLED, 1), row(VGG, "unpool", 1.0, FRESH),
        row(VGG, "torch", 4.0), row(VGG, "onnxruntime", 9.0), row(VGG, "onnxruntime", 3.0, number=1),
        row(ENET, "torch", 0.1),
    ).every  # fmt: skip

    assert [(one.outputs, one.ratio, one.best_peer.engine) for one in every] == [
        (POOLED, 12.0, "onnxruntime"),
        (FRESH, 3.0, "onnxruntime"),
    ]


@pytest.mark.parametrize(
    ("goal", "missed", "stretched"),
    [
        (Goal(2.5), True, False),
        (Goal(2.0), False, False),
        (Goal(2.0, 2.5), False, False),
        (Goal(1.5, 2.0), False, True),
        (Goal(3.0, 4.0, against="torch"), False, True),
        (Goal(1.0, limit_share=1e-9), False, True),
        (Goal(1.0, limit_share=1e9), False, False),
    ],
)
def test_goals_are_missed_reached_or_stretched(goal, missed, stretched):
    """A goal is held against the fastest peer or the one it names, or against the machine's limit."""
    case = replace(ENET, goals={POOLED: goal})
    (one,) = stand(case, row(case, "unpool", 1.0, POOLED), row(case, "onnxruntime", 2.0), row(case, "torch", 4.0)).every

    assert (one.has_missed, one.has_stretched) == (missed, stretched)


def test_report_rewrites_what_is_between_the_markers(tmp_path):
    """Text around the markers stays, text between them goes, and a second time changes nothing."""
    page = tmp_path / "README.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    write_between(page, "new")
    once = page.read_text()
    write_between(page, "new")

    assert once == page.read_text() == f"before\n\n{BEGIN}\nnew\n{END}\n\nafter\n"


def test_pages_are_those_of_the_results():
    """The pages and the README's rows are what `report` writes from the results in the repository."""
    standings = standings_of(RESULTS, read(RESULTS / "machine.csv", MachineRow)[-1].threads)
    page = ROOT / "docs" / "speed.md"
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(BEGIN)

    zoo = latest(read(RESULTS / "zoo.csv", ZooRow))
    library, steady = latest_library(read(RESULTS / "library.csv", LibraryRow)), kept_runs(RESULTS, standings.machine)
    networks = page.with_name(NETWORKS_PAGE)
    assert page.read_text(encoding="utf-8") == operators_page(standings, page)
    assert networks.read_text(encoding="utf-8") == networks_page(standings, networks, steady, zoo, library)
    assert rest.partition(END)[0] == f"\n{readme_section(standings, Path('docs/speed.md'), library)}\n"


def test_readme_does_not_hide_losses():
    """The README shows five rows, every operator among them, and a loss if the tables have one."""
    standings = standings_of(RESULTS, read(RESULTS / "machine.csv", MachineRow)[-1].threads)
    shown = [one for path in README_ROWS for one in standings.every if one.case.path == path]
    lost = {one.case.path for suite in TITLES for one in standings.of(suite) if (one.ratio or 1) < 1}

    assert len(README_ROWS) == len(set(README_ROWS)) == 5
    assert {one.case.suite for one in shown} == set(TITLES) - {"network"}
    assert not lost or lost & set(README_ROWS)


@pytest.mark.parametrize("content", ["no markers", f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"])
def test_report_needs_its_markers(tmp_path, content):
    """A page without one pair of markers in order is left as it is."""
    page = tmp_path / "README.md"
    page.write_text(content)

    with pytest.raises(ValueError, match=r"README.md: expected <!-- speed:begin -->"):
        write_between(page, "text")
    assert page.read_text() == content


def test_differences_are_found():
    """Pools have to be equal, indices too; sums have to be close; shapes and numbers of outputs count."""
    y, places = np.float32([1, 2]), np.array([0, 3])
    answers = {"torch": (y, places), "equal": (y.copy(), places), "value": (y + 1e-6, places), "index": (y, places + 1),
               "few": (y,), "wide": (y.astype(np.float64), places)}  # fmt: skip
    assert differences(VGG, answers, "torch") == {
        "value": "output 0: 2 of 2 elements differ",
        "index": "output 1: 2 of 2 elements differ",
        "few": "1 outputs instead of 2",
        "wide": "output 0 is float64[2] instead of float32[2]",
    }
    (grow,) = matching(["conv_transpose/iSTFT/*"])
    found = differences(grow, {"torch": (y,), "close": (y + 1e-6,), "far": (y + 1e-3,)}, "torch")
    assert found == {"far": "output 0: largest error 5.0e-04 of the largest value, allowed 3e-05"}


def test_run_measures_engines_in_their_own_processes(tmp_path, monkeypatch):
    """Every engine answers, agrees and is timed; a CSV holds the rows, and a report can be made of them."""
    folder = tmp_path / "results"
    arguments = ["--quick", "--cases", "max_pool/tiny*", "--engines", "unpool", "torch", "--results", str(folder)]
    assert command.main(["run", "--threads", "1", *arguments]) == 0

    with (folder / "max_pool.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(one["engine"], one["outputs"], one["threads"]) for one in rows] == [
        ("unpool", "fresh", "1"),
        ("torch", "own", "1"),
    ]
    assert all(0 < float(one["p20"]) <= float(one["median"]) <= float(one["p80"]) for one in rows)
    page = tmp_path / "README.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    options = ["--results", str(folder), "--threads", "1"]
    report = ["report", *options, "--readme", str(page), "--page", str(tmp_path / "docs" / "speed.md")]
    assert command.main(report) == 2
    assert not (tmp_path / "docs").exists()
    monkeypatch.setattr(pages, "README_ROWS", ("max_pool/tiny call/float32",))
    assert command.main(report) == 0
    assert "| tiny call (1,3,8,8) k2 s2" in (tmp_path / "docs" / "speed.md").read_text()
    assert "| MaxPool | tiny call (1,3,8,8) k2 s2" in page.read_text()
    assert "](docs/speed.md)" in page.read_text()
    assert (tmp_path / "docs" / "speed-max-pool.png").exists()
    assert command.main(["check", *options]) in (0, 1)


def test_a_checkout_is_timed_against_another():
    """Both sides are timed in every turn, the other one from its own folder."""
    (found,) = pairs(Side(Path(unpool.__file__).parents[1]), matching(["max_pool/tiny*"]), 1, 1)

    assert len(found.turns) == TURNS
    assert all(timing.median > 0 for turn in found.turns for timing in turn)


def test_a_checkout_without_the_package_is_refused(tmp_path):
    """What is timed must be there, or a comparison would compare something with itself."""
    with pytest.raises(ValueError, match="expected a folder with the package unpool"):
        pairs(Side(tmp_path), (VGG,), 1, 1)


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_mechanism_replaces_exists(name):
    """A process can do without every mechanism, and there are cases that may need it."""
    code = f"from benchmarks.mechanisms import MECHANISMS; MECHANISMS[{name!r}].take_out()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

    assert matching(MECHANISMS[name].cases)


def test_what_a_mechanism_earns_is_told():
    """The table counts the cases that gain 5 % or more by both ratios, and names the best and the worst."""
    without = Timing(1.2, 0.9, 1.1, 1.2, 2.0, 5)
    gains = Pair(VGG, ((without, replace(without, median=1.0)),))
    same = Pair(ENET, ((without, without),))
    table = rent.report([rent.Earned("pooling by tiles", (gains, same))])

    assert "| 2 | 1 | 1.10 | 1.20 max_pool/VGG-16" in table


@pytest.mark.parametrize(("factor", "slower"), [(1.05, True), (1.02, False), (0.5, False)])
def test_slower_rows_are_named(factor, slower):
    """A row is slower where medians in the same turn and the smallest ones agree on more than the noise."""
    before = Timing(1.0, 0.9, 1.1, 1.2, 2.0, 5)
    pair = Pair(VGG, ((before, replace(before, median=factor)),) * 2)

    assert pair.is_slower is slower
    assert report([pair]).endswith(f"1 cases, {int(slower)} slower by more than 3%")


def test_steadiness_is_told(monkeypatch):
    """Of unpool, of unpool without a mechanism and of the peers; what is busy meanwhile ends with it."""
    monkeypatch.setattr("benchmarks.steady.LEAST_TURNS", 2)
    monkeypatch.setattr("benchmarks.steady.LEAST_SECONDS", 0)
    (dcgan,) = (case for case in STEADY if case.name == "DCGAN generator")
    found = steady([dcgan], ["workers wait awake"], threads=1, runs=1, load=1)

    who = ["unpool", "unpool without workers wait awake", "unpool, tuned", "onnxruntime", "OpenVINO"]
    who += ["multiplications alone"]
    assert [one.who for one in found] == who
    assert all(len(one.seconds) == 2 * TURN and 0 < one.median <= one.p95 for one in found)
    assert not multiprocessing.active_children()


def test_unpool_is_held_against_the_best_peer():
    """By medians; how far runs stray is the 95th percentile over the median."""
    case = STEADY[0]
    peers = [Runs(case, "onnxruntime", (0.03,)), Runs(case, "OpenVINO", (0.05,))]
    table = told([Runs(case, "unpool", (0.01, 0.02, 0.04)), *peers, Runs(case, "multiplications alone", (0.001,))])

    assert table.endswith("geometric mean: 1.50")
    assert "1.90" in table.splitlines()[2]


def test_a_wrong_result_is_not_timed(monkeypatch):
    """A difference between unpool and its peer stops the run and names the case."""
    monkeypatch.setattr("benchmarks.measure.differences", lambda *_: {"unpool": "1 of 2 elements differ"})

    with pytest.raises(DisagreementError, match="max_pool/tiny call/float32: expected the result of torch"):
        run(Request(matching(["max_pool/tiny*"]), ["unpool", "torch"], 1, 1, TINY))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--cases", "average_pool"], "found none for average_pool"),
        (["check", "--threads", "99", "--results", "nowhere"], "expected results with 99 threads, got none"),
    ],
)
def test_command_says_what_is_missing(capsys, arguments, words):
    """Wrong patterns and missing results end with code 2 and a sentence."""
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "spatial"),
    [
        ("SegNet", (64, 96)),
        ("ENet", (16, 24)),
        ("3-D U-Net", (8, 8, 8)),
        ("DCGAN generator", (1, 1)),
        ("U-Net", (32, 16)),
        ("3-D U-Net of the paper", (8, 16, 8)),
        ("CycleGAN", (16, 16)),
        ("vocoder", (3,)),
    ],
)
def test_networks_are_valid(name, spatial):
    """Each network is a model that runs, with the size of its input in the output; generators have one of their own."""
    channels = {"3-D U-Net": 1, "3-D U-Net of the paper": 1, "DCGAN generator": 100, "vocoder": 80}.get(name, 3)
    layers = Layers((1, channels, *spatial))
    model = layers.model(NETWORKS[name](layers, spatial))
    feed = {"x": models.random(1, channels, *spatial)}
    (y,) = unpool.InferenceSession(model, threads=1).run(None, feed)

    assert y.shape[2:] == {"DCGAN generator": (64, 64), "vocoder": (768,)}.get(name, spatial)
    assert np.isfinite(y).all()
    assert np.abs(y).max() > 0


def small(operator, shape, window, **others):
    """A call of a benchmark on a shape that every engine does at once."""
    return Call(suite="s", operator=operator, name=operator, shape=shape, window=window, stride=2, **others)


@pytest.mark.parametrize(
    "call",
    [
        small("max_pool", (2, 3, 7, 9), 3, pad=1, layout="NHWC", indices=True),
        small("max_pool", (2, 3, 5, 7, 5), 2, dtype="bfloat16", indices=True),
        small("max_pool", (2, 3, 11, 9), 3, dilation=2, dtype="uint8"),
        small("max_unpool", (2, 3, 8, 6), 2),
        small("conv_transpose", (2, 4, 5, 3), 4, pad=1, channels=6, group=2),
    ],
    ids=lambda call: call.title,
)
def test_engines_agree(call):
    """Each engine is asked for the same thing: unpool, PyTorch and, where they offer it, the others agree."""
    answers = {engine: worker.answer(engine, call, 1) for engine in ("unpool", "torch", "onnxruntime", "openvino")}
    given = {engine: answer for engine, answer in answers.items() if not isinstance(answer, worker.Refused)}

    assert {"unpool", "torch"} <= set(given)
    assert differences(call, given, "torch") == {}


@pytest.mark.parametrize(
    ("call", "results"),
    [
        (small("max_pool", (2, 3, 7, 9), 3, pad=1, indices=True), 2),
        (small("max_unpool", (2, 3, 8, 6), 2), 2),
        (small("conv_transpose", (2, 4, 5), 4, pad=1, channels=6), 3),
    ],
)
def test_training_agrees(call, results):
    """A step through our operators makes the output and the gradients that a step through PyTorch's makes."""
    case = Training(suite="s", operator="training", name=call.name, shape=call.shape, call=call)
    answers = {engine: worker.answer(engine, case, 1) for engine in ("unpool", "torch")}

    assert len(answers["unpool"]) == results
    assert differences(case, answers, "torch") == {}
