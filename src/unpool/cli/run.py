"""The work of `unpool run`: read every input, run, write, and let the files appear together."""

import gc
import io
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from unpool.cli.errors import UsageError, one_line
from unpool.cli.feed import Feed, read_feed
from unpool.cli.inputs import Failure, Item, collect
from unpool.cli.metadata import Metadata, PixelRule
from unpool.cli.model import Slot, open_session, slots
from unpool.cli.outputs import check_kind, elements, files_of, safe_names, write_stdout
from unpool.cli.render import Drawn, Held, write_result
from unpool.cli.run_options import Request
from unpool.cli.spool import spool, spools, write_to_stdout
from unpool.cli.streams import open_feed, run_over_windows, takes_windows
from unpool.cli.tiles import batches, joined, run_model
from unpool.cli.wrong_size import below_smallest, wrong_size
from unpool.display import format_shape
from unpool.errors import FileError, MissingExtraError, ShapeError, UnpoolError
from unpool.files import FileSet, WriteError, find_overlap, resolve_target
from unpool.images.formats import TIFF_SUFFIXES
from unpool.images.overlay import CLEAR
from unpool.memory import free_pool
from unpool.memory_limits import rss, trim
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
    """A way through the items that may show how far it is; `on_progress` gets the progress of its tiles."""

    items: Callable[[Sequence[Item]], Iterable[Item]] = iter
    on_progress: ProgressCallback = lambda _: None


@dataclass(frozen=True)
class Result:
    """One written file.

    Attributes:
        source: what it was made of.
        path: where it is.
        arrays: what it holds, as (shape, type) by name.
        seconds: how long the model ran.
        areas: share of the area by class.
        notes: what was taken for granted about the pixels that went in.
        members: the names of arrays in the file, where they are others.
        progress: the tiles that were run, where files were read and written window by window.
    """

    source: str
    path: Path
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    seconds: float
    areas: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    members: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        arrays = {name: {"shape": list(shape), "type": kind} for name, (shape, kind) in self.arrays.items()}
        plain = {
            "input": self.source,
            "output": str(self.path),
            "arrays": arrays,
            "seconds": round(self.seconds, 6),
        }
        tiles = {} if self.progress is None else asdict(self.progress)
        more = {"areas": dict(self.areas), "notes": list(self.notes), "members": dict(self.members), "tiles": tiles}
        return plain | {name: value for name, value in more.items() if value}


@dataclass(frozen=True)
class Outcome:
    """What was written, and what was left out."""

    results: list[Result]
    failed: list[Failure]


def run(request: Request, progress: ProgressDisplay = ProgressDisplay()) -> Outcome:
    """Run the model on every item and write the results.

    On an error, an interruption or a fault of the disk nothing is written. With `keep_going`, items that cannot be
    read or do not fit are left out instead.

    Args:
        request: the command line.
        progress: goes through the items.

    Returns:
        one result per written file, in the order of the items, and the items that were left out.
    """
    request.check()
    session = _open(request)
    names = {slot.name: slot for slot in slots(session).values()}
    found = collect(request.inputs, list(names), request.tiles.memory, keep_going=request.keep_going)
    _stop_at(found.failed, request, len(found.items) + len(found.failed))
    _check_tile(request, names)
    said = Metadata(session.get_modelmeta().custom_metadata_map, str(request.model))
    wanted = _wanted(request, session.get_outputs())
    runner = _Runner(request, session, names, wanted, said.rule(request.rule), _drawn(request, said), progress, rss())
    del session  # `runner` may open another one, and memory has no room for both
    places = _places(request, found.items, wanted)
    read = [request.model, *external_files(request.model).paths(request.model)]
    read += [path for item in found.items for path in item.paths]
    written = [place for files in places.values() for place in files]
    _keep_sources(
        [] if request.output.is_stdout else written, [*read, *(path for item in found.items for path in item.paths)]
    )
    _check_pictures(request, found.items)
    for item in found.items:
        takes_windows(request, item, runner.session, wanted)
    for place in (place for place in written if place.parent.exists()):
        if request.format == "zarr":
            require_replaceable({"": place})
        else:
            resolve_target(place)
    return Outcome(_write_all(runner, found.items, places, found.failed), found.failed)


def _write_all(
    runner: "_Runner", items: Sequence[Item], places: Mapping[str, Files], failed: list[Failure]
) -> list[Result]:
    """The results of all items, whose files appear together; what goes wrong with one is added to `failed`."""
    request, results = runner.request, []
    with FileSet() as files:
        if request.output.is_folder:
            files.make_folder(request.output.path)
        if not request.output.is_stdout:
            files.lock(place for item in items for place in places[item.stem] if place.parent.is_dir())
        for item in runner.progress.items(items):
            try:
                runner.release_memory()
                results += runner.one(item, places[item.stem], files)
            except (UsageError, WriteError, MissingExtraError):
                raise
            except UnpoolError as error:
                if not request.keep_going and len(items) == 1:
                    raise
                failed.append(Failure(item.label, one_line(error)))
                _stop_at(failed, request, len(items))
    return results


def _stop_at(failed: Sequence[Failure], request: Request, count: int) -> None:
    """Raise the first failure, unless what fails is to be left out."""
    if failed and not request.keep_going:
        hint = " Nothing is written. --keep-going leaves such files out." if count > 1 else ""
        raise FileError(f"{failed[0]}{hint}")


def _drawn(request: Request, said: Metadata) -> Drawn:
    """How classes are shown: as the options say, else as the model says.

    With a threshold, one name or colour is that of class 1; class 0 is the background then.
    """
    names, stored, palette = request.classes, said.classes(), request.palette or said.palette()
    if request.threshold is None:
        return Drawn(names, stored, palette)
    return Drawn(_second("background", names), _second("background", stored), _second(CLEAR, palette))


def _second(first: _T, values: Sequence[_T] | None) -> Sequence[_T] | None:
    """The only value behind another one; several as they are."""
    return [first, *values] if values is not None and len(values) == 1 else values


def _open(request: Request) -> "InferenceSession":
    is_lean = request.needs_windows or request.tiles.size is not None
    return open_session(request.model, replace(request.session, is_lean=is_lean))


@dataclass
class _Runner:
    """Runs items; `session` is another one once it kept much memory, and `used` is what the process had before."""

    request: Request
    session: "InferenceSession"
    slots: Mapping[str, Slot]
    wanted: Sequence[str]
    rule: PixelRule
    drawn: Drawn
    progress: ProgressDisplay
    used: int

    def release_memory(self) -> None:
        """Open the session anew where onnxruntime keeps much of the memory that tiles of the last item have taken."""
        most = self.request.tiles.memory
        if most is None:
            return
        free_pool()
        trim()
        if rss() - self.used > most // KEPT:
            del self.session
            gc.collect()
            trim()
            self.session = _open(self.request)

    def one(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item into its files, or into standard output."""
        if takes_windows(self.request, item, self.session, self.wanted):
            return self._by_windows(item, places, files)
        if spools(self.request, self.session, self.wanted):
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
        if self.request.output.is_stdout:
            content = io.BytesIO()
            written, areas = write_result(content, self.request, arrays, feed.picture, self.drawn)
            write_stdout(content.getvalue())
        else:
            with files.open(place) as stream:
                written, areas = write_result(stream, self.request, arrays, feed.picture, self.drawn)
        return self._result((item, place), written, areas, seconds, feed.notes)

    def _result(
        self,
        where: tuple[Item, Path],
        written: Mapping[str, Held],
        areas: Mapping[str, float],
        seconds: float,
        notes: Sequence[str],
        progress: Progress | None = None,
    ) -> Result:
        item, place = where
        held = {name: (one.shape, str(one.dtype)) for name, one in written.items()}
        names = safe_names(written) if self.request.format == "npz" else {}
        others = {name: member for name, member in names.items() if name != member}
        return Result(item.label, place, held, seconds, areas, tuple(notes), others, progress)

    def _check_sizes(self, item: Item, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse images that are smaller than the model can use: parts of it would see nothing."""
        if self.request.allow_empty or self.request.tiles.blend is not None:
            return
        text = below_smallest(self.session, shapes, self.rule.layout)
        if text is not None:
            raise ShapeError(f"{item.label}: {text} --allow-empty computes it as the standard says, with empty values.")

    def _size_check(self, item: Item) -> Callable[[Mapping[str, Any]], None]:
        return lambda feed: self._check_sizes(item, {name: source.shape for name, source in feed.items()})

    def _outputs(self, feed: Feed, item: Item) -> tuple[list[Any], Progress | None]:
        tiles, layout = self.request.tiles, self.rule.layout
        latest: list[Progress] = []

        def tell(now: Progress) -> None:
            latest[:] = [now]
            self.progress.on_progress(now)

        try:
            feeds = batches(feed.arrays, {name: slot.batch for name, slot in self.slots.items()}, item.label)
            runs = [run_model(self.session, arrays, self.wanted, tiles, layout, tell) for arrays in feeds]
            return joined(self.wanted, runs), latest[0] if latest else None
        except UnpoolError as error:
            told = wrong_size(self.session, feed.arrays, layout)
            if told is None:
                raise
            raise ShapeError(f"{item.label}: {told}") from error

    def _by_spool(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item over windows of temporary files, and write its files from them."""
        request, is_stdout = replace(self.request, rule=self.rule), self.request.output.is_stdout
        folder = None if is_stdout else next(iter(places)).parent
        begin, results = time.perf_counter(), []
        run = (self.session, request, item, self.slots, self.wanted, folder)

        with spool(*run, self.progress.on_progress, files.undo, self._size_check(item)) as spooled:
            for place, names in places.items():
                if is_stdout:
                    held, areas = write_to_stdout(spooled, names, self.drawn, sys.stdout.buffer)
                else:
                    with files.open(place) as stream:
                        held, areas = spooled.write(stream, names, self.drawn)
                seconds = time.perf_counter() - begin
                results.append(self._result((item, place), held, areas, seconds, spooled.notes, spooled.done.progress))
        return results

    def _by_windows(self, item: Item, places: Files, files: FileSet) -> list[Result]:
        """Run one item over windows of files."""
        request = replace(self.request, rule=self.rule)
        begin = time.perf_counter()
        targets = {name: place for place, (name,) in places.items()}
        feed, notes = open_feed(self.session, request, item, self.slots, self.wanted, self._size_check(item))
        with files.hold(places):
            done = run_over_windows(
                self.session, request, feed, targets, self.progress.on_progress, files.undo, can_resume=True
            )
        seconds = time.perf_counter() - begin

        def result(name: str, file: OutputFile) -> Result:
            held = {name: (file.shape, str(file.dtype))}
            return Result(item.label, file.path, held, seconds, notes=tuple(notes), progress=done.progress)

        return [result(name, file) for name, file in done.files.items()]


def _wanted(request: Request, outputs: Sequence[Any]) -> list[str]:
    kinds = {one.name: one.type for one in outputs}
    wanted = _names(request, list(kinds))
    for name in wanted:
        check_kind(name, kinds[name], request.format)
        if request.makes_classes and not kinds[name].startswith("tensor("):
            raise UsageError(
                f"output {name!r} is {kinds[name]}: a class at each position needs a tensor. Choose another."
            )
    return wanted


def _names(request: Request, names: Sequence[str]) -> list[str]:
    for name in request.wanted:
        if name not in names:
            raise UnpoolError(f"--output-name {name}: the model has outputs {', '.join(names)}. Choose one.")
    chosen = list(dict.fromkeys(request.wanted)) or list(names)
    takes_several = (request.format == "npz" or request.output.is_folder) and not request.makes_classes
    if len(chosen) > 1 and not takes_several:
        raise UsageError(
            f"the model has outputs {', '.join(chosen)}. Choose one with --output-name, write .npz, or give a folder, "
            "with / at its end if it is new, for a file of each; --argmax, --overlay and --threshold take one."
        )
    return chosen


def _places(request: Request, items: Sequence[Item], wanted: Sequence[str]) -> dict[str, Files]:
    """By item, its files."""
    targets = request.output.targets([item.stem for item in items], request.format)
    places: dict[str, Files] = {stem: files_of(place, request.format, wanted) for stem, place in targets.items()}
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


def _check_tile(request: Request, slots: Mapping[str, Slot]) -> None:
    """Refuse tiles of another rank than the images of the model."""
    size, shapes = request.tiles.size, [slot.shape for slot in slots.values()]
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


def _check_pictures(request: Request, items: Iterable[Item]) -> None:
    items = list(items)
    has_image = all(any(source.is_image for source in item.sources.values()) for item in items)
    if request.overlay and not has_image:
        raise UsageError("--overlay draws over an image, the inputs are arrays. Give an image, or use --argmax.")
    suffixes = {source.suffix for item in items for source in item.sources.values()}
    if request.rule.pages is not None and not suffixes.intersection(TIFF_SUFFIXES):
        raise UsageError("--pages says what the pages of a .tif are, no input is one. Leave it out.")
    if not request.rule.is_identity and not has_image:
        raise UsageError(
            "--white, --scale, --mean and --std change images, the inputs are arrays. Leave these options out."
        )
