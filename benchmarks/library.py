"""Networks in onnxruntime's own sessions, alone and with unpool's library of operators, and in unpool's session.

Each engine is a process of its own (`library_process.py`); they take turns.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks import ROOT
from benchmarks.architectures import NETWORKS as ARCHITECTURES
from benchmarks.architectures import Architecture, segnet
from benchmarks.layers import Layers
from benchmarks.library_process import ALONE, BARE, COMPILED, LIBRARY, SESSION
from benchmarks.machine import cpu_name
from benchmarks.measure import SETTLE, say, today
from benchmarks.rows import LibraryRow
from benchmarks.tables import milliseconds
from benchmarks.zoo.engine_process import TOLERANCE, difference
from benchmarks.zoo.model_file import ModelFile, default_folder
from benchmarks.zoo.network import ROUNDING
from benchmarks.zoo.own_networks import SOUND, VOLUME

ENGINES = (ALONE, LIBRARY, BARE, COMPILED, SESSION)

TURNS = 5
"""Of each engine in a round."""

TURN_SECONDS = 0.3
"""Of the slowest engine, in a turn of all of them, but for TURN_RUNS."""

TURN_RUNS = 3, 30
"""The fewest and the most in a turn."""


@dataclass(frozen=True)
class LibraryNetwork:
    """A network of `architectures.py`, or a file of the zoo.

    Attributes:
        share: of the numbers of each output that may differ from onnxruntime's, see ROUNDING.
    """

    name: str
    shape: tuple[int, ...] = ()
    architecture: Architecture | None = None
    zoo_name: str = ""
    share: float = 0.0


def _published(name: str, *shape: int) -> LibraryNetwork:
    return LibraryNetwork(name, shape, ARCHITECTURES[name])


NETWORKS = (
    LibraryNetwork("SegNet, one axis", (4, 12, 1000), segnet(SOUND)),
    _published("SegNet", 1, 3, 160, 224),
    LibraryNetwork("SegNet, three axes", (1, 1, 48, 64, 64), segnet(VOLUME)),
    _published("ENet", 1, 3, 192, 256),
    _published("DeconvNet", 1, 3, 224, 224),
    LibraryNetwork("QuickNAT", zoo_name="monai_quicknat_mu", share=ROUNDING),
    _published("DCGAN generator", 1, 100, 1, 1),
    _published("DCGAN generator, 8 images", 8, 100, 1, 1),
    _published("pix2pix", 1, 3, 256, 256),
    _published("vocoder", 1, 80, 128),
    _published("U-Net", 1, 3, 192, 256),
    _published("3-D U-Net", 1, 1, 32, 48, 48),
)


@dataclass
class Results:
    """What one engine did with one network in all rounds so far; a reason is why it does no more."""

    loaded: list[dict[str, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended: list[dict[str, float]] = field(default_factory=list)
    reason: str = ""
    error: float = 0.0


def matching(names: Sequence[str]) -> list[LibraryNetwork]:
    """The networks with one of these in their names; all without any."""
    return [each for each in NETWORKS if not names or any(name in each.name for name in names)]


def measure(
    networks: Sequence[LibraryNetwork], threads: int, rounds: int, save: Callable[[list[LibraryRow]], None]
) -> list[LibraryRow]:
    """Run the networks; `save` is given the rows of each, which every round times in new processes."""
    rows: list[LibraryRow] = []
    for network in networks:
        with tempfile.TemporaryDirectory() as folder:
            found = _measure(network, Path(folder), threads, rounds)
        rows += found
        save(found)
    return rows


def _measure(network: LibraryNetwork, folder: Path, threads: int, rounds: int) -> list[LibraryRow]:
    results = {engine: Results() for engine in ENGINES}
    feeds, problem = _write_model(network, folder)
    if problem:
        results = {engine: Results(reason=problem) for engine in ENGINES}
    else:
        results[COMPILED].reason = _compile(folder, feeds)
    shapes = "; ".join("x".join(map(str, x.shape)) for x in feeds.values())
    for number in range(rounds if not problem else 0):
        able = {engine: results[engine] for engine in ENGINES if not results[engine].reason}
        _round(folder, dict(able if number % 2 == 0 else reversed(able.items())), threads, network.share)
        say(f"{network.name}, round {number + 1}: {_states(results)}")
    return [_row(network.name, shapes, engine, each, threads) for engine, each in results.items()]


def _write_model(network: LibraryNetwork, folder: Path) -> tuple[dict[str, np.ndarray], str]:
    """Write the model and its inputs; the inputs, and why there are none."""
    if network.architecture is None:
        file = ModelFile(default_folder(), network.zoo_name)
        if not file.is_complete:
            command = f"python -m benchmarks zoo --only export {network.zoo_name}"
            return {}, f"not exported: {file.reason or f'run {command}'}"
        feeds, _ = file.load_arrays()
        model = onnx.load(file.model)
    else:
        layers = Layers(network.shape)
        model = layers.model(network.architecture(layers, network.shape[2:]))
        feeds = {"x": np.random.default_rng(0).standard_normal(network.shape, np.float32)}
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **feeds)  # type: ignore[arg-type]
    return feeds, ""


def _compile(folder: Path, feeds: dict[str, np.ndarray]) -> str:
    """Write the compiled model, by a process of its own; why there is none."""
    shapes = [f"--shape={name}={','.join(map(str, x.shape))}" for name, x in feeds.items()]
    command = ["unpool", "compile", str(folder / "model.onnx"), "-o", str(folder / "compiled.onnx"), *shapes]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    return " ".join(done.stderr.split())[:200] if done.returncode else ""


def _round(folder: Path, results: dict[str, Results], threads: int, share: float) -> None:
    """Load, run once, and take turns; an engine that fails, or whose process ends, takes no further part."""
    with ExitStack() as stack:
        answers = {engine: stack.enter_context(_engine(engine, folder, threads)) for engine in results}

        def ask(engine: str, line: str = "") -> Any:
            time.sleep(SETTLE)
            answer = answers[engine](line)
            if isinstance(answer, str):
                results[engine].reason = answer
                del answers[engine]
                return None
            return answer

        for engine in tuple(answers):
            loaded = ask(engine)
            results[engine].loaded += [loaded] if loaded else []
        _compare(folder, results, share)
        for engine in [each for each in answers if results[each].reason]:
            del answers[engine]
        slowest = max((max(ask(engine, "1") or [0.0]) for engine in tuple(answers)), default=0.0)
        runs = int(np.clip(TURN_SECONDS / max(slowest, 1e-6), *TURN_RUNS))
        for number in range(TURNS):
            for engine in tuple(answers) if number % 2 == 0 else tuple(answers)[::-1]:
                results[engine].seconds += ask(engine, str(runs)) or []
        for engine in tuple(answers):
            ended = ask(engine, "end")
            results[engine].ended += [ended] if ended else []


@contextmanager
def _engine(engine: str, folder: Path, threads: int) -> Iterator[Callable[[str], Any]]:
    """A process; the function writes a line to it, if there is one, and gives its answer, a text for a failure."""
    model = folder / ("compiled.onnx" if engine == COMPILED else "model.onnx")
    arguments = [engine, model, folder / "inputs.npz", folder / f"{engine}.npz", threads]
    command = [sys.executable, "-m", "benchmarks.library_process", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(line: str) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if line:
                    process.stdin.write(f"{line}\n")
                    process.stdin.flush()
                return json.loads(process.stdout.readline())
            except (BrokenPipeError, ValueError):
                return "the process ended"

        yield ask


def _compare(folder: Path, results: dict[str, Results], share: float) -> None:
    """Refuse engines with other outputs than onnxruntime, but for a share of the numbers."""
    outputs = {}
    for engine, each in results.items():
        if not each.reason:
            with np.load(folder / f"{engine}.npz") as arrays:
                outputs[engine] = [arrays[name] for name in arrays.files]
    for engine in outputs:
        error = difference(outputs[ALONE], outputs[engine], share) if ALONE in outputs else inf
        results[engine].error = max(results[engine].error, error)
        if ALONE in outputs and error > TOLERANCE:
            results[engine].reason = f"another result than onnxruntime: error {error:.1e} of the largest value"


def _row(network: str, shapes: str, engine: str, each: Results, threads: int) -> LibraryRow:
    is_able = not each.reason and bool(each.ended)
    p50, p95 = np.percentile(each.seconds, [50, 95]).tolist() if is_able else (0.0, 0.0)

    def of(records: list[dict[str, float]], name: str) -> float:
        return median(record[name] for record in records) if is_able else 0.0

    return LibraryRow(
        network, shapes, engine, onnxruntime.__version__, cpu_name(), threads, len(each.seconds) if is_able else 0,
        of(each.loaded, "imports"), of(each.loaded, "created"), of(each.loaded, "load"), of(each.ended, "reload"),
        p50, p95, int(of(each.ended, "peak")), each.error if is_able else 0.0, each.reason, today(),
    )  # fmt: skip


def _states(results: dict[str, Results]) -> str:
    states = {
        engine: each.reason or f"load {milliseconds(each.loaded[-1]['load'])}, {milliseconds(median(each.seconds))} ms"
        for engine, each in results.items()
    }
    return "; ".join(f"{engine}: {state}" for engine, state in states.items())
