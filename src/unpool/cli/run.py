"""The work of `unpool run`: read every input, run, write, and let the files appear together."""

import gc
import io
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError, one_line
from unpool.cli.feed import Feed, read_feed
from unpool.cli.inputs import Failure, Item, collect
from unpool.cli.metadata import Metadata
from unpool.cli.model import Slot, layout_error, naming_layout, open_session, size_error, slots
from unpool.cli.outputs import check_kind, elements, files_of, safe_names
from unpool.cli.progress import Outcome, ProgressDisplay, Result
from unpool.cli.render import Areas, ArraySpecs, ClassStyle, specs_of, write_result
from unpool.cli.route import Route, route
from unpool.cli.run_config import RunConfig
from unpool.cli.spool import spool
from unpool.cli.windows import FLOATS, ModelRun, ending_at_once, open_feed
from unpool.display import format_shape
from unpool.errors import FileError, MissingExtraError, ShapeError, UnpoolError
from unpool.files import FileSet, WriteError, find_overlap, resolve_target
from unpool.graph.save import external_files
from unpool.images.axes import spatial_axes
from unpool.images.formats import Content
from unpool.images.overlay import CLEAR
from unpool.images.pixels import Picture
from unpool.images.raster import CLASS_ADVICE, channel_counts
from unpool.memory import free_pool, peak_rss, rss, trim_heap
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.session import InferenceSession
from unpool.runtime.streams.partial_output import require_replaceable
from unpool.runtime.streams.run import run_locked
from unpool.runtime.streams.runner import Progress, ProgressCallback
from unpool.runtime.tiles.tiling import per_axis

_T = TypeVar("_T")
KEPT = 16  # divisor of --max-memory: the share of it that a session may keep between two items
Files: TypeAlias = Mapping[Path, Sequence[str]]  # the files of an item, and the outputs in each


def run(config: RunConfig, progress: ProgressDisplay) -> Outcome:
    """Run the model on every item and write one file per result, or none on an error; `keep_going` leaves items out."""
    config.check()
    session = _open(config)
    inputs = slots(session)
    items, failed = collect(config.inputs, list(inputs), config.max_memory, keep_going=config.keep_going)
    _stop_at(failed, config, len(items) + len(failed))
    _check_tile(config, inputs.values())
    if config.blend is not None:
        inputs = {name: slot.with_open_sizes(config.layout) for name, slot in inputs.items()}
    metadata = Metadata(session.get_modelmeta().custom_metadata_map, str(config.model))
    outputs = _wanted_outputs(config, {value.name: value.type for value in session.get_outputs()})
    style = _class_style(config, metadata)
    for value in session.get_outputs():
        if value.name in outputs:
            _check_channels(config, value.name, value.type, value.shape or (), style)
    runner = _Runner(config, session, inputs, outputs, metadata.pixel_rule(config), style, progress, rss())
    del session  # `runner` may open another one, and memory has no room for both
    files = _files_by_item(config, items, list(outputs))
    written = [place for places in files.values() for place in places]
    read = [config.model, *external_files(config.model).paths(config.model)]
    read += [path for item in items for path in item.paths]
    overlap = None if config.is_stdout else find_overlap(written, read)
    if overlap is not None:
        fact = "is read by this command, lies in what it reads or contains it, and would be overwritten"
        raise UsageError(f"-o: {overlap} {fact}. Choose another path.")
    _check_pixel_options(config, items)
    for item in items:
        route(runner, item)
    for place in (place for place in written if place.parent.exists()):
        if config.file_format.is_folder:
            require_replaceable({"": place})
        else:
            resolve_target(place)
    return Outcome(_write_all(runner, items, files, failed), failed)


def _write_all(
    runner: "_Runner", items: Sequence[Item], places: Mapping[str, Files], failed: list[Failure]
) -> list[Result]:
    config, results = runner.config, []
    with FileSet() as files:
        if config.is_folder:
            files.make_folder(config.output)
        if not config.is_stdout:
            files.locks.take(place for item in items for place in places[item.stem] if place.parent.is_dir())
        for item in runner.progress.items(items):
            try:
                runner.release_memory()
                results += runner.run_item(item, places[item.stem], files)
            except (UsageError, WriteError, MissingExtraError):
                raise
            except UnpoolError as error:
                if not config.keep_going and len(items) == 1:
                    raise
                failed.append(Failure(item.label, one_line(error)))
                _stop_at(failed, config, len(items))
    return results


def _stop_at(failed: Sequence[Failure], config: RunConfig, count: int) -> None:
    if failed and not config.keep_going:
        hint = " Nothing is written. --keep-going leaves such files out." if count > 1 else ""
        raise FileError(f"{failed[0]}{hint}")


def _class_style(config: RunConfig, metadata: Metadata) -> ClassStyle:
    """Names and colours of classes, from options or the model; with a threshold, a single one belongs to class 1."""

    def with_class_0(first: _T, values: Sequence[_T] | None) -> Sequence[_T] | None:
        return [first, *values] if values is not None and len(values) == 1 and config.threshold is not None else values

    names, model_names = (with_class_0("background", names) for names in (config.classes, metadata.classes()))
    return ClassStyle(names, model_names, with_class_0(CLEAR, config.palette or metadata.palette()))


def _open(config: RunConfig) -> InferenceSession:
    is_lean, threads = config.needs_windows or config.tiles is not None, config.threads
    return open_session(config.model, provider=config.provider, is_lean=is_lean, threads=threads, **config.semantics)


@dataclass
class _Runner(ModelRun):
    """Runs items; `used` is the memory that the process had before, in bytes."""

    used: int

    def release_memory(self) -> None:
        """Replace the session if onnxruntime still holds much memory of the last item's tiles."""
        limit = self.config.max_memory
        if limit is None:
            return
        free_pool()
        trim_heap()
        if rss() - self.used > limit // KEPT:
            del self.session
            gc.collect()
            trim_heap()
            self.session = _open(self.config)

    def run_item(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run the model on one item, by its route, and write its results."""
        match route(self, item):
            case Route.WINDOWS:
                return self._by_windows(item, places, files)
            case Route.TEMPORARY_FILES:
                return self._by_temporary_files(item, places, files)
            case Route.WHOLE:
                return self._whole(item, places, files)

    def _whole(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        feed = read_feed(item, self.slots, self.rule)
        self.check_sizes(item, feed.arrays)
        begin = time.perf_counter()
        outputs, progress = self._compute(feed, item)
        seconds = time.perf_counter() - begin
        results = []
        for place, names in places.items():
            arrays = elements({name: outputs[name] for name in names})
            if self.config.is_stdout:
                content = io.BytesIO()
                specs, areas = self._write(content, arrays, feed.picture)
                sys.stdout.buffer.write(content.getvalue())
                sys.stdout.buffer.flush()
            else:
                with files.open(place) as stream:
                    specs, areas = self._write(stream, arrays, feed.picture)
            renamed, notes = self._renamed(specs), (*feed.notes, *self._layout_notes())
            results.append(Result(item.label, place, specs, seconds, areas, notes, renamed, progress))
        return results

    def _write(
        self, stream: BinaryIO, arrays: Mapping[str, NDArray[Any]], picture: Picture | None
    ) -> tuple[ArraySpecs, Areas]:
        with naming_layout(self.slots.values(), self.config.layout):
            return write_result(stream, self.config, arrays, picture, self.style)

    def _layout_notes(self) -> list[str]:
        """A note about the axis of the classes where an input looks like an image of the other layout."""
        layout = self.config.layout
        other = next(filter(None, (slot.other_layout(layout) for slot in self.slots.values())), None)
        if other is None or not (self.config.makes_classes or self.config.softmax):
            return []
        axis = "axis 1" if layout == "nchw" else "the last axis"
        return [f"the classes are those along {axis}, as --layout {layout} says; the inputs look like --layout {other}"]

    def _renamed(self, arrays: Iterable[str]) -> dict[str, str]:
        members = safe_names(arrays) if self.config.format == "npz" else {}
        return {name: member for name, member in members.items() if name != member}

    def _compute(self, feed: Feed, item: Item) -> tuple[dict[str, Any], Progress | None]:
        latest: Progress | None = None

        def on_progress(now: Progress) -> None:
            nonlocal latest
            latest = now
            self.progress.on_progress(now)

        try:
            feeds = split_batches(feed.arrays, {name: slot.batch for name, slot in self.slots.items()}, item.label)
            runs = [self._run_model(arrays, on_progress) for arrays in feeds]
            return _join_batches(runs), latest
        except UnpoolError as error:
            message = None
            if feed.picture is not None:
                message = layout_error(self.session, feed.arrays, self.config.layout)
            message = message or size_error(self.session, feed.arrays, self.config.layout)
            if message is None:
                raise
            raise ShapeError(f"{item.label}: {message}") from error

    def _run_model(self, feed: Mapping[str, NDArray[Any]], on_progress: ProgressCallback) -> Mapping[str, Any]:
        """The wanted outputs by name; `on_progress` gets the progress of tiles."""
        config, names = self.config, list(self.outputs)
        if config.tiles is None:
            return dict(zip(names, run_session(self.session, names, feed), strict=True))
        layout = config.layout.upper()

        def progress(tiles: Iterable[Any]) -> Iterator[Any]:
            count, begin = len(tiles) if isinstance(tiles, Sized) else 0, time.monotonic()
            for done, tile in enumerate(tiles, 1):
                yield tile
                on_progress(Progress(count, 0, done, time.monotonic() - begin, peak_rss()))

        words: dict[str, Any] = {"outputs": names, "layout": layout, "progress": progress}
        if config.blend is not None and not isinstance(config.tiles, str):
            from unpool.runtime.tiles.blending import blend

            return blend(self.session, feed, config.tiles, overlap=config.tile_overlap, mode=config.blend, **words)
        from unpool.runtime.tiles.run import run as run_tiles

        return run_tiles(self.session, feed, config.tiles, max_memory=config.max_memory, **words)

    def _by_temporary_files(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        folder = None if self.config.is_stdout else next(iter(places)).parent
        begin, results = time.perf_counter(), []
        with spool(self, item, folder, files.roll_back) as spooled:
            for place, names in places.items():
                if self.config.is_stdout:
                    specs, areas = spooled.write_to_stream(sys.stdout.buffer, names)
                else:
                    with files.open(place) as stream:
                        specs, areas = spooled.write(stream, names)
                seconds, progress, renamed = time.perf_counter() - begin, spooled.done.progress, self._renamed(specs)
                results.append(Result(item.label, place, specs, seconds, areas, spooled.notes, renamed, progress))
        return results

    def _by_windows(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        begin, request, on_progress = time.perf_counter(), self.request, self.progress.on_progress
        targets = {name: place for place, (name,) in places.items()}
        feed, notes = open_feed(self, item, request)
        with files.locks.hold(places), ending_at_once(files.roll_back, can_resume=True):
            done = run_locked(self.session, feed, targets, request, resume=self.config.resume, on_progress=on_progress)
        seconds = time.perf_counter() - begin
        return [
            Result(
                item.label,
                file.path,
                specs_of({name: file}),
                seconds,
                self.style.shares(file),
                notes=notes,
                progress=done.progress,
            )
            for name, file in done.files.items()
        ]


def _wanted_outputs(config: RunConfig, kinds: Mapping[str, str]) -> dict[str, str]:
    for name in config.output_names:
        if name not in kinds:
            raise UnpoolError(f"--output-name {name}: the model has outputs {', '.join(kinds)}. Choose one.")
    wanted = {name: kinds[name] for name in config.output_names or kinds}
    takes_several = (config.format == "npz" or config.is_folder) and not config.makes_classes
    if len(wanted) > 1 and not takes_several:
        raise UsageError(
            f"the model has outputs {', '.join(wanted)}. Choose one with --output-name, write .npz, or give a folder, "
            "with / at its end if it is new, for a file of each; --argmax, --overlay and --threshold take one."
        )
    for name, kind in wanted.items():
        check_kind(name, kind, config.format)
        if config.makes_classes and not kind.startswith("tensor("):
            raise UsageError(f"output {name!r} is {kind}: a class at each position needs a tensor. Choose another.")
    return wanted


def _check_channels(config: RunConfig, name: str, kind: str, shape: Sequence[Any], style: ClassStyle) -> None:
    """Refuse what does not fit the channels of an output before it is computed, where the model states their number."""
    channels = shape[1 if config.layout == "nchw" else -1] if len(shape) > 2 else None
    if not isinstance(channels, int):
        return
    if config.makes_classes:
        may_be_numbers = len(shape) == 3 or channels == 1  # of classes, as integers
        count = 2 if config.threshold is not None else channels
        if config.threshold is not None or kind in FLOATS or not may_be_numbers:
            style.legend(count)
            if config.palette is not None and len(style.palette or ()) > count:
                raise UsageError(f"--palette: expected at most {count} colours, got {len(style.palette or ())}.")
    elif config.file_format.channels and channels not in config.file_format.channels:
        fact = f"output {name!r} has {channels} channels, a .{config.format} holds {channel_counts(config.format)}"
        raise ShapeError(f"-o {config.output}: {fact}. {CLASS_ADVICE}")


def _files_by_item(config: RunConfig, items: Sequence[Item], outputs: Sequence[str]) -> dict[str, Files]:
    if len(items) > 1 and not config.is_folder:
        fact = f"expected a folder for {len(items)} results, got a place for one"
        raise UsageError(f"-o {config.output}: {fact}. Give a folder, with / at its end if it is new, and --format.")
    files: dict[str, Files] = {}
    for item in items:
        place = config.output / f"{item.stem}.{config.format}" if config.is_folder else config.output
        files[item.stem] = files_of(place, config.format, outputs)
    written = [place for places in files.values() for place in places]
    if len(set(written)) < len(written):
        twice = next(place for place in written if written.count(place) > 1)
        raise UsageError(f"-o: {twice} would be written twice. Run the inputs apart, or rename one.")
    return files


def _check_tile(config: RunConfig, inputs: Iterable[Slot]) -> None:
    shapes = [slot.shape for slot in inputs if slot.shape is not None]
    if config.tiles is None or isinstance(config.tiles, str):
        return
    rank = max((len(shape) - 2 for shape in shapes), default=0)
    if rank < 1:
        return
    size = per_axis(config.tiles, rank)
    if len(size) != rank:
        advice = format_shape((*size, *size[-1:] * rank)[:rank])
        kind = {1: "signals", 2: "pictures", 3: "volumes"}.get(rank, "images")
        fact = f"the model takes {kind}, whose tiles have {rank} size{'' if rank == 1 else 's'}"
        raise UsageError(f"--tile {format_shape(size)}: {fact}. Write --tile {advice}.")
    if config.blend is None:
        return
    axes = spatial_axes(rank + 2, config.layout.upper())
    for shape in (shape for shape in shapes if len(shape) == rank + 2):
        patch = [shape[axis] or length for axis, length in zip(axes, size, strict=True)]
        if patch != size:
            fact = f"the model takes patches of {format_shape(patch)}"
            raise UsageError(f"--tile {format_shape(size)}: {fact}. Write --tile {format_shape(patch)}.")


def _check_pixel_options(config: RunConfig, items: Sequence[Item]) -> None:
    has_image = all(any(source.is_image for source in item.sources.values()) for item in items)
    if config.overlay and not has_image:
        raise UsageError("--overlay draws over an image, the inputs are arrays. Give an image, or use --argmax.")
    formats = [source.file_format for item in items for source in item.sources.values()]
    if config.pages is not None and not any(each and each.content is Content.PAGES for each in formats):
        raise UsageError("--pages says what the pages of a .tif are, no input is one. Leave it out.")
    changes_pixels = any(value is not None for value in (config.white, config.scale, config.mean, config.std))
    if changes_pixels and not has_image:
        raise UsageError(
            "--white, --scale, --mean and --std change images, the inputs are arrays. Leave these options out."
        )


def split_batches(
    arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int | None], where: str
) -> list[Mapping[str, NDArray[Any]]]:
    """The feeds of several runs, where pages are more than the fixed batch of an input; other inputs go into each run.

    `sizes` has the batch of each input, None where it is open; error messages begin with `where`.

    >>> [feed["x"].tolist() for feed in split_batches({"x": np.arange(4)}, {"x": 2}, "a.tif")]
    [[0, 1], [2, 3]]
    """
    counts = {name: len(array) // size for name, array in arrays.items() if (size := sizes[name]) and len(array) > size}
    if not counts:
        return [arrays]
    if len(set(counts.values())) > 1:
        pages = ", ".join(f"{name} of {len(arrays[name])}" for name in counts)
        raise ShapeError(f"{where}: inputs need equal numbers of pages, got {pages}. Split the files.")
    count = next(iter(counts.values()))
    parts = {name: np.split(arrays[name], count) for name in counts}
    return [{**arrays, **{name: parts[name][number] for name in parts}} for number in range(count)]


def _join_batches(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The outputs of several runs, joined along the batch in their order; the outputs of one run as they are."""
    if len(runs) == 1:
        return dict(runs[0])
    for name in runs[0]:
        if any(not isinstance(run[name], np.ndarray) or run[name].ndim == 0 for run in runs):
            advice = "Choose another output, or export the model with an open batch."
            raise ShapeError(f"output {name!r}: has no batch, so that pages cannot be run one after another. {advice}")
    return {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
