"""The command `unpool upgrade`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace
from unpool.cli.options import CompatWord, Force, IndexWord, Json, ModelOutput, ModelPath, Quiet, Size


def upgrade(
    model: ModelPath,
    opset: Annotated[int, typer.Option(min=1, help="The opset to reach.", show_default=False)],
    output: ModelOutput,
    force: Force = False,
    size: Size = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the model in a newer opset, with the same results; if that is impossible, say why and write nothing.

    Example: unpool upgrade segnet9.onnx --opset 22 -o segnet22.onnx
    """
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.cli.upgrade import place_for, report, sizes_of, to_json, upgrade_file

        semantics = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done = upgrade_file(model, opset, place_for(model, output, force), semantics)
        console.say_report(report(done, output), to_json(done, model, output), as_json, quiet)
