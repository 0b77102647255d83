"""The work of `unpool lower`: a model for a target into a file, what changed, and where that was checked."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.upgrade import data_words

if TYPE_CHECKING:
    from unpool.runtime.graph.save import ModelWriter
    from unpool.runtime.lower.lowered import Lowered


def lower_file(
    path: Path, target: str, place: "ModelWriter", semantics: Mapping[str, Any]
) -> "tuple[Lowered, list[Path]]":
    """Write the model for a target; `semantics` holds the keywords of the library's `lower`.

    Returns:
        what was done, and the data files that were written.
    """
    from unpool.runtime.graph.load import load_for_command
    from unpool.runtime.graph.save import MIN_SPILLED_BYTES
    from unpool.runtime.lower.lower import lower

    done = lower(load_for_command(path, MIN_SPILLED_BYTES), target, **semantics)
    return done, place.write(done.model)


def report(done: "Lowered", output: Path, data: Sequence[Path]) -> list[str]:
    """The lines of the record, and one about the file."""
    count = len(done.changes)
    words = f"{count} change{'s' * (count > 1)}" if count else "nothing to change, the model as it was"
    return [*done.lines, f"{output}{data_words(data)}: {words}, for {done.target.title}"]


def to_json(done: "Lowered", path: Path, output: Path, data: Sequence[Path]) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "model": str(path),
        "output": str(output),
        "data": [str(one) for one in data],
        "target": done.target.name,
        "changes": [asdict(one) for one in done.changes],
        "left": [asdict(one) for one in done.left],
        "checks": [asdict(one) for one in done.checks],
    }
