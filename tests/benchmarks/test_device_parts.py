"""The parts of an hour on a lent machine, without it: deadlines, order, verdicts, pages of made-up rows, and errors."""

import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from benchmarks import __main__ as command
from benchmarks import device_parts
from benchmarks.device_page import page
from benchmarks.device_parts import FAILED, LEFT_OUT, MISSING, STUB, Deadline, PartRun
from benchmarks.gpu import cases, device, host, run
from benchmarks.gpu.device import Device
from benchmarks.gpu.engines import COMPILED
from benchmarks.measure import DisagreementError
from benchmarks.rows import GpuRow, MachineRow, PartRow, read
from benchmarks.worker import Refused

pytestmark = pytest.mark.slow

MACHINE = "a GPU; a CPU, 16 cores"


class Watch:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        """The time."""
        return self.now

    def wait(self, seconds):
        """Move on."""
        self.now += seconds


@pytest.fixture
def watch():
    """A clock of the test's own."""
    return Watch()


@pytest.fixture
def part(watch):
    """Runs of parts that end after 10 seconds of that clock."""
    return lambda number, **settings: PartRun(number, Deadline(10, watch), MACHINE, **settings)


@pytest.fixture
def no_gpu(monkeypatch):
    """As on a machine without a GPU."""
    monkeypatch.setattr(device_parts, "_gpu_name", lambda: "")


def row(part, case, engine="", median=0.0, threads=0, limit=0.0, state="", note=""):
    """A line of results."""
    return PartRow(part, case, engine, threads, median, 2 * median, limit, state, note, MACHINE, "2026-01-01")


def texts(rows):
    """What rows say, without times and machines."""
    return [(row.case, row.engine, row.state, row.note) for row in rows]


def test_no_step_begins_that_may_end_too_late(watch):
    """Steps take 4 and 3 seconds; after 7 of 10 there is no time for another that takes 4."""
    deadline, begun = Deadline(10, watch), []
    for name, seconds in deadline.steps([("a", 4), ("b", 3), ("c", 1), ("d", 1)]):
        begun.append(name)
        watch.wait(seconds)

    assert begun == ["a", "b"]
    assert [name for name, _ in deadline.left_out] == ["c", "d"]
    assert deadline.remaining == 3


@pytest.mark.parametrize("number", [2, 3, 4, 6])
def test_parts_that_need_a_gpu_say_so(no_gpu, capsys, number):
    """One line, and the exit code of what is missing."""
    assert command.main(["device", "--part", str(number)]) == 2
    line = capsys.readouterr().err
    assert f"device: part {number} needs an NVIDIA GPU that torch can use" in line
    assert line.count("\n") == 1
    assert ("--stub" in line) == (number == 4)


def test_the_first_part_needs_nothing(no_gpu, tmp_path):
    """It lists versions and what is missing; a repeated part replaces its rows, and the page is written again."""
    options = ["--results", str(tmp_path), "--page", str(tmp_path / "device.md")]
    assert command.main(["device", "--part", "1", *options]) == 0
    first = read(tmp_path / "device.csv", PartRow)
    assert command.main(["device", "--part", "1", *options]) == 0

    assert read(tmp_path / "device.csv", PartRow) == first
    assert {"versions: torch", "processor: cores for this process", "GPU"} <= {row.case for row in first}
    text = (tmp_path / "device.md").read_text()
    assert text.startswith("# Found on no GPU; ")
    assert "- part 1, GPU: none that torch can use" in text
    assert "Not run: part 2, contract and gradients on the GPU; part 3" in text


def test_the_host_is_timed_with_a_stub(monkeypatch, tmp_path):
    """Every operator takes the way of a GPU up to its launches, which are counted."""
    monkeypatch.setattr(host, "CALLS", 3)
    monkeypatch.setattr(host, "WARMUP", 1)
    options = ["--stub", "--results", str(tmp_path), "--page", str(tmp_path / "device.md")]
    assert command.main(["device", "--part", "4", *options]) == 0

    rows = {row.case: row for row in read(tmp_path / "device.csv", PartRow)}
    assert {"pool with indices", "unpool", "ConvTranspose", "ConvTranspose, prepared weights"} <= set(rows)
    assert rows["pool with indices"].note == "launches: 1"
    assert all(row.state == STUB and row.median > 0 for row in rows.values())
    assert "stub" in (tmp_path / "device.md").read_text()


def test_the_stub_is_taken_away():
    """After it, calls on tensors of the CPU are computed there again."""
    before = set(host.GPU_DEVICE_TYPES), host.Launcher.prepare
    with host.stubbed():
        assert "cpu" in host.GPU_DEVICE_TYPES
    assert (set(host.GPU_DEVICE_TYPES), host.Launcher.prepare) == before


def test_host_times_do_not_hold_the_device(monkeypatch):
    """The device is waited for every 50 calls and at the end, and not within a time."""
    calls, waits = [], []
    monkeypatch.setattr(host, "WARMUP", 2)
    host.host_time(lambda: calls.append(1), lambda: waits.append(len(calls)), calls=120)

    assert waits == [2, 52, 102, 122]


FIRST, OTHERS = "on_a_device, contract, conv_gradients, torch", "compiled, functions, "


def run_of_tests(monkeypatch, part, first):
    """The rows of part 2, where the first run of pytest ends as `first` says, and the other one passes."""

    def runs(arguments, **settings):
        return first(settings) if arguments[-1].endswith("test_torch.py") else passed("5 passed in 3.00s")

    monkeypatch.setattr(subprocess, "run", runs)
    tests = part(2)
    device_parts.run_part(tests)
    return texts(tests.rows)


def passed(output, code=0):
    """What subprocess.run returns of pytest."""
    return SimpleNamespace(stdout=output, returncode=code)


def test_failed_tests_are_named(monkeypatch, part):
    """The first files run before the others."""
    failed = "FAILED tests/gpu/test_contract.py::test_a - x\n1 failed in 3.00s"
    first, others = run_of_tests(monkeypatch, part, lambda _: passed(failed, 1))

    assert first == (FIRST, "", FAILED, "1 failed in 3.00s: tests/gpu/test_contract.py::test_a")
    assert others[0].startswith(OTHERS)
    assert others[1:] == ("", "", "5 passed in 3.00s")


def test_tests_end_with_the_part(monkeypatch, part, watch):
    """A run that is stopped, and one that does not begin, are left out."""

    def stops(settings):
        watch.wait(6)
        raise subprocess.TimeoutExpired("pytest", settings["timeout"])

    first, others = run_of_tests(monkeypatch, part, stops)

    assert first == (FIRST, "", LEFT_OUT, "stopped when the time was over")
    assert others[0].startswith(OTHERS)
    assert others[2:] == (LEFT_OUT, "no time")


def test_a_case_that_fails_does_not_end_the_part(monkeypatch, part, watch):
    """Times come with the limit of the device; wrong results, and errors of an engine, are failures."""
    chosen = [case for case in cases.cases() if case.call.name.startswith("ENet")]

    def measures(some, found, _, engines):
        watch.wait(1)
        if engines == [COMPILED]:
            return
        (case,) = some
        if case.call.dtype == "float16" and case.way == cases.FORWARD:
            raise DisagreementError("unpool gives another number")
        if case.way == cases.TRAINING:
            raise RuntimeError("out of memory")
        names = "max_unpool", "ENet unpool", "(1,2)", "float32", case.way, "unpool", "1.0", found.name
        yield GpuRow(*names, 1e-4, 2e-4, 80_000_000, 0, "2026-01-01")

    monkeypatch.setattr(cases, "cases", lambda: tuple(chosen))
    monkeypatch.setattr(device, "Clock", lambda: None)
    monkeypatch.setattr(device, "measured", lambda _: Device("a GPU", 1e12, {"float32": 2e13}))
    monkeypatch.setattr(run, "measure", measures)
    operators = part(3)
    device_parts.run_part(operators)

    found = {row.case: row for row in operators.rows}
    assert found["forward/max_unpool/ENet unpool/float32"].limit == 8e-5
    assert found["forward/max_unpool/ENet unpool/float16"].state == FAILED
    assert found["training/max_unpool/ENet unpool/float32"].note == "RuntimeError: out of memory"
    assert found["limits, float32"].note == "copy 1000 GB/s, product 20 TFLOP/s"
    assert [row.engine for row in operators.gpu_rows] == ["unpool"]


def test_every_case_runs_on_several_threads(monkeypatch, part, watch):
    """Each case runs on 1 to 4 of 4 cores; what differs is a failure, and what a peer lacks is not timed."""

    class Pool:
        def __init__(self, engine, threads):
            self.engine, self.threads = engine, threads

        def submit(self, function, engine, case, *rest):
            watch.wait(0.1)
            if function is device_parts.worker.answer:
                lacks = case.operator == "max_unpool" and engine != "unpool"
                wrong = case.name == "pix2pix up 256" and engine == "unpool"
                result = Refused("no") if lacks else (np.float32([1 + wrong]),)
            else:
                result = SimpleNamespace(median=1.0 / self.threads, p95=2.0)
            return SimpleNamespace(result=lambda: result)

    monkeypatch.setattr(device_parts, "process", lambda _, threads, engine: nullcontext(Pool(engine, threads)))
    monkeypatch.setattr(
        device_parts, "machine_row", lambda threads, _: MachineRow("a CPU", threads, 0, 1e9, 1e9, 1e9, "2026-01-01")
    )
    cores = part(5, threads=4)
    device_parts.run_part(cores)

    first = [row for row in cores.rows if row.case.startswith("max_pool/VGG-16 pool 1, 8 images/")]
    assert [(row.engine, row.threads) for row in first] == [
        (engine, threads) for threads in (1, 2, 4) for engine in ("unpool", "onnxruntime")
    ]
    assert first[0].limit > 0
    assert cores.rows[0].note == "4 here: more than 4 threads were not measured"
    failed = [row for row in cores.rows if row.state == FAILED]
    assert {row.case for row in failed} == {"conv_transpose/pix2pix up 256/float32"}
    assert {row.engine for row in cores.rows if "max_unpool" in row.case and row.median} == {"unpool"}
    assert cores.rows[-1].state == LEFT_OUT


def test_sessions_need_a_provider(monkeypatch, part):
    """Without onnxruntime-gpu the page says so, and that no other session exists."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    sessions = part(6)
    device_parts.run_part(sessions)

    (only,) = sessions.rows
    assert only.state == MISSING
    assert "unpool has no session that runs the other nodes in torch" in page(sessions.rows)


def test_sessions_are_compared_and_timed(monkeypatch, part, watch):
    """On both runtimes, from and to NumPy; a model that one cannot run is a failure of its own."""

    def makes(make, content, given):
        watch.wait(1.5)
        return lambda: [np.float32([1])]

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [device_parts.CUDA])
    monkeypatch.setattr(device_parts, "_run_on_cuda", makes)
    monkeypatch.setattr(device_parts.network, "arrays", lambda *_: {})
    monkeypatch.setattr(device_parts.network, "model", lambda *_: SimpleNamespace(SerializeToString=lambda: b""))
    sessions = part(6)
    device_parts.run_part(sessions)

    assert [(row.case, row.engine) for row in sessions.rows[:2]] == [
        ("steady/SegNet/float32", "unpool"), ("steady/SegNet/float32", "onnxruntime")
    ]  # fmt: skip
    assert next(row.case for row in sessions.rows if row.state == LEFT_OUT) == "steady/DCGAN generator/float32"


def test_the_page_begins_with_what_is_wrong():
    """Failures, then losses with the worst first, then what is near its limit, then the farthest from it."""
    rows = [
        row(1, "versions: torch", note="2.0"),
        row(2, "test_contract.py", state=FAILED, note="1 failed"),
        row(3, "won", "unpool", 1e-4, limit=5e-5, note="(1,2)"),
        row(3, "won", "torch", 2e-4),
        row(3, "won", "compile", 1.5e-4),
        row(3, "lost", "unpool", 1e-4, limit=1e-5),
        row(3, "lost", "torch", 9e-5),
        row(3, "far behind", "unpool", 1e-4),
        row(3, "far behind", "torch", 5e-5),
        row(3, "done", "unpool", 1e-4, limit=9.5e-5),
        row(3, "farther", "unpool", 1e-4, limit=2e-5),
        row(3, "late", state=LEFT_OUT, note="no time"),
    ]
    text = page(rows)

    places = [text.index(each) for each in ("test_contract.py: 1 failed", "far behind", "lost", "done", "farther",
                                            "won (1,2)", "late: no time", "torch: 2.0")]  # fmt: skip
    assert places == sorted(places)
    assert "| 3 | won (1,2) | – | 100.0 | compile | 150.0 | 1.50× | 50 % |" in text
    assert "| 3 | far behind | – | 100.0 | PyTorch | 50.0 | 0.50× | – |" in text
    assert "## Host time\n\nNot measured." in text
