"""The command `unpool run`: its options; `cli/run.py` has the work."""

from typing import Annotated

import typer

from unpool.cli import options
from unpool.cli.command import command
from unpool.cli.errors import FINDINGS, OK
from unpool.cli.options import Choice, Flag, text_option
from unpool.images.formats import FORMATS

READ = ", ".join(each.suffixes[0] for each in FORMATS)
WRITTEN = ", ".join(each.suffixes[0] for each in FORMATS if each.is_written)
INPUT_HELP = f"{READ}, a folder of these, or - for stdin; NAME=PATH for one of several inputs."
OUTPUT_HELP = f"{WRITTEN}; a folder (a new one with / at its end) for one file per input; or - for standard output."
NAME_HELP = "The model's output to write; several for .npz, or for a folder with a file for each."
WHITE_HELP = "Pixel value that is rescaled to 255, e.g. 4095 for 12-bit data; 255 switches rescaling off."
MEAN_HELP = "Subtract after --scale; one, or one per channel."
STD_HELP = "Divide after --mean; one, or one per channel."
PAGES_HELP = "Take the pages of a .tif as a batch, one after another where the model's batch is fixed."
PAGES_DEFAULT = "depth of volumes; channels of pictures, where there are as many"
THRESHOLD_HELP = "For one channel of scores: class 1 above it, else class 0; 0.5 for probabilities, 0 for logits."
PALETTE_HELP = "Colours of the classes, #rrggbb,#rrggbb."
FORMAT_HELP = "Format of the files in an output folder, or of standard output."
FORMAT_DEFAULT = "png for classes and --overlay, else npy"
TILE_HELP = "Run in tiles, with the same results: size along every axis, e.g. 512, by axis, or auto to fit memory."
MEMORY_HELP = "Memory limit of the process, e.g. 2GiB; turns on tiles."
MEMORY_DEFAULT = "with --tile auto, half of the free memory"
KEEP_GOING_HELP = "Leave out inputs that cannot be read or do not fit; exit with 1."
EMPTY_HELP = "Run images smaller than the model's smallest input: inner values are empty."
BLEND_HELP = "Average overlapping tiles, for models that cannot be tiled exactly (global pooling, attention)."
OVERLAP_HELP = "Overlap of neighbouring tiles, 0 to 0.9 (only with --blend)."
SCHEDULER_HELP = "Run the tiles on the Dask cluster at this address, into .zarr, .npy or .tif; needs --tile N."


@command
def run(
    model: options.ModelPath,
    inputs: Annotated[list[str], typer.Option("-i", "--input", metavar="[NAME=]PATH", help=INPUT_HELP)],
    output: Annotated[str, typer.Option("-o", "--output", metavar="PATH", help=OUTPUT_HELP)],
    output_name: Annotated[list[str] | None, text_option("NAME", NAME_HELP, "all")] = None,
    white: Annotated[str | None, text_option("NUMBER", WHITE_HELP, "by the file or the model")] = None,
    scale: Annotated[str | None, text_option("NUMBER", "Multiply pixels, e.g. 1/255.", "by the model")] = None,
    mean: Annotated[str | None, text_option("NUMBERS", MEAN_HELP, "by the model")] = None,
    std: Annotated[str | None, text_option("NUMBERS", STD_HELP, "by the model")] = None,
    layout: options.LayoutWord = options.Layout.NCHW,
    argmax: Annotated[bool, Flag("--argmax", help="Write the number of the best class.")] = False,
    pages: Annotated[options.Pages | None, Choice(help=PAGES_HELP, show_default=PAGES_DEFAULT)] = None,
    threshold: Annotated[str | None, text_option("NUMBER", THRESHOLD_HELP)] = None,
    softmax: Annotated[bool, Flag("--softmax", help="Write probabilities: the softmax over the classes.")] = False,
    overlay: Annotated[bool, Flag("--overlay", help="Draw the classes over the image, with a legend.")] = False,
    classes: Annotated[str | None, text_option("NAMES", "Class names, comma separated.", "from the model")] = None,
    palette: Annotated[str | None, text_option("COLOURS", PALETTE_HELP, "from the model")] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Strength of the colours of --overlay.")] = 0.5,
    form: Annotated[options.Format | None, Choice("--format", help=FORMAT_HELP, show_default=FORMAT_DEFAULT)] = None,
    tile: Annotated[str | None, text_option("auto|N|HxW", TILE_HELP, "the whole image at once")] = None,
    max_memory: Annotated[str | None, text_option("SIZE", MEMORY_HELP, MEMORY_DEFAULT)] = None,
    keep_going: Annotated[bool, Flag("--keep-going", help=KEEP_GOING_HELP)] = False,
    allow_empty: Annotated[bool, Flag("--allow-empty", help=EMPTY_HELP)] = False,
    blend: Annotated[options.Blend | None, Choice(help=BLEND_HELP, show_default="exact")] = None,
    overlap: Annotated[float | None, text_option("SHARE", OVERLAP_HELP, "0.25")] = None,
    resume: Annotated[bool, Flag("--resume", help="Resume an interrupted tiled run.")] = False,
    level: Annotated[int, typer.Option(min=0, help="Resolution level of a .tif or .zarr pyramid; 0 is full size.")] = 0,
    scheduler: Annotated[str | None, text_option("ADDRESS", SCHEDULER_HELP, "this machine")] = None,
    threads: options.Threads = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    exact: options.Exact = False,
    provider: options.ProviderWord = options.Provider.ONNXRUNTIME,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Run a model on arrays or images and write its outputs.

    Example: unpool run model.onnx -i photo.png -o mask.png --scale 1/255 --argmax
    """
    given = locals()
    from unpool.cli.cluster import run as run_on_cluster
    from unpool.cli.progress import print_outcome, progress
    from unpool.cli.run import run as run_items
    from unpool.cli.run_config import RunConfig

    config = RunConfig.of_options(given)
    display = progress(quiet)
    outcome = run_items(config, display) if scheduler is None else run_on_cluster(config, scheduler, display)
    print_outcome(outcome, model, as_json, quiet)
    return FINDINGS if outcome.failed else OK
