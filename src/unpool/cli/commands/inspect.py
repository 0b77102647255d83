"""The command `unpool inspect`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace, Provider
from unpool.cli.options import CompatWord, Exact, Flag, IndexWord, Json, ModelPath, ProviderWord, Verbose


def inspect(
    model: ModelPath,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open, for the memory."),
    ] = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    provider: ProviderWord = Provider.ONNXRUNTIME,
    shows_all: Annotated[bool, Flag("--all", help="List every node, those of onnxruntime too.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the inputs, the outputs and the plan of a model, and what images it takes: which node runs where, and why.

    Example: unpool inspect segnet.onnx --size height=360 --size width=480
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.inspect import inspect_file, print_inspected
        from unpool.cli.model import SessionOptions
        from unpool.cli.upgrade import sizes_of

        console.set_up_log(verbose)
        options = SessionOptions(compat, index_space, exact, provider=provider)
        found = inspect_file(model, options, sizes_of(size or ()))
        if as_json:
            console.say_json(found.document)
        else:
            print_inspected(found, shows_all)
