"""The command `unpool report`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, IndexSpace
from unpool.cli.options import CompatWord, Exact, Flag, IndexWord, ModelPath, Quiet, Threads


def report(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.", show_default=False)],
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="[NAME=]PATH", help="Inputs of one run.", show_default="random numbers"),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open.")
    ] = None,
    iterations: Annotated[int, typer.Option(min=0, help="Runs that are timed; 0 for no times.")] = 10,
    accuracy: Annotated[bool, Flag(help="Evaluate every step once more in float64.")] = True,
    threads: Threads = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    quiet: Quiet = False,
) -> None:
    """Write one page about a model: plan, times, accuracy, findings, memory, feature maps and window arithmetic.

    Example: unpool report segnet.onnx -i photo.png -o report.html
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.model import SessionOptions
        from unpool.cli.report import check_place, lines, report_file, report_options
        from unpool.cli.upgrade import sizes_of

        check_place(output, model)
        options = SessionOptions(compat, index_space, exact, threads)
        work = report_options(iterations, accuracy=accuracy)
        done = report_file(model, inputs or (), sizes_of(size or ()), options, work)
        done.save(output)
        for line in lines(done, output):
            console.say(line, quiet)
