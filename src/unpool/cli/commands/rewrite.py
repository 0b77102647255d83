"""`unpool fix`, `lower`, `upgrade` and `canonicalise`: a changed model in a new file, and its changes."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import UsageError

if TYPE_CHECKING:
    from unpool.graph.save import ModelWriter


@command
def fix(
    model: options.ModelPath,
    output: Annotated[Path | None, options.OutputOption(help="ONNX file to write.")] = None,
    dry_run: Annotated[bool, options.Flag("--dry-run", help="Repair and verify, but write nothing.")] = False,
    force: options.Force = False,
    size: options.VerifySize = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Repair an exported model: ScatterND becomes MaxUnpool, two equal pools become one, indices are corrected.

    Example: unpool fix exported.onnx -o fixed.onnx
    """
    from unpool.graph.load import load_for_command
    from unpool.graph.save import MIN_SPILLED_BYTES
    from unpool.runtime.rewrite.fix import fix as fix_model

    arguments = options.semantics(compat, index_space, sizes=options.parse_sizes(size))
    if output is None and not dry_run:
        raise UsageError("unpool fix: needs -o OUTPUT or --dry-run. Add one of them.")
    writer = None if output is None else output_file(model, output, force or dry_run)
    fixed = fix_model(load_for_command(model, MIN_SPILLED_BYTES), **arguments)
    place, document = _write(fixed, None if dry_run else writer, model, output)
    count = len(fixed.changes)
    unchanged = "nothing to change" if dry_run else "nothing to change, the model as it was"
    summary = f"{count} change{'s' * (count > 1)}, verified on random inputs" if count else unchanged
    place = "dry run, nothing written" if dry_run else place
    lines = [*map(str, (*fixed.changes, *fixed.problems, *fixed.notes)), f"{place}: {summary}"]
    document |= {"problems": [asdict(problem) for problem in fixed.problems], "notes": list(fixed.notes)}
    return CommandResult(lines, document)


@command
def lower(
    model: options.ModelPath,
    target: Annotated[options.TargetName, options.Choice("--for", help="Runtime to write it for.", show_default=False)],
    output: options.ModelOutput,
    force: options.Force = False,
    size: options.VerifySize = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Rewrite a model for a runtime without MaxUnpool or Indices, with the same results.

    Example: unpool lower segnet.onnx --for openvino -o segnet-openvino.onnx
    """
    from unpool.graph.load import load_for_command
    from unpool.graph.save import MIN_SPILLED_BYTES
    from unpool.runtime.lower.lower import lower as lower_model

    arguments = options.semantics(compat, index_space, sizes=options.parse_sizes(size))
    writer = output_file(model, output, force)
    lowered = lower_model(load_for_command(model, MIN_SPILLED_BYTES), target.value, **arguments)
    place, document = _write(lowered, writer, model, output)
    count = len(lowered.changes)
    summary = f"{count} change{'s' * (count > 1)}" if count else "nothing to change, the model as it was"
    document |= {
        "target": lowered.target.name,
        "problems": [asdict(problem) for problem in lowered.problems],
        "checks": [asdict(check) for check in lowered.checks],
    }
    lines = [*lowered.lines, f"{place}: {summary}, for {lowered.target.title}"]
    return CommandResult(lines, document)


@command
def upgrade(
    model: options.ModelPath,
    opset: Annotated[int, typer.Option(min=1, help="Opset of the new model.", show_default=False)],
    output: options.ModelOutput,
    force: options.Force = False,
    size: options.VerifySize = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Rewrite a model in a newer opset, with the same results; if that is impossible, say why and write nothing.

    Example: unpool upgrade segnet9.onnx --opset 22 -o segnet22.onnx
    """
    from unpool.runtime.rewrite.upgrade import upgrade as upgrade_model

    arguments = options.semantics(compat, index_space, sizes=options.parse_sizes(size))
    return _rewrite(lambda source: upgrade_model(source, opset, **arguments), model, output, force)


@command
def canonicalise(
    model: options.ModelPath,
    output: options.ModelOutput,
    force: options.Force = False,
    size: options.VerifySize = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Replace auto_pad and output_shape by explicit pads, which all runtimes interpret in the same way.

    Example: unpool canonicalise model.onnx -o explicit.onnx
    """
    from unpool.runtime.rewrite.canonicalise import canonicalise as canonicalise_model

    arguments = options.semantics(compat, index_space, sizes=options.parse_sizes(size))
    return _rewrite(lambda source: canonicalise_model(source, **arguments), model, output, force)


def _rewrite(change: Any, model: Path, output: Path, force: bool) -> CommandResult:
    from unpool.graph.load import load_for_command

    writer = output_file(model, output, force)
    rewritten = change(load_for_command(model))
    place, document = _write(rewritten, writer, model, output)
    count = len(rewritten.changes)
    nodes = f"{count or 'no'} node{'s' * (count > 1)}"
    lines = [*map(str, rewritten.changes), f"{place}: {nodes} changed, equal results on random inputs"]
    return CommandResult(lines, document)


def _write(result: Any, writer: "ModelWriter | None", model: Path, output: Path | None) -> tuple[str, dict[str, Any]]:
    """Write the model of a result, if there is a writer; the files in words, and the common part of the document."""
    data = [] if writer is None else writer.write(result.model)
    document = {
        "model": str(model),
        "output": None if writer is None else str(output),
        "data": [str(path) for path in data],
        "changes": [asdict(change) for change in result.changes],
    }
    return f"{output}{data_words(data)}", document


def data_words(data: Sequence[Path]) -> str:
    """Data files in words.

    >>> data_words([]), data_words([Path("m.onnx.data")])
    ('', ' with m.onnx.data')
    """
    return f" with {', '.join(map(str, data))}" if data else ""


def output_file(path: Path, output: Path, force: bool) -> "ModelWriter":
    """The writer of the new model; refused are other suffixes, the data of `path` and, without `force`, `path`."""
    import onnx

    from unpool.cli.outputs import refuse_stdout
    from unpool.files import is_any, is_same
    from unpool.graph.save import ModelWriter, external_files

    refuse_stdout(output)
    known = onnx.serialization.registry.get_format_from_file_extension(output.suffix)
    if output.is_dir() or known not in (None, "protobuf"):
        raise UsageError(f"-o {output}: expected a file for a binary model such as model.onnx.")
    if is_any(output, external_files(path).paths(path)):
        raise UsageError(f"-o {output}: holds the weights of {path}, which is read. Choose another file.")
    if is_same(output, path) and not force:
        raise UsageError(f"-o {output}: is the model that is read. Choose another file, or add --force to replace it.")
    return ModelWriter(path, output)
