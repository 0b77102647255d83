"""The work of `unpool fix`: a model put right into a file, what changed, and what had to stay."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError
from unpool.cli.upgrade import check_output, write_model

if TYPE_CHECKING:
    from unpool.runtime.passes.fix import Fixed


def fix_file(path: Path, output: Path | None, is_dry: bool, meaning: Mapping[str, Any]) -> "Fixed":
    """Write the model put right, unless the run is dry; `meaning` holds the keywords of the library's `fix`."""
    from unpool.runtime.passes.fix import fix

    if output is None and not is_dry:
        raise UsageError("unpool fix: expected -o OUTPUT or --dry-run, got neither. Give one.")
    if output is not None:
        check_output(output)
    done = fix(path, **meaning)
    if output is not None and not is_dry:
        write_model(done.model, output)
    return done


def report(done: "Fixed", output: Path | None, is_dry: bool) -> list[str]:
    """A line per change, one per node that had to stay, and one about the file."""
    lines = [f"{one.node}: {one.before} -> {one.after}" for one in done.changes]
    lines += [f"{one.node}: left as it is: {one.why}" for one in done.left]
    count = len(done.changes)
    words = f"{count} change{'s' * (count > 1)}, verified on random inputs" if count else "nothing to change"
    if not count and output is not None and not is_dry:
        words += ", the model as it was"
    where = "dry run, nothing written" if is_dry else str(output)
    return [*lines, f"{where}: {words}"]


def to_json(done: "Fixed", path: Path, output: Path | None, is_dry: bool) -> dict[str, Any]:
    """The same as JSON types; `output` is null when nothing is written."""
    return {
        "model": str(path),
        "output": None if is_dry or output is None else str(output),
        "changes": [asdict(one) for one in done.changes],
        "left": [asdict(one) for one in done.left],
    }
