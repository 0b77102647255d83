"""The command `unpool bench`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace
from unpool.cli.options import CompatWord, Exact, IndexWord, Json, ModelPath, Threads


def bench(
    model: ModelPath,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="[NAME=]PATH", help="Inputs of one run.", show_default="random numbers"),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open.")
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Runs that do not count.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Runs that count.")] = 20,
    threads: Threads = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    as_json: Json = False,
) -> None:
    """Time a model and each of its steps, next to onnxruntime; each runs in a process of its own.

    Example: unpool bench segnet.onnx --size height=360 --size width=480
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.bench import bench_file, effort_of, report, to_json
        from unpool.cli.model import SessionOptions

        options = SessionOptions(compat, index_space, exact, threads)
        times = bench_file(model, inputs or (), size or (), options, effort_of(warmup, iterations))
        console.say_report(report(times), to_json(times, model), as_json)
