"""The commands and their options; the work is done by the modules that each command imports."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.exits import FINDINGS, UNFIT, guard
from unpool.cli.option_values import (
    Compat,
    Format,
    IndexSpace,
    Layout,
    Provider,
    Target,
    number,
    numbers,
    positive_numbers,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run ONNX models on arrays and images; MaxPool, MaxUnpool and ConvTranspose exactly as written.",
)

INPUT_HELP = ".npy, .npz, .png, .jpg, .tif, or a folder of these; NAME=PATH for one of several inputs."
OUTPUT_HELP = ".npy, .npz, .png, .tif, or a folder: one file per input."

ModelPath = Annotated[Path, typer.Argument(help="ONNX file.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is copied, cast or left out, on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
CompatWord = Annotated[
    Compat, typer.Option("--compat", help="Follow the standard's text, or onnxruntime where they differ.")
]
IndexWord = Annotated[
    IndexSpace,
    typer.Option("--index-space", help="Where MaxUnpool counts indices when output_shape is given."),
]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)]
ProviderWord = Annotated[
    Provider, typer.Option("--provider", help="Who runs what unpool does not; openvino where it runs that as written.")
]
Force = Annotated[bool, typer.Option("--force", help="Let -o replace the model that is read, and its data files.")]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open, for comparing."),
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Let unpool run every MaxPool, and compute every product as the model writes it."),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"unpool {version('unpool')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    model: ModelPath,
    inputs: Annotated[list[str], typer.Option("-i", "--input", metavar="[NAME=]PATH", help=INPUT_HELP)],
    output: Annotated[Path, typer.Option("-o", "--output", help=OUTPUT_HELP)],
    output_name: Annotated[str | None, typer.Option(metavar="NAME", help="The model's output to write.")] = None,
    white: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="The pixel value that means white; it is read as 255. With 255, pixels keep their values.",
            show_default="by the file",
        ),
    ] = None,
    scale: Annotated[str | None, typer.Option(metavar="NUMBER", help="Multiply pixels, e.g. 1/255.")] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Subtract after --scale; one, or one per channel.")
    ] = None,
    std: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Divide after --mean; one, or one per channel.")
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="Whether the model has channels before (NCHW) or after (NHWC) the spatial axes.")
    ] = Layout.NCHW,
    argmax: Annotated[bool, typer.Option("--argmax", help="Write the number of the best class.")] = False,
    overlay: Annotated[bool, typer.Option("--overlay", help="Draw the classes over the image, with a legend.")] = False,
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Class names, comma separated.", show_default="from the model"),
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Strength of the colours of --overlay.")] = 0.5,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Format of the files in an output folder.",
            show_default="png for --argmax and --overlay, else npy",
        ),
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HxW",
            help="Run in tiles, with the same results: elements of the first input per tile, or as many as fit.",
            show_default="the whole image at once",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory of the process at most, e.g. 2GiB, for --tile auto.", show_default="half of it"
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
    with guard():
        from unpool.cli import console
        from unpool.cli.feeds import PixelRule
        from unpool.cli.model import SessionOptions, split_names
        from unpool.cli.run import run as run_request
        from unpool.cli.run_options import Request
        from unpool.cli.tiles import tile_options

        console.set_up_log(verbose)
        names = None if classes is None else tuple(split_names(classes))
        request = Request(
            model=model,
            inputs=tuple(inputs),
            output=output,
            rule=PixelRule(
                white=None if white is None else positive_numbers("--white", white)[0],
                scale=None if scale is None else number("--scale", scale),
                mean=None if mean is None else numbers("--mean", mean),
                std=None if std is None else positive_numbers("--std", std),
                layout=layout,
            ),
            session=SessionOptions(compat, index_space, exact, threads, provider),
            wanted=output_name,
            argmax=argmax,
            overlay=overlay,
            classes=names,
            alpha=alpha,
            form=form,
            tiles=tile_options(tile, max_memory),
        )
        outcome = run_request(request, console.progress(quiet))
        console.print_outcome(outcome, model, as_json, quiet)
    if outcome.failed:
        raise typer.Exit(UNFIT)


@app.command()
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
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print the inputs, the outputs, the plan of a model, and how it can be tiled: which node runs where, and why."""
    with guard():
        from unpool.cli import console
        from unpool.cli.inspect import describe, print_description
        from unpool.cli.model import SessionOptions
        from unpool.cli.upgrade import sizes_of

        console.set_up_log(verbose)
        options = SessionOptions(compat, index_space, exact, provider=provider)
        description = describe(model, options, sizes_of(size or ()))
        if as_json:
            console.say_json(description)
        else:
            print_description(description)


@app.command()
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
    with guard():
        from unpool.cli import console
        from unpool.cli.upgrade import place_for, report, sizes_of, to_json, upgrade_file

        meaning = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done = upgrade_file(model, opset, place_for(model, output, force), meaning)
        console.say_report(report(done, output), to_json(done, model, output), as_json, quiet)


@app.command()
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
    with guard():
        from unpool.cli import console
        from unpool.cli.upgrade import canonicalise_file, place_for, report, sizes_of, to_json

        meaning = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done = canonicalise_file(model, place_for(model, output, force), meaning)
        console.say_report(report(done, output), to_json(done, model, output), as_json, quiet)


@app.command()
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


@app.command()
def check(
    model: ModelPath,
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the nodes that runtimes disagree about, or that none reads as the author meant; exit with 1 if any.

    Example: unpool check segnet.onnx
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.check import check_file, print_findings, to_json
        from unpool.cli.upgrade import sizes_of

        findings = check_file(model, sizes_of(size or ()))
        if as_json:
            console.say_json(to_json(findings, model))
        else:
            print_findings(findings, model)
    if findings:
        raise typer.Exit(FINDINGS)


@app.command()
def fix(
    model: ModelPath,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Repair and verify, but write nothing.")] = False,
    force: Force = False,
    size: Size = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repair an exported model: ScatterND becomes MaxUnpool, two pools one, and indices count in the right tensor.

    Example: unpool fix exported.onnx -o fixed.onnx
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.fix import fix_file, report, to_json
        from unpool.cli.upgrade import sizes_of

        meaning = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done, data = fix_file(model, output, dry_run, force, meaning)
        document = to_json(done, model, output, data, dry_run)
        console.say_report(report(done, output, data, dry_run), document, as_json, quiet)


@app.command()
def lower(
    model: ModelPath,
    target: Annotated[Target, typer.Option("--for", help="What is to run the model.", show_default=False)],
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
    with guard():
        from unpool.cli import console
        from unpool.cli.lower import lower_file, report, to_json
        from unpool.cli.upgrade import place_for, sizes_of

        meaning = {"compat": compat.value, "index_space": index_space.value, "sizes": sizes_of(size or ())}
        done, data = lower_file(model, target.value, place_for(model, output, force), meaning)
        console.say_report(report(done, output, data), to_json(done, model, output, data), as_json, quiet)


@app.command()
def demo(threads: Threads = None, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Find the coins in a photograph: writes coins-mask.png and coins-overlay.png into this folder."""
    with guard():
        from unpool.cli import console
        from unpool.cli.demo import run_demo

        console.set_up_log(verbose)
        for line in run_demo(Path.cwd(), threads):
            console.say(line, quiet)


@app.command()
def warmup(
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Element type; several times for several.", show_default="float32"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile the common kernels now, so that no first call has to wait for them."""
    with guard():
        from unpool.cli.warmup import warm_up

        warm_up(types or ["float32"], quiet)
