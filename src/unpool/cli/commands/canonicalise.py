"""The command `unpool canonicalise`: its options."""

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace
from unpool.cli.options import CompatWord, Force, IndexWord, Json, ModelOutput, ModelPath, Quiet, Size


def canonicalise(
    model: ModelPath,
    output: ModelOutput,
    force: Force = False,
    size: Size = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write auto_pad and output_shape of a model as explicit pads, which every runtime reads alike.

    Example: unpool canonicalise model.onnx -o explicit.onnx
    """
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.cli.upgrade import canonicalise_file, place_for, report, sizes_of, to_json

        semantics = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done = canonicalise_file(model, place_for(model, output, force), semantics)
        console.say_report(report(done, output), to_json(done, model, output), as_json, quiet)
