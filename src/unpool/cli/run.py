"""The work of `unpool run`: read every input, run, write, and let the files appear together."""

import gc
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError, one_line
from unpool.cli.feed import Feed, read_feed
from unpool.cli.inputs import Failure, Item, collect
from unpool.cli.metadata import Metadata, PixelRule
from unpool.cli.model import Slot, open_session, slots
from unpool.cli.outputs import check_kind, elements, files_of, safe_names, write_stdout
from unpool.cli.render import ArraySpec, ClassStyle, write_result
from unpool.cli.run_config import RunConfig
from unpool.cli.size_errors import size_error, smallest_size_error
from unpool.cli.spool import spool, spools, write_to_stdout
from unpool.cli.summary import Outcome, Result
from unpool.cli.windows import open_feed, run_over_windows, takes_windows
from unpool.display import format_shape
from unpool.errors import FileError, MissingExtraError, ShapeError, UnpoolError
from unpool.files import FileSet, WriteError, find_overlap, resolve_target
from unpool.images.formats import TIFF_SUFFIXES
from unpool.images.overlay import CLEAR
from unpool.memory import free_pool
from unpool.memory_limits import peak_rss, rss, trim
from unpool.runtime.graph.save import external_files
from unpool.runtime.streams.partial_output import require_replaceable
from unpool.runtime.streams.runner import OutputFile, Progress, ProgressCallback

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


_T = TypeVar("_T")
KEPT = 16
"""By --max-memory, the share of it that a session may keep between two items."""

Files: TypeAlias = Mapping[Path, Sequence[str]]
"""The files of an item, and the outputs in each."""


@dataclass(frozen=True)
class ProgressDisplay:
    """Display of progress: `items` wraps the iteration over items, `on_progress` gets the progress of their tiles."""

    items: Callable[[Sequence[Item]], Iterable[Item]] = iter
    on_progress: ProgressCallback = lambda _: None


def run(config: RunConfig, progress: ProgressDisplay = ProgressDisplay()) -> Outcome:
    """Run the model on every item and write the results.

    On an error, an interruption or a fault of the disk nothing is written. With `keep_going`, items that cannot be
    read or do not fit are left out instead.

    Args:
        config: the command line.
        progress: goes through the items.

    Returns:
        one result per written file, in the order of the items, and the items that were left out.
    """
    config.check()
    session = _open(config)
    names = {slot.name: slot for slot in slots(session).values()}
    found = collect(config.inputs, list(names), config.max_memory, keep_going=config.keep_going)
    _stop_at(found.failed, config, len(found.items) + len(found.failed))
    _check_tile(config, names)
    said = Metadata(session.get_modelmeta().custom_metadata_map, str(config.model))
    wanted = _wanted(config, session.get_outputs())
    runner = _Runner(config, session, names, wanted, said.rule(config.rule), _drawn(config, said), progress, rss())
    del session  # `runner` may open another one, and memory has no room for both
    places = _places(config, found.items, wanted)
    read = [config.model, *external_files(config.model).paths(config.model)]
    read += [path for item in found.items for path in item.paths]
    written = [place for files in places.values() for place in files]
    _keep_sources(
        [] if config.output.is_stdout else written, [*read, *(path for item in found.items for path in item.paths)]
    )
    _check_pictures(config, found.items)
    for item in found.items:
        takes_windows(config, item, runner.session, wanted)
    for place in (place for place in written if place.parent.exists()):
        if config.format == "zarr":
            require_replaceable({"": place})
        else:
            resolve_target(place)
    return Outcome(_write_all(runner, found.items, places, found.failed), found.failed)


def _write_all(
    runner: "_Runner", items: Sequence[Item], places: Mapping[str, Files], failed: list[Failure]
) -> list[Result]:
    """The results of all items, whose files appear together; what goes wrong with one is added to `failed`."""
    config, results = runner.config, []
    with FileSet() as files:
        if config.output.is_folder:
            files.make_folder(config.output.path)
        if not config.output.is_stdout:
            files.lock(place for item in items for place in places[item.stem] if place.parent.is_dir())
        for item in runner.progress.items(items):
            try:
                runner.release_memory()
                results += runner.one(item, places[item.stem], files)
            except (UsageError, WriteError, MissingExtraError):
                raise
            except UnpoolError as error:
                if not config.keep_going and len(items) == 1:
                    raise
                failed.append(Failure(item.label, one_line(error)))
                _stop_at(failed, config, len(items))
    return results


def _stop_at(failed: Sequence[Failure], config: RunConfig, count: int) -> None:
    """Raise the first failure, unless what fails is to be left out."""
    if failed and not config.keep_going:
        hint = " Nothing is written. --keep-going leaves such files out." if count > 1 else ""
        raise FileError(f"{failed[0]}{hint}")


def _drawn(config: RunConfig, said: Metadata) -> ClassStyle:
    """Names and colours of classes: from the options, else from the model.

    With a threshold, one name or colour is that of class 1; class 0 is the background then.
    """
    names, stored, palette = config.classes, said.classes(), config.palette or said.palette()
    if config.threshold is None:
        return ClassStyle(names, stored, palette)
    return ClassStyle(_second("background", names), _second("background", stored), _second(CLEAR, palette))


def _second(first: _T, values: Sequence[_T] | None) -> Sequence[_T] | None:
    """A single value after another one; several unchanged."""
    return [first, *values] if values is not None and len(values) == 1 else values


def _open(config: RunConfig) -> "InferenceSession":
    is_lean = config.needs_windows or config.tile is not None
    return open_session(config.model, replace(config.session, is_lean=is_lean))


@dataclass
class _Runner:
    """Runs items; `session` is another one once it kept much memory, and `used` is what the process had before."""

    config: RunConfig
    session: "InferenceSession"
    slots: Mapping[str, Slot]
    wanted: Sequence[str]
    rule: PixelRule
    style: ClassStyle
    progress: ProgressDisplay
    used: int

    def release_memory(self) -> None:
        """Replace the session if onnxruntime still holds much memory of the last item's tiles."""
        most = self.config.max_memory
        if most is None:
            return
        free_pool()
        trim()
        if rss() - self.used > most // KEPT:
            del self.session
            gc.collect()
            trim()
            self.session = _open(self.config)

    def one(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item into its files, or into standard output."""
        if takes_windows(self.config, item, self.session, self.wanted):
            return self._by_windows(item, places, files)
        if spools(self.config, self.session, self.wanted):
            return self._by_spool(item, places, files)
        feed = read_feed(item, self.slots, self.rule)
        self._check_sizes(item, {name: array.shape for name, array in feed.arrays.items()})
        begin = time.perf_counter()
        outputs, progress = self._outputs(feed, item)
        seconds = time.perf_counter() - begin
        made = dict(zip(self.wanted, outputs, strict=True))
        written = [
            self._write(item, feed, place, {name: made[name] for name in names}, files, seconds)
            for place, names in places.items()
        ]
        return [replace(one, progress=progress) for one in written]

    def _write(
        self, item: Item, feed: Feed, place: Path, outputs: Mapping[str, Any], files: FileSet, seconds: float
    ) -> Result:
        """Write one file."""
        arrays = elements(outputs)
        if self.config.output.is_stdout:
            content = io.BytesIO()
            written, areas = write_result(content, self.config, arrays, feed.picture, self.style)
            write_stdout(content.getvalue())
        else:
            with files.open(place) as stream:
                written, areas = write_result(stream, self.config, arrays, feed.picture, self.style)
        return self._result((item, place), written, areas, seconds, feed.notes)

    def _result(
        self,
        where: tuple[Item, Path],
        written: Mapping[str, ArraySpec],
        areas: Mapping[str, float],
        seconds: float,
        notes: Sequence[str],
        progress: Progress | None = None,
    ) -> Result:
        item, place = where
        held = {name: (one.shape, str(one.dtype)) for name, one in written.items()}
        names = safe_names(written) if self.config.format == "npz" else {}
        others = {name: member for name, member in names.items() if name != member}
        return Result(item.label, place, held, seconds, areas, tuple(notes), others, progress)

    def _check_sizes(self, item: Item, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse images that are smaller than the model can use: parts of it would see nothing."""
        if self.config.allow_empty or self.config.blend is not None:
            return
        text = smallest_size_error(self.session, shapes, self.rule.layout)
        if text is not None:
            raise ShapeError(f"{item.label}: {text} --allow-empty computes it as the standard says, with empty values.")

    def _size_check(self, item: Item) -> Callable[[Mapping[str, Any]], None]:
        return lambda feed: self._check_sizes(item, {name: source.shape for name, source in feed.items()})

    def _outputs(self, feed: Feed, item: Item) -> tuple[list[Any], Progress | None]:
        layout = self.rule.layout
        latest: list[Progress] = []

        def tell(now: Progress) -> None:
            latest[:] = [now]
            self.progress.on_progress(now)

        try:
            feeds = split_batches(feed.arrays, {name: slot.batch for name, slot in self.slots.items()}, item.label)
            runs = [_run_model(self.session, arrays, self.wanted, self.config, tell) for arrays in feeds]
            return _join_batches(self.wanted, runs), latest[0] if latest else None
        except UnpoolError as error:
            told = size_error(self.session, feed.arrays, layout)
            if told is None:
                raise
            raise ShapeError(f"{item.label}: {told}") from error

    def _by_spool(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item over windows of temporary files, and write its files from them."""
        config, is_stdout = replace(self.config, rule=self.rule), self.config.output.is_stdout
        folder = None if is_stdout else next(iter(places)).parent
        begin, results = time.perf_counter(), []
        run = (self.session, config, item, self.slots, self.wanted, folder)

        with spool(*run, self.progress.on_progress, files.undo, self._size_check(item)) as spooled:
            for place, names in places.items():
                if is_stdout:
                    held, areas = write_to_stdout(spooled, names, self.style, sys.stdout.buffer)
                else:
                    with files.open(place) as stream:
                        held, areas = spooled.write(stream, names, self.style)
                seconds = time.perf_counter() - begin
                results.append(self._result((item, place), held, areas, seconds, spooled.notes, spooled.done.progress))
        return results

    def _by_windows(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item over windows of files."""
        config = replace(self.config, rule=self.rule)
        begin = time.perf_counter()
        targets = {name: place for place, (name,) in places.items()}
        feed, notes = open_feed(self.session, config, item, self.slots, self.wanted, self._size_check(item))
        with files.hold(places):
            done = run_over_windows(
                self.session, config, feed, targets, self.progress.on_progress, files.undo, can_resume=True
            )
        seconds = time.perf_counter() - begin

        def result(name: str, file: OutputFile) -> Result:
            held = {name: (file.shape, str(file.dtype))}
            return Result(item.label, file.path, held, seconds, notes=tuple(notes), progress=done.progress)

        return [result(name, file) for name, file in done.files.items()]


def _wanted(config: RunConfig, outputs: Sequence[Any]) -> list[str]:
    kinds = {one.name: one.type for one in outputs}
    wanted = _names(config, list(kinds))
    for name in wanted:
        check_kind(name, kinds[name], config.format)
        if config.makes_classes and not kinds[name].startswith("tensor("):
            raise UsageError(
                f"output {name!r} is {kinds[name]}: a class at each position needs a tensor. Choose another."
            )
    return wanted


def _names(config: RunConfig, names: Sequence[str]) -> list[str]:
    for name in config.wanted:
        if name not in names:
            raise UnpoolError(f"--output-name {name}: the model has outputs {', '.join(names)}. Choose one.")
    chosen = list(dict.fromkeys(config.wanted)) or list(names)
    takes_several = (config.format == "npz" or config.output.is_folder) and not config.makes_classes
    if len(chosen) > 1 and not takes_several:
        raise UsageError(
            f"the model has outputs {', '.join(chosen)}. Choose one with --output-name, write .npz, or give a folder, "
            "with / at its end if it is new, for a file of each; --argmax, --overlay and --threshold take one."
        )
    return chosen


def _places(config: RunConfig, items: Sequence[Item], wanted: Sequence[str]) -> dict[str, Files]:
    """By item, its files."""
    targets = config.output.targets([item.stem for item in items], config.format)
    places: dict[str, Files] = {stem: files_of(place, config.format, wanted) for stem, place in targets.items()}
    named = [place for files in places.values() for place in files]
    if len(set(named)) < len(named):
        twice = next(place for place in named if named.count(place) > 1)
        raise UsageError(f"-o: {twice} would be written twice. Run the inputs apart, or rename one.")
    return places


def _keep_sources(places: Iterable[Path], sources: Iterable[Path]) -> None:
    found = find_overlap(places, sources)
    if found is not None:
        raise UsageError(
            f"-o: {found} is read by this command, lies in what it reads or contains it, and would be overwritten. "
            "Choose another place."
        )


def _check_tile(config: RunConfig, slots: Mapping[str, Slot]) -> None:
    """Refuse tiles of another rank than the images of the model."""
    size, shapes = config.tile, [slot.shape for slot in slots.values()]
    if not isinstance(size, tuple) or any(shape is None for shape in shapes):
        return
    rank = max((len(shape) - 2 for shape in shapes if shape is not None), default=0)
    if rank > 0 and len(size) != rank:
        wanted = format_shape((*size, *size[-1:] * rank)[:rank])
        kind = {1: "signals", 2: "pictures", 3: "volumes"}.get(rank, "images")
        raise UsageError(
            f"--tile {'x'.join(map(str, size))}: the model takes {kind}, whose tiles have {rank} "
            f"size{'' if rank == 1 else 's'}. Write --tile {wanted}."
        )


def _check_pictures(config: RunConfig, items: Iterable[Item]) -> None:
    items = list(items)
    has_image = all(any(source.is_image for source in item.sources.values()) for item in items)
    if config.overlay and not has_image:
        raise UsageError("--overlay draws over an image, the inputs are arrays. Give an image, or use --argmax.")
    suffixes = {source.suffix for item in items for source in item.sources.values()}
    if config.rule.pages is not None and not suffixes.intersection(TIFF_SUFFIXES):
        raise UsageError("--pages says what the pages of a .tif are, no input is one. Leave it out.")
    if not config.rule.is_identity and not has_image:
        raise UsageError(
            "--white, --scale, --mean and --std change images, the inputs are arrays. Leave these options out."
        )


def _run_model(
    session: "InferenceSession",
    feed: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    config: RunConfig,
    on_progress: ProgressCallback = lambda _: None,
) -> list[Any]:
    """The wanted outputs; `on_progress` gets the progress of a run in tiles."""
    if config.tile is None:
        return session.run(list(wanted), dict(feed))
    if config.blend is not None and isinstance(config.tile, tuple):
        from unpool.runtime.tiles.blending import blend

        averaged = blend(
            session,
            feed,
            config.tile,
            overlap=config.overlap,
            mode=config.blend,
            outputs=wanted,
            layout=config.rule.layout.upper(),
        )
        return [averaged[name] for name in wanted]
    from unpool.runtime.tiles.run import run as run_tiles

    def progress(tiles: Iterable[Any]) -> Iterator[Any]:
        count, begin = len(tiles) if isinstance(tiles, Sized) else 0, time.monotonic()
        for done, tile in enumerate(tiles, 1):
            yield tile
            on_progress(Progress(count, 0, done, time.monotonic() - begin, peak_rss()))

    made = run_tiles(
        session,
        feed,
        config.tile,
        max_memory=config.max_memory,
        outputs=wanted,
        layout=config.rule.layout.upper(),
        progress=progress,
    )
    return [made[name] for name in wanted]


def split_batches(
    arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int | None], where: str
) -> list[Mapping[str, NDArray[Any]]]:
    """The feeds of several runs, where pages are more than the fixed batch of an input; other inputs go into each run.

    Args:
        arrays: of all inputs.
        sizes: the batch of each; None where it is open.
        where: what the error message begins with.

    >>> [feed["x"].tolist() for feed in split_batches({"x": np.arange(4)}, {"x": 2}, "a.tif")]
    [[0, 1], [2, 3]]
    """
    counts = {name: len(array) // size for name, array in arrays.items() if (size := sizes[name]) and len(array) > size}
    if not counts:
        return [arrays]
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} of {len(arrays[name])}" for name in counts)
        raise ShapeError(f"{where}: inputs need equal numbers of pages, got {found}. Split the files.")
    count = next(iter(counts.values()))
    parts = {name: np.split(arrays[name], count) for name in counts}
    return [{**arrays, **{name: parts[name][number] for name in parts}} for number in range(count)]


def _join_batches(names: Sequence[str], runs: Sequence[list[Any]]) -> list[Any]:
    """The outputs of several runs, in their order along the batch; those of one run as they are."""
    if len(runs) == 1:
        return runs[0]
    for name, *parts in zip(names, *runs, strict=True):
        if any(not isinstance(part, np.ndarray) or part.ndim == 0 for part in parts):
            raise ShapeError(
                f"output {name!r}: has no batch, so that pages cannot be run one after another. Choose another output, "
                "or export the model with an open batch."
            )
    return [np.concatenate(parts) for parts in zip(*runs, strict=True)]
