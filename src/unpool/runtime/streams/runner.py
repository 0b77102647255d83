"""Runs a job part by part: it reads, computes and writes at the same time, and continues an interrupted run."""

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unpool.images.axes import Array, Shape, Slices
from unpool.memory import peak_rss
from unpool.onnxruntime.package import onnxruntime
from unpool.runtime.streams.checkpoint import Checkpoint, Settings, partial_folder, require_same_settings
from unpool.runtime.streams.output_transform import OutputTransform
from unpool.runtime.streams.partial_output import PartialOutput

Stage: TypeAlias = Callable[[Any], Any]
PartResult: TypeAlias = tuple[int, Mapping[str, Array]]
"""The number of a part, and its array for each output."""

QUEUE_SIZE = 1  # maximum number of items that wait between two stages; each stage holds one more
PIPELINE_DEPTH = 2 + QUEUE_SIZE  # items in memory between two stages: one in each of the two, and those in the queue
RUNTIME_OVERHEAD_BYTES = 96 << 20
"""Memory that the first run takes for machine code, compressors, threads and their buffers."""
LOADED_OVERHEAD_BYTES = 16 << 20
"""The same after a first run."""

POLL_SECONDS = 0.05  # time between two checks of a blocked stage for the end of the run
_END = object()


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        tiles: of the image, or windows of blended ones.
        resumed: tiles that an earlier run had finished.
        done: finished tiles, with the resumed ones.
        seconds: since this run began with its first tile.
        peak: peak memory of the process in bytes; 0 where the system does not report it.
        was_complete: an earlier run had written all tiles, so that nothing was computed.

    >>> half = Progress(tiles=100, resumed=20, done=60, seconds=20.0, peak=0)
    >>> half.rate, half.left
    (2.0, 20.0)
    """

    tiles: int
    resumed: int
    done: int
    seconds: float
    peak: int
    was_complete: bool = False

    @property
    def rate(self) -> float:
        """Tiles per second of this run."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Estimated seconds for the remaining tiles; None before the first tile of this run."""
        return (self.tiles - self.done) / self.rate if self.rate else None


ProgressCallback: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class OutputFile:
    """A complete file: its path, shape and type.

    Where it holds class numbers, `classes` is how many there are, and `counts` has the elements of each; it is empty
    where an earlier run had written everything.
    """

    path: Path
    shape: Shape
    dtype: np.dtype[Any]
    classes: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The files of a run by output, and its progress at the end.

    `path`, `shape` and `dtype` are those of the first file, often the only one.
    """

    files: Mapping[str, OutputFile]
    progress: Progress

    @property
    def was_complete(self) -> bool:
        """True if an earlier run had written everything, so that nothing was computed."""
        return self.progress.was_complete

    @property
    def path(self) -> Path:
        """Of the first file."""
        return self._first.path

    @property
    def shape(self) -> Shape:
        """Of the first file."""
        return self._first.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the first file."""
        return self._first.dtype

    @property
    def _first(self) -> OutputFile:
        return next(iter(self.files.values()))


@dataclass(frozen=True)
class TiledJob:
    """A run in `count` parts that are written one by one.

    settings     everything on which the results depend, for the journal
    transforms   by output, the step to its file
    windows      of a part in the outputs to which it contributes
    items        that go through the stages to compute some parts
    stages       the steps from an item to a `PartResult`, or to None where an item completes no part; the options can
                 terminate the runs of the session
    tiles        or windows in a part, which the progress counts
    """

    count: int
    settings: Settings
    transforms: Mapping[str, OutputTransform]
    windows: Callable[[int], Mapping[str, Slices]]
    items: Callable[[Collection[int]], Iterable[Any]]
    stages: Callable[[onnxruntime.RunOptions], Sequence[Stage]]
    tiles: int = 1


def run_job(
    job: TiledJob, targets: Mapping[str, Path], checkpoint: Checkpoint | None, on_progress: ProgressCallback
) -> RunResult:
    """Compute the remaining parts of a job, and move the outputs to their names; after a complete run, do nothing."""
    specs = {name: transform.spec for name, transform in job.transforms.items()}
    counts: dict[str, tuple[int, ...]] = {}
    if checkpoint is not None and checkpoint.is_complete:
        require_same_settings(checkpoint, job.settings, next(iter(targets.values())), partial_folder(targets))
        tiles = job.count * job.tiles
        progress = Progress(tiles, tiles, tiles, 0.0, peak_rss(), was_complete=True)
    else:
        with PartialOutput(targets, job.settings, specs, job.count) as output:
            progress = _run_parts(job, output, on_progress)
            parts = [_file_windows(job, part) for part in range(job.count)]
            for name in (name for name, spec in specs.items() if spec.classes):
                windows = (part[name] for part in parts if name in part)
                counts[name] = output.count_classes(name, specs[name].classes, windows)
            output.finish()
    files = {
        name: OutputFile(targets[name], spec.shape, spec.dtype, spec.classes, counts.get(name, ()))
        for name, spec in specs.items()
    }
    return RunResult(files, progress)


def _file_windows(job: TiledJob, part: int) -> dict[str, Slices]:
    return {name: job.transforms[name].window(slices) for name, slices in job.windows(part).items()}


def _run_parts(job: TiledJob, output: PartialOutput, on_progress: ProgressCallback) -> Progress:
    """Compute and write the parts that are not finished."""
    windows = partial(_file_windows, job)
    finished, options = output.finished_parts(windows), onnxruntime.RunOptions()
    begin, done = time.monotonic(), len(finished)

    def write(result: PartResult | None) -> int:
        if result is None:
            return 0
        part, arrays = result
        output.add(part, windows(part), arrays)
        return 1

    def progress() -> Progress:
        tiles, resumed, complete = (count * job.tiles for count in (job.count, len(finished), done))
        return Progress(tiles, resumed, complete, time.monotonic() - begin, peak_rss())

    parts = set(range(job.count)) - finished
    for count in run_pipeline(job.items(parts), (*job.stages(options), write), options):
        if count:
            done += count
            on_progress(progress())
    return progress()


def run_pipeline(items: Iterable[Any], stages: Sequence[Stage], options: onnxruntime.RunOptions) -> Iterator[Any]:
    """The results of the last stage, in the order of the items; every stage runs in a thread of its own.

    The caller's thread only waits, so that Ctrl-C takes effect at once. The threads then end by themselves after their
    current item, whose run `options` terminate; the caller does not wait for them. An exception of a stage is raised
    here, and later items are dropped.
    """
    stop = threading.Event()
    queues: list[queue.Queue[Any]] = [queue.Queue(QUEUE_SIZE) for _ in stages]
    feed = iter(items)
    for number, (stage, results) in enumerate(zip(stages, queues, strict=True)):
        source = _drain(queues[number - 1], stop) if number else feed
        threading.Thread(target=_run_stage, args=(stage, source, results, stop), daemon=True).start()
    try:
        yield from _drain(queues[-1], stop)
    finally:
        stop.set()
        options.terminate = True


def _run_stage(stage: Stage, items: Iterator[Any], results: "queue.Queue[Any]", stop: threading.Event) -> None:
    try:
        for item in items:
            result = stage(item)
            if stop.is_set() or not _put(results, result, stop):
                return
            del item, result  # memory of a tile, not to be held while the next one is awaited
        _put(results, _END, stop)
    except BaseException as error:
        _put(results, error, stop)


def _put(results: "queue.Queue[Any]", item: Any, stop: threading.Event) -> bool:
    """Add an item once there is room; False if the run ends first."""
    while not stop.is_set():
        try:
            results.put(item, timeout=POLL_SECONDS)
            return True
        except queue.Full:
            continue
    return False


def _drain(items: "queue.Queue[Any]", stop: threading.Event) -> Iterator[Any]:
    """The items of a queue until the queue or the run ends; raises the exception of the previous stage."""
    while not stop.is_set():
        try:
            item = items.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if item is _END:
            return
        if isinstance(item, BaseException):
            raise item
        yield item
        del item
