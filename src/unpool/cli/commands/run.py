"""The command `unpool run`: its options; `cli/run.py` has the work."""

from typing import Annotated

import typer

from unpool.cli.errors import FINDINGS, guard
from unpool.cli.options import (
    Blend,
    Choice,
    Compat,
    CompatWord,
    Exact,
    Flag,
    Format,
    IndexSpace,
    IndexWord,
    Json,
    Layout,
    ModelPath,
    Pages,
    Provider,
    ProviderWord,
    Quiet,
    Threads,
    Verbose,
    number,
    numbers,
    positive_numbers,
)

INPUT_HELP = (
    ".npy, .npz, .png, .jpg, .webp, .bmp, .gif, .tif, .nii, .nii.gz, .zarr, a folder of these, or - for stdin; "
    "NAME=PATH for one of several inputs."
)
OUTPUT_HELP = (
    ".npy, .npz, .png, .jpg, .tif, .zarr, .nii, .nii.gz; a folder (a new one with / at its end) for one file per "
    "input; or - for standard output."
)


def run(
    model: ModelPath,
    inputs: Annotated[list[str], typer.Option("-i", "--input", metavar="[NAME=]PATH", help=INPUT_HELP)],
    output: Annotated[str, typer.Option("-o", "--output", metavar="PATH", help=OUTPUT_HELP)],
    output_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The model's output to write; several for .npz, or for a folder with a file for each.",
            show_default="all",
        ),
    ] = None,
    white: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Pixel value that is rescaled to 255, e.g. 4095 for 12-bit data; 255 switches rescaling off.",
            show_default="by the file or the model",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Multiply pixels, e.g. 1/255.", show_default="by the model"),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Subtract after --scale; one, or one per channel.", show_default="by the model"
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Divide after --mean; one, or one per channel.", show_default="by the model"
        ),
    ] = None,
    layout: Annotated[
        Layout, Choice(help="Whether the model has channels before (NCHW) or after (NHWC) the spatial axes.")
    ] = Layout.NCHW,
    argmax: Annotated[bool, Flag("--argmax", help="Write the number of the best class.")] = False,
    pages: Annotated[
        Pages | None,
        Choice(
            help="Take the pages of a .tif as a batch, one after another where the model's batch is fixed.",
            show_default="depth of volumes; channels of pictures, where there are as many",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="For one channel of scores: class 1 above it, else class 0; 0.5 for probabilities, 0 for logits.",
            show_default=False,
        ),
    ] = None,
    softmax: Annotated[bool, Flag("--softmax", help="Write probabilities: the softmax over the classes.")] = False,
    overlay: Annotated[bool, Flag("--overlay", help="Draw the classes over the image, with a legend.")] = False,
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Class names, comma separated.", show_default="from the model"),
    ] = None,
    palette: Annotated[
        str | None,
        typer.Option(metavar="COLOURS", help="Colours of the classes, #rrggbb,#rrggbb.", show_default="from the model"),
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Strength of the colours of --overlay.")] = 0.5,
    form: Annotated[
        Format | None,
        Choice(
            "--format",
            help="Format of the files in an output folder, or of standard output.",
            show_default="png for classes and --overlay, else npy",
        ),
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HxW",
            help="Run in tiles, with the same results: tile size in pixels, e.g. 512x512, or auto to fit memory.",
            show_default="the whole image at once",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory limit of the process, e.g. 2GiB; turns on tiles.",
            show_default="with --tile auto, half of the free memory",
        ),
    ] = None,
    keep_going: Annotated[
        bool, Flag("--keep-going", help="Leave out inputs that cannot be read or do not fit; exit with 1.")
    ] = False,
    allow_empty: Annotated[
        bool, Flag("--allow-empty", help="Run images smaller than the model's smallest input: inner values are empty.")
    ] = False,
    blend: Annotated[
        Blend | None,
        Choice(
            help="Average overlapping tiles, for models that cannot be tiled exactly (global pooling, attention).",
            show_default="exact",
        ),
    ] = None,
    overlap: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Overlap of neighbouring tiles, 0 to 0.9 (only with --blend).", show_default="0.25"
        ),
    ] = None,
    resume: Annotated[bool, Flag("--resume", help="Resume an interrupted tiled run.")] = False,
    level: Annotated[int, typer.Option(min=0, help="Resolution level of a .tif or .zarr pyramid; 0 is full size.")] = 0,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the tiles on the Dask cluster at this address, from .npy or .zarr to .zarr; needs --tile HxW.",
            show_default="this machine",
        ),
    ] = None,
    threads: Threads = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    provider: ProviderWord = Provider.ONNXRUNTIME,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a model on arrays or images and write its outputs.

    Example: unpool run model.onnx -i photo.png -o mask.png --scale 1/255 --argmax
    """
    with guard(quiet=quiet):
        from unpool.cli import console
        from unpool.cli.cluster import run as on_cluster
        from unpool.cli.metadata import PixelRule, colours, parsed, split_names
        from unpool.cli.model import SessionOptions
        from unpool.cli.progress import progress
        from unpool.cli.run import run as run_items
        from unpool.cli.run_config import RunConfig, destination, tile_options
        from unpool.cli.summary import print_outcome

        console.set_up_log(verbose)
        names = None if classes is None else tuple(split_names(classes))
        config = RunConfig(
            model=model,
            inputs=tuple(inputs),
            output=destination(output),
            rule=PixelRule(
                white=None if white is None else positive_numbers("--white", white)[0],
                scale=None if scale is None else number("--scale", scale),
                mean=None if mean is None else numbers("--mean", mean),
                std=None if std is None else positive_numbers("--std", std),
                layout=layout,
                pages=pages,
            ),
            session=SessionOptions(compat, index_space, exact, threads, provider),
            wanted=tuple(output_name or ()),
            argmax=argmax,
            overlay=overlay,
            classes=names,
            palette=None if palette is None else parsed(colours("--palette", palette)),
            alpha=alpha,
            form=form,
            **tile_options(tile, max_memory, blend, overlap),
            resume=resume,
            level=level,
            keep_going=keep_going,
            allow_empty=allow_empty,
            softmax=softmax,
            threshold=None if threshold is None else number("--threshold", threshold),
            as_json=as_json,
        )
        outcome = run_items(config, progress(quiet)) if scheduler is None else on_cluster(config, scheduler)
        print_outcome(outcome, model, as_json, quiet)
    if outcome.failed:
        raise typer.Exit(FINDINGS)
