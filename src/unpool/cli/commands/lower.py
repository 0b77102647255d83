"""The command `unpool lower`: its options."""

from typing import Annotated

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace, Target
from unpool.cli.options import Choice, CompatWord, Force, IndexWord, Json, ModelOutput, ModelPath, Quiet, Size


def lower(
    model: ModelPath,
    target: Annotated[Target, Choice("--for", help="What is to run the model.", show_default=False)],
    output: ModelOutput,
    force: Force = False,
    size: Size = None,
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
        from unpool.cli.lower import lower_file, report, to_json
        from unpool.cli.upgrade import place_for, sizes_of

        semantics = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done, data = lower_file(model, target.value, place_for(model, output, force), semantics)
        console.say_report(report(done, output, data), to_json(done, model, output, data), as_json, quiet)
