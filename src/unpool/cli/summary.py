"""Results of `unpool run` and their lines: one per written file, assumptions about pixels, and skipped inputs."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unpool.cli.console import say, say_json
from unpool.cli.errors import print_error
from unpool.cli.inputs import Failure
from unpool.cli.outputs import STDOUT
from unpool.display import display_line, format_shape
from unpool.runtime.streams.runner import Progress

NAMED_AREAS = 6


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
    """Results, and inputs that were skipped."""

    results: list[Result]
    failed: list[Failure]


def print_outcome(outcome: Outcome, model: Path, as_json: bool, quiet: bool) -> None:
    """One line per written file, or one JSON document; on stderr what was taken for granted, and what was left out."""
    for line in notes(outcome.results):
        print(f"warning: {display_line(line)}", file=sys.stderr)  # noqa: T201 - plain text, one line
    if as_json:
        failed = {"failed": [asdict(one) for one in outcome.failed]} if outcome.failed else {}
        say_json({"model": str(model), "results": [one.as_json() for one in outcome.results], **failed})
    else:
        for result in outcome.results:
            say(describe(result), quiet, is_aside=str(result.path) == STDOUT)
    for failure in outcome.failed:
        print_error(str(failure))
    if outcome.failed:
        count = len(outcome.results) + len(outcome.failed)
        print_error(f"{len(outcome.failed)} of {count} inputs left out, {len(outcome.results)} results written")


def notes(results: Iterable[Result]) -> list[str]:
    """Assumptions about pixels, each once for all its files.

    >>> one = Result("a.png", Path("m.png"), {}, 0.0, notes=("65535 is taken as white",))
    >>> notes([one, one])
    ['a.png and 1 more: 65535 is taken as white']
    """
    sources: dict[str, list[str]] = {}
    for result in results:
        renamed = [f"{name!r} is {member!r} in the file" for name, member in result.members.items()]
        for note in (*result.notes, *renamed):
            sources.setdefault(note, []).append(str(result.path) if note in renamed else result.source)
    return [f"{first}{f' and {len(more)} more' if more else ''}: {note}" for note, (first, *more) in sources.items()]


def describe(result: Result) -> str:
    """One line about a written file.

    >>> describe(Result("a.png", Path("m.png"), {"y": ((1, 3, 4), "uint8")}, 0.25, {"sky": 1.0}))
    'm.png: 1x3x4 uint8; sky 100.0 % of the area (0.250 s)'
    """
    arrays = result.arrays
    held = ", ".join(
        f"{name if len(arrays) > 1 else ''} {format_shape(shape)} {kind}".strip()
        for name, (shape, kind) in arrays.items()
    )
    areas = f"; {_areas(result.areas)} of the area" if result.areas else ""
    tiles = "" if result.progress is None else f"; {_tiles(result.progress)}"
    place = "standard output" if str(result.path) == STDOUT else result.path
    return f"{place}: {held}{areas}{tiles} ({result.seconds:.3f} s)"


def _tiles(done: Progress) -> str:
    """The number of tiles that were run.

    >>> _tiles(Progress(tiles=144, resumed=22, done=144, seconds=9.0, peak=290_000_000))
    '144 tiles (22 from the interrupted run), peak memory 0.27 GiB'
    """
    if done.was_complete:
        return "was already complete, nothing was computed"
    resumed = f" ({done.resumed} from the interrupted run)" if done.resumed else ""
    return f"{done.tiles} tile{'' if done.tiles == 1 else 's'}{resumed}, peak memory {done.peak / 2**30:.2f} GiB"


def _areas(areas: Mapping[str, float]) -> str:
    largest = sorted(areas.items(), key=lambda pair: -pair[1])
    named = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in largest[:NAMED_AREAS])
    rest = len(largest) - NAMED_AREAS
    return f"{named} and {rest} more classes" if rest > 0 else named
