"""The work of `unpool run`: read and check every input, run, write, and let the files appear together."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError
from unpool.cli.feeds import read_feed
from unpool.cli.inputs import Item, collect
from unpool.cli.model import Slot, class_names, open_session, slots
from unpool.cli.outputs import Staging, is_folder, targets
from unpool.cli.render import write_result
from unpool.cli.request import Request
from unpool.errors import UnpoolError

if TYPE_CHECKING:
    from unpool.runtime.session import InferenceSession

Steps = Callable[[Sequence[Item]], Iterable[Item]]


@dataclass(frozen=True)
class Result:
    """One written file: its source, its arrays as (shape, type), how long the model ran, area per class."""

    source: str
    path: Path
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    seconds: float
    areas: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        arrays = {name: {"shape": list(shape), "type": kind} for name, (shape, kind) in self.arrays.items()}
        plain = {
            "input": self.source,
            "output": str(self.path),
            "arrays": arrays,
            "seconds": round(self.seconds, 6),
        }
        return {**plain, "areas": dict(self.areas)} if self.areas else plain


def run(request: Request, steps: Steps = iter) -> list[Result]:
    """Run the model on every item and write the results; on any error nothing is written.

    Args:
        request: the command line.
        steps: goes through the items, and may show how far it is.

    Returns:
        one result per written file, in the order of the items.
    """
    request.check()
    session = open_session(request.model, request.session)
    runner = _Runner(request, session, slots(session), _wanted(request, [one.name for one in session.get_outputs()]))
    items = collect(request.inputs, list(runner.slots))
    places = targets(request.output, [item.stem for item in items], request.format)
    _keep_sources(places.values(), [request.model, *(path for item in items for path in item.paths)])
    _check_pictures(request, items)
    if len(items) > 1:
        for item in items:
            read_feed(item, runner.slots, request.rule)
    with Staging(next(iter(places.values())).parent, may_create=is_folder(request.output)) as staging:
        return [runner.one(item, places[item.stem], staging) for item in steps(items)]


@dataclass(frozen=True)
class _Runner:
    request: Request
    session: "InferenceSession"
    slots: Mapping[str, Slot]
    wanted: Sequence[str]

    def one(self, item: Item, place: Path, staging: Staging) -> Result:
        """Run one item into one staged file."""
        feed, picture = read_feed(item, self.slots, self.request.rule)
        begin = time.perf_counter()
        outputs = self.session.run(list(self.wanted), feed)
        seconds = time.perf_counter() - begin
        arrays = dict(zip(self.wanted, outputs, strict=True))
        with staging.open(place) as stream:
            written, areas = write_result(stream, self.request, arrays, picture, class_names(self.session))
        held = {name: (array.shape, str(array.dtype)) for name, array in written.items()}
        return Result(item.label, place, held, seconds, areas)


def _wanted(request: Request, names: Sequence[str]) -> list[str]:
    if request.wanted is not None:
        if request.wanted not in names:
            raise UnpoolError(f"--output-name {request.wanted}: the model has outputs {', '.join(names)}. Choose one.")
        return [request.wanted]
    if len(names) > 1 and (request.format != "npz" or request.makes_classes):
        raise UsageError(f"the model has outputs {', '.join(names)}. Choose one with --output-name, or write .npz.")
    return list(names)


def _keep_sources(places: Iterable[Path], sources: Iterable[Path]) -> None:
    kept = {path.resolve() for path in sources}
    for place in places:
        if place.resolve() in kept:
            raise UsageError(f"-o: {place} is read by this command and would be overwritten. Choose another place.")


def _check_pictures(request: Request, items: Iterable[Item]) -> None:
    has_image = all(any(source.is_image for source in item.sources.values()) for item in items)
    if request.overlay and not has_image:
        raise UsageError("--overlay draws over an image, the inputs are arrays. Give an image, or use --argmax.")
    if not request.rule.is_identity and not has_image:
        raise UsageError("--scale, --mean and --std change images, the inputs are arrays. Leave these options out.")
