"""`unpool fix`, `lower`, `upgrade` and `canonicalise`: a changed model in a new file, and its changes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli.errors import UsageError, guard
from unpool.cli.options import (
    Choice,
    Compat,
    CompatWord,
    Flag,
    Force,
    IndexSpace,
    IndexWord,
    Json,
    ModelOutput,
    ModelPath,
    Quiet,
    TargetName,
    VerifySize,
    parse_sizes,
)

if TYPE_CHECKING:
    from unpool.runtime.graph.save import ModelWriter
    from unpool.runtime.rewrite.window_forms import RewriteResult


def fix(
    model: ModelPath,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, Flag("--dry-run", help="Repair and verify, but write nothing.")] = False,
    force: Force = False,
    size: VerifySize = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repair an exported model: ScatterND becomes MaxUnpool, two pools one, and indices count in the right tensor.

    Example: unpool fix exported.onnx -o fixed.onnx
    """
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.runtime.graph.load import load_for_command
        from unpool.runtime.graph.save import MIN_SPILLED_BYTES
        from unpool.runtime.rewrite.fix import fix as fix_model

        semantics = _semantics(compat, index_space, size)
        if output is None and not dry_run:
            raise UsageError("unpool fix: needs -o OUTPUT or --dry-run. Add one of them.")
        target = None if output is None else output_file(model, output, force or dry_run)
        done = fix_model(load_for_command(model, MIN_SPILLED_BYTES), **semantics)
        data = [] if target is None or dry_run else target.write(done.model)
        count = len(done.changes)
        words = f"{count} change{'s' * (count > 1)}, verified on random inputs" if count else "nothing to change"
        if not count and output is not None and not dry_run:
            words += ", the model as it was"
        place = "dry run, nothing written" if dry_run else f"{output}{data_words(data)}"
        lines = [*map(str, (*done.changes, *done.problems, *done.notes)), f"{place}: {words}"]
        document = {
            **_document(model, None if dry_run else output, data, done.changes),
            "problems": [asdict(problem) for problem in done.problems],
            "notes": list(done.notes),
        }
        console.say_report(lines, document, as_json, quiet)


def lower(
    model: ModelPath,
    target: Annotated[TargetName, Choice("--for", help="Runtime that will run the model.", show_default=False)],
    output: ModelOutput,
    force: Force = False,
    size: VerifySize = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the model for a runtime without MaxUnpool or Indices, with the same results.

    Example: unpool lower segnet.onnx --for openvino -o segnet-openvino.onnx
    """
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.runtime.graph.load import load_for_command
        from unpool.runtime.graph.save import MIN_SPILLED_BYTES
        from unpool.runtime.lower.lower import lower as lower_model

        semantics, place = _semantics(compat, index_space, size), output_file(model, output, force)
        done = lower_model(load_for_command(model, MIN_SPILLED_BYTES), target.value, **semantics)
        data, count = place.write(done.model), len(done.changes)
        words = f"{count} change{'s' * (count > 1)}" if count else "nothing to change, the model as it was"
        lines = [*done.lines, f"{output}{data_words(data)}: {words}, for {done.target.title}"]
        document = {
            **_document(model, output, data, done.changes),
            "target": done.target.name,
            "problems": [asdict(problem) for problem in done.problems],
            "checks": [asdict(check) for check in done.checks],
        }
        console.say_report(lines, document, as_json, quiet)


def upgrade(
    model: ModelPath,
    opset: Annotated[int, typer.Option(min=1, help="The opset to reach.", show_default=False)],
    output: ModelOutput,
    force: Force = False,
    size: VerifySize = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the model in a newer opset, with the same results; if that is impossible, say why and write nothing.

    Example: unpool upgrade segnet9.onnx --opset 22 -o segnet22.onnx
    """
    with guard(quiet=quiet):
        from unpool.runtime.graph.load import load_for_command
        from unpool.runtime.rewrite.upgrade import upgrade as upgrade_model

        semantics, place = _semantics(compat, index_space, size), output_file(model, output, force)
        _write(upgrade_model(load_for_command(model), opset, **semantics), place, model, output, as_json, quiet)


def canonicalise(
    model: ModelPath,
    output: ModelOutput,
    force: Force = False,
    size: VerifySize = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write auto_pad and output_shape of a model as explicit pads, which every runtime reads alike.

    Example: unpool canonicalise model.onnx -o explicit.onnx
    """
    with guard(quiet=quiet):
        from unpool.runtime.graph.load import load_for_command
        from unpool.runtime.rewrite.canonicalise import canonicalise as canonicalise_model

        semantics, place = _semantics(compat, index_space, size), output_file(model, output, force)
        _write(canonicalise_model(load_for_command(model), **semantics), place, model, output, as_json, quiet)


def _write(done: "RewriteResult", place: "ModelWriter", model: Path, output: Path, as_json: bool, quiet: bool) -> None:
    """Write a model, and print a line per changed node and one about the files."""
    from unpool.cli import console

    data, count = place.write(done.model), len(done.changes)
    nodes = "no node" if not count else "1 node" if count == 1 else f"{count} nodes"
    last = f"{output}{data_words(data)}: {nodes} changed, equal results on random inputs"
    console.say_report([*map(str, done.changes), last], _document(model, output, data, done.changes), as_json, quiet)


def _document(model: Path, output: Path | None, data: Sequence[Path], changes: Sequence[Any]) -> dict[str, Any]:
    """The written model, as JSON types; `output` is null where nothing was."""
    return {
        "model": str(model),
        "output": None if output is None else str(output),
        "data": [str(path) for path in data],
        "changes": [asdict(change) for change in changes],
    }


def _semantics(compat: Compat, index_space: IndexSpace, size: Sequence[str] | None) -> Mapping[str, Any]:
    """The keywords that all four functions of the library take."""
    return {"compat": compat.value, "index_space": index_space.value, "sizes": parse_sizes(size or ())}


def data_words(data: Sequence[Path]) -> str:
    """Data files in words.

    >>> data_words([]), data_words([Path("m.onnx.data")])
    ('', ' with m.onnx.data')
    """
    return f" with {', '.join(map(str, data))}" if data else ""


def output_file(path: Path, output: Path, force: bool) -> "ModelWriter":
    """The file of the new model, checked before any work is done.

    Raises:
        UsageError: a folder, standard output, or a suffix that onnx reads as something else; the data of the model
            that is read; without `force`, that model.
    """
    import onnx

    from unpool.cli.outputs import refuse_stdout
    from unpool.files import is_any, is_same
    from unpool.runtime.graph.save import ModelWriter, external_files

    refuse_stdout(output)
    known = onnx.serialization.registry.get_format_from_file_extension(output.suffix)
    if output.is_dir() or known not in (None, "protobuf"):
        raise UsageError(f"-o {output}: expected a file for a binary model such as model.onnx.")
    if is_any(output, external_files(path).paths(path)):
        raise UsageError(f"-o {output}: holds the weights of {path}, which is read. Choose another file.")
    if is_same(output, path) and not force:
        raise UsageError(f"-o {output}: is the model that is read. Choose another file, or add --force to replace it.")
    return ModelWriter(path, output)
