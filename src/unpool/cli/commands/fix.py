"""The command `unpool fix`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace
from unpool.cli.options import CompatWord, Flag, Force, IndexWord, Json, ModelPath, Quiet, Size


def fix(
    model: ModelPath,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, Flag("--dry-run", help="Repair and verify, but write nothing.")] = False,
    force: Force = False,
    size: Size = None,
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
        from unpool.cli.fix import fix_file, report, to_json
        from unpool.cli.upgrade import sizes_of

        semantics = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done, data = fix_file(model, output, dry_run, force, semantics)
        document = to_json(done, model, output, data, dry_run)
        console.say_report(report(done, output, data, dry_run), document, as_json, quiet)
