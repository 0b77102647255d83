"""The work of `unpool fix`: a model put right into a file, what changed, and what had to stay."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError
from unpool.cli.upgrade import data_words, place_for

if TYPE_CHECKING:
    from unpool.runtime.rewrite.fix import Fixed


def fix_file(
    path: Path, output: Path | None, is_dry: bool, force: bool, semantics: Mapping[str, Any]
) -> "tuple[Fixed, list[Path]]":
    """Write the model put right, unless the run is dry; `semantics` holds the keywords of the library's `fix`.

    Returns:
        what was done, and the data files that were written.
    """
    from unpool.runtime.graph.load import load_for_command
    from unpool.runtime.graph.save import MIN_SPILLED_BYTES
    from unpool.runtime.rewrite.fix import fix

    if output is None and not is_dry:
        raise UsageError("unpool fix: expected -o OUTPUT or --dry-run, got neither. Give one.")
    place = None if output is None else place_for(path, output, force or is_dry)
    done = fix(load_for_command(path, MIN_SPILLED_BYTES), **semantics)
    return done, [] if place is None or is_dry else place.write(done.model)


def report(done: "Fixed", output: Path | None, data: Sequence[Path], is_dry: bool) -> list[str]:
    """A line per change, one per node that had to stay, and one about the file."""
    lines = list(map(str, (*done.changes, *done.left, *done.notes)))
    count = len(done.changes)
    words = f"{count} change{'s' * (count > 1)}, verified on random inputs" if count else "nothing to change"
    if not count and output is not None and not is_dry:
        words += ", the model as it was"
    where = "dry run, nothing written" if is_dry else f"{output}{data_words(data)}"
    return [*lines, f"{where}: {words}"]


def to_json(done: "Fixed", path: Path, output: Path | None, data: Sequence[Path], is_dry: bool) -> dict[str, Any]:
    """The same as JSON types; `output` is null when nothing is written."""
    return {
        "model": str(path),
        "output": None if is_dry or output is None else str(output),
        "data": [str(one) for one in data],
        "changes": [asdict(one) for one in done.changes],
        "left": [asdict(one) for one in done.left],
        "notes": list(done.notes),
    }
