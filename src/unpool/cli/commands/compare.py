"""The command `unpool compare`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.exits import OK, guard
from unpool.cli.option_values import Compat, IndexSpace, number
from unpool.cli.options import CompatWord, Exact, Flag, IndexWord, Json, ModelPath


def compare(
    model: ModelPath,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="A second ONNX file, to compare with the first.", show_default=False),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUNTIMES",
            help="Any of onnxruntime, reference (of onnx), openvino, torch and unpool, with commas between. torch runs "
            "no ONNX file: it computes each MaxPool, MaxUnpool and ConvTranspose alone, from what unpool feeds it.",
            show_default="onnxruntime; unpool for two models",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="[NAME=]PATH", help="Inputs of one run.", show_default="random numbers"),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size", metavar="NAME=NUMBER", help="A size that the model leaves open.", show_default="some are tried"
        ),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="How far floats may be apart, as a part of the largest element of the value. Integers are equal.",
            show_default="float64 1e-10, float32 1e-4, float16 0.01, bfloat16 0.05",
        ),
    ] = None,
    ulp: Annotated[
        int, typer.Option(min=0, help="How far floats may be apart as well, in units of the last place.")
    ] = 0,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="The part of the elements of a value that may be further apart.")
    ] = 0.0,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    every: Annotated[bool, Flag("--all", help="List every value, not only where it begins to differ.")] = False,
    as_json: Json = False,
) -> None:
    """Compare a model in several runtimes, or two models: the outputs, the first node that differs, and how far.

    Exits with 1 where values differ, with two models where outputs do, else with 4 where a runtime refuses the model.
    Indices that differ are counted apart: where elements tie, where they almost do, and where one runtime is wrong.

    Example: unpool compare segnet.onnx --against onnxruntime,openvino
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.compare import compare_files, exit_code_of, to_json
        from unpool.cli.model import SessionOptions
        from unpool.runtime.compare.difference import Tolerance

        limits = Tolerance(None if tolerance is None else number("--tolerance", tolerance), ulp, share)
        options = SessionOptions(compat, index_space, exact)
        paths = [model] if other is None else [model, other]
        done = compare_files(paths, against, inputs or (), size or (), limits, options)
        console.say_report(done.lines(is_whole=every), to_json(done), as_json)
    if exit_code_of(done) != OK:
        raise typer.Exit(exit_code_of(done))
