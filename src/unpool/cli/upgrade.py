"""The work of `unpool upgrade` and `unpool canonicalise`: a rewritten model into a file, and what changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.destination import refuse_stdout
from unpool.cli.exits import UsageError
from unpool.files import is_any, is_same

if TYPE_CHECKING:
    from unpool.runtime.graph.save import ModelWriter
    from unpool.runtime.passes.change import Change
    from unpool.runtime.rewrite.replace import Rewritten


@dataclass(frozen=True)
class Written:
    """What is different in a model that has been written, and the files of its data."""

    changes: "tuple[Change, ...]"
    data: tuple[Path, ...]


def upgrade_file(path: Path, opset: int, place: "ModelWriter", semantics: Mapping[str, Any]) -> "Written":
    """Write the model in a newer opset; `semantics` holds the keywords of the library's `upgrade`."""
    from unpool.runtime.graph.load import load_for_command
    from unpool.runtime.rewrite.upgrade import upgrade

    return _written(upgrade(load_for_command(path), opset, **semantics), place)


def canonicalise_file(path: Path, place: "ModelWriter", semantics: Mapping[str, Any]) -> "Written":
    """Write the model with explicit pads; `semantics` holds the keywords of the library's `canonicalise`."""
    from unpool.runtime.graph.load import load_for_command
    from unpool.runtime.rewrite.canonicalise import canonicalise

    return _written(canonicalise(load_for_command(path), **semantics), place)


def sizes_of(options: Sequence[str]) -> dict[str, int]:
    """Sizes by name from options such as `height=64`.

    >>> sizes_of(["n=1", "height=64"])
    {'n': 1, 'height': 64}
    """
    found = {}
    for option in options:
        name, equals, number = option.rpartition("=")
        if not (name and equals and number.isdecimal() and int(number)):
            raise UsageError(
                f"--size: expected NAME=NUMBER from 1 on, such as height=64, got {option!r}. Write NAME=NUMBER."
            )
        found[name] = int(number)
    return found


def report(done: "Written", output: Path) -> list[str]:
    """One line per changed node, and one about the files."""
    lines = list(map(str, done.changes))
    count = "no node" if not lines else "1 node" if len(lines) == 1 else f"{len(lines)} nodes"
    return [*lines, f"{output}{data_words(done.data)}: {count} changed, equal results on random inputs"]


def data_words(data: Sequence[Path]) -> str:
    """Data files in words.

    >>> data_words([]), data_words([Path("m.onnx.data")])
    ('', ' with m.onnx.data')
    """
    return f" with {', '.join(map(str, data))}" if data else ""


def to_json(done: "Written", path: Path, output: Path) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "model": str(path),
        "output": str(output),
        "data": [str(one) for one in done.data],
        "changes": [asdict(one) for one in done.changes],
    }


def place_for(path: Path, output: Path, force: bool) -> "ModelWriter":
    """The place of the new model; refused before any work is done where it is no place, or that of the model read.

    Raises:
        UsageError: a folder, standard output, a suffix that onnx reads as something else; the model that is read,
            without `force`; its data.
    """
    import onnx

    from unpool.runtime.graph.save import ModelWriter, external_files

    refuse_stdout(output)
    known = onnx.serialization.registry.get_format_from_file_extension(output.suffix)
    if output.is_dir() or known not in (None, "protobuf"):
        raise UsageError(f"-o {output}: expected a file for a binary model such as model.onnx. Name another.")
    if is_any(output, external_files(path).paths(path)):
        raise UsageError(f"-o {output}: holds the weights of {path}, which is read. Choose another place.")
    if is_same(output, path) and not force:
        raise UsageError(f"-o {output}: is the model that is read. Choose another place, or add --force to replace it.")
    return ModelWriter(path, output)


def _written(done: "Rewritten", place: "ModelWriter") -> "Written":
    return Written(done.changes, tuple(place.write(done.model)))
