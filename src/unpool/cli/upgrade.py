"""The work of `unpool upgrade` and `unpool canonicalise`: a rewritten model into a file, and what changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError
from unpool.cli.outputs import Staging

if TYPE_CHECKING:
    import onnx

    from unpool.runtime.passes.rewrite import Rewritten


def upgrade_file(path: Path, opset: int, output: Path, meaning: Mapping[str, Any]) -> "Rewritten":
    """Write the model in a newer opset; `meaning` holds the keywords of the library's `upgrade`."""
    from unpool.runtime.passes.upgrade import upgrade

    check_output(output)
    return _written(upgrade(path, opset, **meaning), output)


def canonicalise_file(path: Path, output: Path, meaning: Mapping[str, Any]) -> "Rewritten":
    """Write the model with explicit pads; `meaning` holds the keywords of the library's `canonicalise`."""
    from unpool.runtime.passes.canonicalise import canonicalise

    check_output(output)
    return _written(canonicalise(path, **meaning), output)


def sizes_of(options: Sequence[str]) -> dict[str, int]:
    """Sizes by name from options such as `height=64`.

    >>> sizes_of(["n=1", "height=64"])
    {'n': 1, 'height': 64}
    """
    found = {}
    for option in options:
        name, equals, number = option.rpartition("=")
        if not (name and equals and number.isdecimal()):
            raise UsageError(f"--size: expected NAME=NUMBER such as height=64, got {option!r}. Correct it.")
        found[name] = int(number)
    return found


def report(done: "Rewritten", output: Path) -> list[str]:
    """One line per changed node, and one about the file."""
    lines = [f"{one.node}: {one.before} -> {one.after}" for one in done.changes]
    count = "no node" if not lines else "1 node" if len(lines) == 1 else f"{len(lines)} nodes"
    return [*lines, f"{output}: {count} changed, equal results on random inputs"]


def to_json(done: "Rewritten", path: Path, output: Path) -> dict[str, Any]:
    """The same as JSON types."""
    return {"model": str(path), "output": str(output), "changes": [asdict(one) for one in done.changes]}


def check_output(output: Path) -> None:
    """Refuse a folder, and a suffix that onnx reads as something else, before any work is done."""
    import onnx

    known = onnx.serialization.registry.get_format_from_file_extension(output.suffix)
    if output.is_dir() or known not in (None, "protobuf"):
        raise UsageError(f"-o {output}: expected a file for a binary model such as model.onnx. Name another.")


def write_model(model: "onnx.ModelProto", output: Path) -> None:
    """Write a model, or nothing when that fails."""
    from unpool.runtime.pieces import serialize

    content = serialize(model, str(output))
    with Staging(output.parent, may_create=False) as staging, staging.open(output) as stream:
        stream.write(content)


def _written(done: "Rewritten", output: Path) -> "Rewritten":
    write_model(done.model, output)
    return done
