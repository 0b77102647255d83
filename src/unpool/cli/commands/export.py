"""The command `unpool export`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.options import Flag, Json, ModelOutput, Quiet

EXAMPLE_HELP = "An input: [NAME=]1x3xHxW[:TYPE]. Numbers are sizes; H stays open, and 8H for multiples of 8."


def export(
    module: Annotated[
        str, typer.Argument(metavar="MODULE:CALLABLE", help="What makes the torch module: nets:segnet, nets.py:SegNet.")
    ],
    output: ModelOutput,
    example: Annotated[list[str], typer.Option(metavar="SHAPE", help=EXAMPLE_HELP, show_default=False)],
    dynamic: Annotated[bool, Flag("--dynamic", help="Leave batch, height and width open too.")] = False,
    weights: Annotated[
        Path | None, typer.Option(help="A state_dict to load into the module.", show_default=False)
    ] = None,
    opset: Annotated[int | None, typer.Option(min=9, help="Opset of the file.", show_default="the exporter's")] = None,
    dynamo: Annotated[bool, Flag("--dynamo/--no-dynamo", help="Which of torch's two exporters.")] = True,
    verify: Annotated[
        bool, Flag("--verify/--no-verify", help="Run the file beside the module, at several sizes.")
    ] = True,
    scale: Annotated[str | None, typer.Option(metavar="NUMBER", help="Metadata: what pixels are times.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Metadata: subtracted after --scale.")] = None,
    std: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Metadata: divides after --mean.")] = None,
    white: Annotated[str | None, typer.Option(metavar="NUMBER", help="Metadata: the pixel value of white.")] = None,
    classes: Annotated[str | None, typer.Option(metavar="NAMES", help="Metadata: class names, with commas.")] = None,
    palette: Annotated[str | None, typer.Option(metavar="COLOURS", help="Metadata: one #rrggbb per class.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a torch module as ONNX with MaxUnpool kept, for any batch, height and width, and check it beside torch.

    Example: unpool export nets:segnet -o segnet.onnx --example 1x3xHxW --dynamic --scale 1/255
    """
    with guard(quiet=quiet):
        from unpool.cli import console, metadata
        from unpool.cli.export import ExportRequest, export_file, report, to_json

        given = {
            metadata.SCALE: scale,
            metadata.MEAN: mean,
            metadata.STD: std,
            metadata.WHITE: white,
            metadata.CLASSES: classes,
            metadata.PALETTE: palette,
        }
        request = ExportRequest(
            module, output, tuple(example), dynamic, opset, dynamo, verify, weights, metadata.entries(given)
        )
        done = export_file(request)
        console.say_report(report(done, request), to_json(done, request), as_json, quiet)
