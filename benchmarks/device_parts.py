"""The parts of `python -m benchmarks device`, which fit a machine with a GPU and many cores that is lent for an hour.

| part | measures | needs |
|---|---|---|
| 1 | nothing: versions, the GPU, cores | |
| 2 | tests of the contract and of gradients on the GPU | a GPU, pytest |
| 3 | the operators against PyTorch, torch.compile, cuDNN, CuPy and the bandwidth of a copy | a GPU |
| 4 | time of calls on the host | a GPU, or a stub of the launches |
| 5 | 20 operators and six networks on 1 to 16 threads, and onnxruntime | |
| 6 | sessions on the GPU, and onnxruntime's | a GPU, onnxruntime-gpu |

A part ends by itself within nine minutes: it begins no step that may not end in time, and lists those that it left out.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from itertools import chain, zip_longest
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from benchmarks import ROOT, network, worker
from benchmarks.case import Case
from benchmarks.compare import differences
from benchmarks.engines import BY_NAME, UNPOOL
from benchmarks.machine import Machine, cpu_name
from benchmarks.measure import EngineError, machine_row, say, today
from benchmarks.pair import Side, process
from benchmarks.rows import GpuDeviceRow, GpuRow, PartRow, best_machine
from benchmarks.shapes import CASES, STEADY
from benchmarks.worker import Refused
from unpool.runtime.measure.timing import Effort, measure

if TYPE_CHECKING:
    from benchmarks.gpu.cases import GpuCase

Step = TypeVar("Step")

SECONDS = 510.0
"""Of a part: half a minute less than nine minutes, for what ends a little late."""

FAILED, MISSING, LEFT_OUT, STUB = "failed", "missing", "left out", "stub"
"""States of a row: a test or a comparison failed; something is not installed; there was no time; no kernel ran."""

HOST_ROUNDS = 5
"""Of part 4; the one with the smallest median counts, since processors change their speed."""

THREADS = (1, 2, 4, 8, 16)
PEER = "onnxruntime"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
SHORT = Effort(warmup=2, repetitions=7, seconds=0.1, limit=0.5)

OPERATORS = (
    "max_pool/VGG-16 pool 1, 8 images",
    "conv_transpose/pix2pix up 256",
    "max_unpool/SegNet last unpool, 8 images",
    "max_pool/ResNet stem, 8 images",
    "conv_transpose/U-Net up 256",
    "max_unpool/SegNet second unpool, 8 images",
    "max_pool/YOLO SPP 13",
    "conv_transpose/DCGAN up 1024",
    "max_pool/3-D U-Net pool 1",
    "conv_transpose/3-D U-Net up",
    "max_pool/ResNet stem, 1 image",
    "conv_transpose/pix2pix up 512",
    "max_pool/VGG-16 pool 1, 8 images, values only",
    "conv_transpose/DeconvNet 256",
    "max_pool/Inception pool, 8 images",
    "conv_transpose/CenterNet up, depthwise",
    "max_unpool/ENet unpool",
    "conv_transpose/iSTFT",
    "max_pool/M5 audio pool, 16 clips",
    "conv_transpose/GAN head, 1 image",
)
"""Cases of part 5 in float32, the most important first."""

NETWORKS = ("SegNet", "ENet", "pix2pix", "DCGAN generator", "U-Net of the paper", "3-D U-Net of the paper")
"""Of parts 5 and 6, at the sizes of `shapes.PUBLISHED`; the ones that take seconds come last."""

NEEDED: Mapping[int, Sequence[str]] = {
    1: (),
    2: ("torch", "triton", "pytest"),
    3: ("torch", "triton"),
    4: ("torch", "triton"),
    5: (),
    6: ("torch", "triton", "onnx", "onnxruntime"),
}
"""The modules that each part imports, beyond those of all benchmarks."""

FIRST_TESTS = ("test_on_a_device.py", "test_contract.py", "test_conv_gradients.py", "test_torch.py")

ANY_PYTEST = ("-o", "minversion=1")  # nothing can be installed on such a machine
NO_PLUGINS = ("-p", "no:cacheprovider", "-p", "no:benchmark")  # pytest-benchmark warns if tests run in parallel

PACKAGES = ("pytest", "pytest-xdist", "onnxruntime-gpu", "cupy-cuda12x", "cupy-cuda13x", "hypothesis")
"""Packages that parts need or use, in addition to those of `unpool doctor`."""


class Deadline:
    """The end of a part. A step begins only if one that takes as long as the longest so far would end in time."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end, self._longest = clock, clock() + seconds, 0.0
        self.left_out: list[Any] = []

    @property
    def remaining(self) -> float:
        """Seconds until the end; negative after it."""
        return self._end - self._clock()

    def steps(self, items: Iterable[Step]) -> Iterator[Step]:
        """The items for which there is time; the others are in `left_out`."""
        every = list(items)
        for number, item in enumerate(every):
            if self.remaining <= self._longest:
                self.left_out += every[number:]
                return
            begin = self._clock()
            yield item
            self._longest = max(self._longest, self._clock() - begin)


@dataclass
class PartRun:
    """One part while it runs, and its results so far.

    Attributes:
        part: its number.
        deadline: its end.
        machine: names of the GPU and of the CPU.
        threads: the maximum number, for part 5.
        stub: no kernel starts, for part 4.
        rows: the results.
        gpu_rows: those of part 3, in the form of `python -m benchmarks gpu`.
        gpu_devices: likewise, the limits of the GPU.
    """

    part: int
    deadline: Deadline
    machine: str
    threads: int = 0
    stub: bool = False
    rows: list[PartRow] = field(default_factory=list)
    gpu_rows: list[GpuRow] = field(default_factory=list)
    gpu_devices: Sequence[GpuDeviceRow] = ()

    def add_fact(self, case: str, note: str, state: str = "", engine: str = "", threads: int = 0) -> None:
        """Record a line without a time."""
        self._add(case, engine, threads, (0.0, 0.0, 0.0), state, note)

    def add_time(
        self, case: str, engine: str, times: tuple[float, float, float], threads: int = 0, note: str = ""
    ) -> None:
        """Record the median, the 95th percentile and the limit of a case, in seconds."""
        self._add(case, engine, threads, times, STUB if self.stub else "", note)

    def add_error(self, case: str, error: Exception, threads: int = 0) -> None:
        """Record what an engine raised: a case that fails must not end the part."""
        self.add_fact(case, f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], FAILED, "", threads)

    def add_left_out(self, names: Iterable[str]) -> None:
        """Record the steps for which there was no time."""
        for name, count in _counts(names).items():
            self.add_fact(name, f"no time, {count} steps" if count > 1 else "no time", LEFT_OUT)

    def _add(
        self, case: str, engine: str, threads: int, times: tuple[float, float, float], state: str, note: str
    ) -> None:
        self.rows.append(PartRow(self.part, case, engine, threads, *times, state, note, self.machine, today()))
        time_of_it = f" {times[0] * 1e6:.1f} µs" if times[0] else ""
        say(f"part {self.part}: {case}{on_threads(threads)} {engine}{time_of_it} {state} {note}")


def on_threads(count: int) -> str:
    """The end of a name, for a number of threads; "" for 0.

    >>> on_threads(1), on_threads(16), on_threads(0)
    (' on 1 thread', ' on 16 threads', '')
    """
    return f" on {count} thread{'s' * (count > 1)}" if count else ""


def machine_name() -> str:
    """Names of the GPU, if there is one, and of the CPU."""
    return f"{_gpu_name() or 'no GPU'}; {cpu_name()}, {os.cpu_count()} cores"


def check_part(part: int, stub: bool) -> None:
    """Check that this machine has what a part needs.

    Raises:
        EngineError: something is missing; the message says what.
        ValueError: a stub was asked for where there is none.
    """
    if stub and part != 4:
        raise ValueError(f"device: expected --stub with part 4 only, got it with part {part}. Leave it out.")
    missing = [name for name in NEEDED[part] if find_spec(name) is None]
    if missing:
        raise EngineError(f"device: part {part} needs {', '.join(missing)}, which is not installed. Install it.")
    if part not in (1, 5) and not stub and not _gpu_name():
        raise EngineError(
            f"device: part {part} needs an NVIDIA GPU that torch can use, found none with torch "
            f"{metadata.version('torch')}. Run it on a machine with one{', or pass --stub' * (part == 4)}."
        )


def run_part(run: PartRun) -> None:
    """Measure one part; its results are in `run`, also if it is interrupted."""
    steps = {1: _inventory, 2: _tests, 3: _operators, 4: _host, 5: _cores, 6: _sessions}
    steps[run.part](run)


def _inventory(run: PartRun) -> None:
    from unpool.doctor import examine

    found = examine()
    for topic in ("versions", "processor", "kernels", "devices"):
        for name, value in found.topics[topic].items():
            run.add_fact(f"{topic}: {name}", str(value).rpartition("/")[2] if name == "library" else str(value))
    for name in PACKAGES:
        try:
            run.add_fact(f"versions: {name}", metadata.version(name))
        except metadata.PackageNotFoundError:
            run.add_fact(f"versions: {name}", "not installed", MISSING)
    for problem in found.problems:
        run.add_fact("problem", problem, FAILED)
    if not _gpu_name():
        run.add_fact("GPU", "none that torch can use", MISSING)
        return
    torch: Any = import_module("torch")
    properties = torch.cuda.get_device_properties(0)
    run.add_fact("GPU", properties.name)
    run.add_fact("GPU: memory", f"{properties.total_memory / 2**30:.0f} GiB, L2 {properties.L2_cache_size >> 20} MiB")
    run.add_fact("GPU: CUDA of torch, cuDNN", f"{torch.version.cuda}, {torch.backends.cudnn.version()}")
    run.add_fact("GPU: multiprocessors", f"{properties.multi_processor_count}, {properties.major}.{properties.minor}")


def _tests(run: PartRun) -> None:
    """All files of tests/gpu, the first ones in a process of their own, on all cores if pytest-xdist is installed."""
    others = sorted({path.name for path in (ROOT / "tests" / "gpu").glob("test_*.py")} - set(FIRST_TESTS))
    parallel = ["-n", "auto"] if find_spec("xdist") else []

    def title(names: Iterable[str]) -> str:
        return ", ".join(name.removeprefix("test_").removesuffix(".py") for name in names)

    for names in run.deadline.steps([FIRST_TESTS, others]):
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", *ANY_PYTEST, *NO_PLUGINS, *parallel]
        try:
            done = subprocess.run(
                [*command, *(f"tests/gpu/{name}" for name in names)],
                cwd=ROOT, capture_output=True, text=True, timeout=max(1.0, run.deadline.remaining), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            run.add_fact(title(names), "stopped when the time was over", LEFT_OUT)
            continue
        note, has_failed = verdict(done.stdout, done.returncode)
        run.add_fact(title(names), note, FAILED if has_failed else "")
    run.add_left_out(title(names) for names in run.deadline.left_out)


def verdict(output: str, code: int) -> tuple[str, bool]:
    """The result of pytest's output in one line with the names of failures, and whether there were any.

    >>> verdict("FAILED tests/gpu/test_a.py::test_b - assert 1 == 2" + chr(10) + "1 failed, 3 passed in 2.10s", 1)
    ('1 failed, 3 passed in 2.10s: tests/gpu/test_a.py::test_b', True)
    >>> verdict("4 skipped in 0.10s", 0)
    ('4 skipped in 0.10s', False)
    """
    lines = output.strip().splitlines() or ["no output"]
    totals = [line.strip("= ") for line in lines if re.search(r"\d+ (passed|failed|skipped|error)", line)]
    names = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    words = totals[-1] if totals else lines[-1][:200]
    return words + (f": {', '.join(names)}" if names else ""), code not in (0, 5)


def _operators(run: PartRun) -> None:
    from benchmarks.gpu.cases import cases
    from benchmarks.gpu.device import Clock, measured
    from benchmarks.gpu.engines import COMPILED, ENGINES
    from benchmarks.gpu.run import device_rows
    from benchmarks.gpu.run import measure as measure_cases
    from benchmarks.measure import DisagreementError

    clock = Clock()
    device = measured(clock)
    run.gpu_devices = device_rows(device)
    for kind, flops in device.flops.items():
        run.add_fact(f"limits, {kind}", f"copy {device.copy / 1e9:.0f} GB/s, product {flops / 1e12:.0f} TFLOP/s")
    ordered = by_importance(cases())
    eager = [name for name in ENGINES if name != COMPILED]
    compiled = [case for case in ordered if ENGINES[COMPILED].takes(case)]
    steps = [*((case, eager) for case in ordered), *((case, [COMPILED]) for case in compiled)]
    for case, names in run.deadline.steps(steps):
        try:
            for row in measure_cases([case], device, clock, engines=names):
                limit = max(row.bytes / device.copy, row.flops / device.flops.get(row.type, inf))
                run.gpu_rows.append(row)
                run.add_time(case.path, row.engine, (row.median, row.p95, limit), note=row.shape)
        except DisagreementError as error:
            run.add_fact(case.path, str(error), FAILED, UNPOOL)
        except Exception as error:
            run.add_error(case.path, error)
    run.add_left_out(case.path for case, _ in run.deadline.left_out)


def by_importance(cases: Sequence["GpuCase"]) -> list["GpuCase"]:
    """Forward before training, and there bfloat16 last; within these the operators take turns."""
    groups: dict[tuple[str, bool], dict[str, list[GpuCase]]] = {}
    for case in cases:
        operators = groups.setdefault((case.way, case.call.dtype == "bfloat16"), {})
        operators.setdefault(case.call.operator, []).append(case)
    ordered = []
    for key in sorted(groups):
        turns = chain.from_iterable(zip_longest(*groups[key].values()))
        ordered += [case for case in turns if case is not None]
    return ordered


def _host(run: PartRun) -> None:
    from benchmarks.gpu.host import host_calls, host_time, launches, stubbed

    def wait() -> None:
        if not run.stub:
            import_module("torch").cuda.synchronize()

    def time_rounds(name: str, engine: str, call: Callable[[], Any], note: str = "") -> None:
        rounds = [host_time(call, wait) for _ in range(HOST_ROUNDS)]
        best = min(rounds, key=lambda samples: samples.median)
        run.add_time(name, engine, (best.median, best.p95, 0.0), note=note)

    with stubbed() if run.stub else nullcontext():
        for name, call in run.deadline.steps(host_calls("cpu" if run.stub else "cuda").items()):
            time_rounds(name, UNPOOL, call.ours, f"launches: {launches(call.ours)}")
            if not run.stub:
                time_rounds(name, "torch", call.theirs)
    run.add_left_out(name for name, _ in run.deadline.left_out)


def _cores(run: PartRun) -> None:
    counts = [count for count in THREADS if count <= run.threads]
    if counts[-1] < THREADS[-1]:
        run.add_fact("cores", f"{run.threads} here: more than {counts[-1]} threads were not measured", MISSING)
    engines = [name for name in (UNPOOL, PEER) if find_spec(name)]
    machines = {count: best_machine([machine_row(count, 0)]) for count in counts}
    with ExitStack() as stack:
        pools = {
            (name, count): stack.enter_context(process(Side(), count, name)) for name in engines for count in counts
        }
        steps = [(case, count) for case in cpu_cases() for count in counts]
        for case, count in run.deadline.steps(steps):
            try:
                _time_engines(run, case, {name: pools[name, count] for name in engines}, machines[count])
            except Exception as error:
                run.add_error(case.path, error, count)
    run.add_left_out(case.path for case, _ in run.deadline.left_out)


def cpu_cases() -> list[Case]:
    """The cases of part 5: a network after every third operator, so that both kinds are measured if time is short."""
    by_path = {case.path: case for case in CASES}
    operators = iter([by_path[f"{path}/float32"] for path in OPERATORS])
    ordered: list[Case] = []
    for case in networks():
        ordered += [one for _, one in zip(range(3), operators, strict=False)]
        ordered.append(case)
    return [*ordered, *operators]


def networks() -> list[Case]:
    """The networks of parts 5 and 6."""
    return [next(case for case in STEADY if case.name == name) for name in NETWORKS]


def _time_engines(run: PartRun, case: Case, pools: Mapping[str, Any], machine: Machine) -> None:
    """Compare the results of the engines, then time each."""
    threads = machine.threads
    answers = {name: pool.submit(worker.answer, name, case, threads).result() for name, pool in pools.items()}
    offered = {name: answer for name, answer in answers.items() if not isinstance(answer, Refused)}
    if len(offered) > 1 and (wrong := differences(case, offered, PEER)):
        run.add_fact(case.path, f"differs from {PEER}: {wrong[UNPOOL]}", FAILED, UNPOOL, threads)
        return
    for name in offered:
        outputs = BY_NAME[name].outputs(case)[0]
        timing = pools[name].submit(worker.timed, name, case, outputs, threads, SHORT).result()
        if isinstance(timing, Refused):
            run.add_fact(case.path, timing.why, MISSING, name, threads)
        else:
            limit = machine.limit(case)
            run.add_time(case.path, name, (timing.median, timing.p95, limit), threads, case.title)


def _sessions(run: PartRun) -> None:
    import onnxruntime

    import unpool

    available = onnxruntime.get_available_providers()
    if CUDA not in available:
        run.add_fact(
            "sessions",
            f"onnxruntime {onnxruntime.__version__} has no CUDA provider, only {', '.join(available)}. Install "
            "onnxruntime-gpu instead; unpool has no session that runs the other nodes in torch.",
            MISSING,
        )
        return
    onnxruntime.set_default_logger_severity(4)
    sessions: dict[str, Callable[..., Any]] = {UNPOOL: unpool.InferenceSession, PEER: onnxruntime.InferenceSession}
    for case in run.deadline.steps(networks()):
        given = network.arrays(case, np.random.default_rng(0))
        content = network.model(case, given).SerializeToString()
        try:
            calls = {name: _run_on_cuda(make, content, given) for name, make in sessions.items()}
            wrong = differences(case, {name: call() for name, call in calls.items()}, PEER)
            if wrong:
                run.add_fact(case.path, f"differs from {PEER}: {wrong[UNPOOL]}", FAILED, UNPOOL)
                continue
            for name, call in calls.items():
                timing = measure(call, SHORT)
                run.add_time(case.path, name, (timing.median, timing.p95, 0.0), note=case.title)
        except Exception as error:
            run.add_error(case.path, error)
    run.add_left_out(case.path for case in run.deadline.left_out)


def _run_on_cuda(make: Callable[..., Any], content: bytes, given: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """A run of a session on the GPU, from and to NumPy arrays; partitions whose provider is the CPU's are copied to.

    float32 stays float32 for both: onnxruntime uses TF32 by default.
    """
    session = make(content, providers=[(CUDA, {"use_tf32": "0"}), CPU])
    return lambda: session.run(None, dict(given))


def _gpu_name() -> str:
    """The name of the GPU that torch uses; "" without one."""
    if find_spec("torch") is None:
        return ""
    torch: Any = import_module("torch")
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def _counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
