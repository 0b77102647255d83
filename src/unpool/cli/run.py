"""The work of `unpool run`: read every input, run, write, and let the files appear together."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError, one_line
from unpool.cli.feeds import read_feed
from unpool.cli.inputs import Failure, Item, collect
from unpool.cli.model import Slot, class_names, open_session, slots
from unpool.cli.outputs import check_kind, elements, is_folder, targets
from unpool.cli.render import write_result
from unpool.cli.run_options import Request
from unpool.cli.safe_names import safe_names
from unpool.cli.streams import Told, run_over_windows, takes_windows
from unpool.cli.tiles import run_model
from unpool.errors import UnpoolError
from unpool.files import FileSet, WriteError, is_any, place_of
from unpool.runtime.graph.model_files import outside
from unpool.runtime.streams.progress import Progress

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Steps = Callable[[Sequence[Item]], Iterable[Item]]


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
    """What was written, and what failed."""

    results: list[Result]
    failed: list[Failure]


def run(request: Request, steps: Steps = iter, told: Told = lambda _: None) -> Outcome:
    """Run the model on every item and write the results.

    Of several items, those that cannot be read or do not fit are left out. On an error of the only item, on one that
    is about all of them, and on an interruption or a fault of the disk, nothing is written.

    Args:
        request: the command line.
        steps: goes through the items, and may show how far it is.
        told: is called with how far a run over windows is.

    Returns:
        one result per written file, in the order of the items, and the items that failed.
    """
    request.check()
    is_lean = request.needs_windows or request.tiles.size is not None
    session = open_session(request.model, replace(request.session, is_lean=is_lean))
    runner = _Runner(request, session, slots(session), _wanted(request, session.get_outputs()), told)
    found = collect(request.inputs, list(runner.slots))
    places = targets(request.output, [item.stem for item in found.items], request.format)
    read = [request.model, *outside(request.model).paths(request.model)]
    _keep_sources(places.values(), [*read, *(path for item in found.items for path in item.paths)])
    _check_pictures(request, found.items)
    for place in places.values():
        if place.parent.exists() and request.format != "zarr":
            place_of(place)
    results: list[Result] = []
    with FileSet() as files:
        if is_folder(request.output):
            files.make_folder(request.output)
        for item in steps(found.items):
            try:
                results.append(runner.one(item, places[item.stem], files))
            except (UsageError, WriteError):
                raise
            except UnpoolError as error:
                if len(found.items) == 1:
                    raise
                found.failed.append(Failure(item.label, one_line(error)))
    return Outcome(results, found.failed)


@dataclass(frozen=True)
class _Runner:
    request: Request
    session: "InferenceSession"
    slots: Mapping[str, Slot]
    wanted: Sequence[str]
    told: Told

    def one(self, item: Item, place: Path, files: FileSet) -> Result:
        """Run one item into one file."""
        if takes_windows(self.request, item, self.session, self.wanted):
            return self._by_windows(item, place)
        feed = read_feed(item, self.slots, self.request.rule)
        begin = time.perf_counter()
        request = self.request
        outputs = run_model(self.session, feed.arrays, self.wanted, request.tiles, request.rule.layout)
        seconds = time.perf_counter() - begin
        arrays = elements(dict(zip(self.wanted, outputs, strict=True)))
        with files.open(place) as stream:
            written, areas = write_result(stream, self.request, arrays, feed.picture, class_names(self.session))
        held = {name: (array.shape, str(array.dtype)) for name, array in written.items()}
        names = safe_names(written) if self.request.format == "npz" else {}
        others = {name: member for name, member in names.items() if name != member}
        return Result(item.label, place, held, seconds, areas, feed.notes, others)

    def _by_windows(self, item: Item, place: Path) -> Result:
        """Run one item over windows of files."""
        begin = time.perf_counter()
        done, notes = run_over_windows(self.session, self.request, item, self.slots, place, self.told)
        held = {self.wanted[0]: (done.shape, str(done.dtype))}
        seconds = time.perf_counter() - begin
        return Result(item.label, place, held, seconds, notes=tuple(notes), progress=done.progress)


def _wanted(request: Request, outputs: Sequence[Any]) -> list[str]:
    kinds = {one.name: one.type for one in outputs}
    wanted = _names(request, list(kinds))
    for name in wanted:
        check_kind(name, kinds[name], request.format)
        if request.makes_classes and not kinds[name].startswith("tensor("):
            raise UsageError(f"output {name!r} is {kinds[name]}: --argmax and --overlay need a tensor. Choose another.")
    return wanted


def _names(request: Request, names: Sequence[str]) -> list[str]:
    if request.wanted is not None:
        if request.wanted not in names:
            raise UnpoolError(f"--output-name {request.wanted}: the model has outputs {', '.join(names)}. Choose one.")
        return [request.wanted]
    if len(names) > 1 and (request.format != "npz" or request.makes_classes):
        raise UsageError(f"the model has outputs {', '.join(names)}. Choose one with --output-name, or write .npz.")
    return list(names)


def _keep_sources(places: Iterable[Path], sources: Iterable[Path]) -> None:
    kept = list(sources)
    for place in places:
        if is_any(place, kept):
            raise UsageError(f"-o: {place} is read by this command and would be overwritten. Choose another place.")


def _check_pictures(request: Request, items: Iterable[Item]) -> None:
    has_image = all(any(source.is_image for source in item.sources.values()) for item in items)
    if request.overlay and not has_image:
        raise UsageError("--overlay draws over an image, the inputs are arrays. Give an image, or use --argmax.")
    if not request.rule.is_identity and not has_image:
        raise UsageError(
            "--white, --scale, --mean and --std change images, the inputs are arrays. Leave these options out."
        )
