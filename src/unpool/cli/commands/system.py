"""`unpool demo`, `warmup`, `doctor` and `completion`: commands about this installation."""

import time
from pathlib import Path
from typing import Annotated

import typer
from typer.completion import show_callback

from unpool.cli.command import CommandResult, command
from unpool.cli.errors import guard
from unpool.cli.options import Json, Quiet, Shell, Threads, Verbose

PHOTOGRAPH, MODEL, MASK, OVERLAY = "coins.png", "coins.onnx", "coins-mask.png", "coins-overlay.png"


@command
def demo(threads: Threads = None, quiet: Quiet = False, verbose: Verbose = False) -> CommandResult:
    """Find the coins in a photograph; write the photograph, the model, the mask and an overlay to this folder."""
    return CommandResult(run_demo(Path.cwd(), threads))


def warmup(
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Element type; repeatable.", show_default="float32"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile the common kernels now, so that first calls need not wait for them."""
    with guard(quiet=True):  # it has a bar of its own
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from unpool.cli.console import say
        from unpool.warmup import steps

        names = types or ["float32"]
        calls = list(steps(names))
        begin = time.perf_counter()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
            task = bar.add_task("", total=len(calls))
            for name, call in calls:
                bar.update(task, description=name)
                call()
                bar.advance(task)
        say(f"{len(calls)} calls are ready for {', '.join(names)} ({time.perf_counter() - begin:.1f} s)", quiet)


@command
def doctor(as_json: Json = False) -> CommandResult:
    """Print a diagnosis of this installation: versions, processor, Numba, cache, missing packages, devices."""
    from unpool.doctor import examine

    diagnosis = examine()
    return CommandResult(diagnosis.lines, diagnosis.document)


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="The shell.", show_default=False, case_sensitive=False)
    ],
) -> None:
    """Print a script that makes a shell complete commands and options.

    Example: unpool completion bash > ~/.local/share/bash-completion/completions/unpool
    """
    show_callback(context, next(iter(context.command.params)), shell.value)


def run_demo(folder: Path, threads: int | None = None) -> list[str]:
    """Segment scikit-image's photograph of coins; write it, the model, the mask and the overlay; lines to print."""
    from importlib.resources import as_file, files

    import numpy as np

    from unpool.cli.feed import to_input
    from unpool.cli.metadata import Metadata, PixelRule
    from unpool.cli.model import open_session, slots
    from unpool.cli.render import class_map, class_shares
    from unpool.display import format_shape
    from unpool.extras import require
    from unpool.files import FileSet
    from unpool.images.overlay import ClassView, legend_for, mask_rows, overlay_rows, rows_of
    from unpool.images.pixels import Picture, backdrop
    from unpool.images.raster import write_planes, write_rows
    from unpool.onnxruntime.errors import run_session

    require("unpool demo", "demo", "skimage")
    from skimage.data import coins

    photograph = Picture(np.asarray(coins())[..., None], 255)  # type: ignore[no-untyped-call]
    begin = time.perf_counter()
    model = files("unpool") / "data" / MODEL
    with as_file(model) as path:
        session = open_session(path, threads=threads)
    (slot,) = slots(session).values()
    batch = to_input(photograph, slot, PixelRule(), "coins")
    slot.check(batch, "coins")
    (scores,) = run_session(session, None, {slot.name: batch})
    seconds = time.perf_counter() - begin
    numbers, count = class_map(scores, "nchw", "coins.onnx")
    classes = ClassView(numbers.shape, numbers.dtype, count, lambda slices: numbers[slices])
    counts = classes.counts(rows_of(classes.shape))
    metadata = Metadata(session.get_modelmeta().custom_metadata_map, "coins.onnx")
    legend = legend_for(classes.count, metadata.classes())
    with FileSet() as written:
        with written.open(folder / PHOTOGRAPH) as stream:
            write_planes(stream, "png", photograph.pixels, PHOTOGRAPH)
        with written.open(folder / MODEL) as stream:
            stream.write(model.read_bytes())
        with written.open(folder / MASK) as stream:
            write_rows(stream, "png", *mask_rows(classes, legend))
        with written.open(folder / OVERLAY) as stream:
            present = np.flatnonzero(counts).tolist()
            write_rows(stream, "png", *overlay_rows(backdrop(photograph), classes, legend, 0.5, present))
    share = class_shares(counts, legend.names).get(legend.names[1], 0.0)
    return [
        f"wrote {MASK} (the class of every pixel, {format_shape(classes.shape[1:])}) and {OVERLAY} (to look at)",
        f"coins cover {100 * share:.1f} % of the photograph; loading and running took {seconds:.2f} s",
        f"wrote {PHOTOGRAPH} and {MODEL}, to go on with: unpool inspect {MODEL}; "
        f"unpool run {MODEL} -i {PHOTOGRAPH} -o mask.png --argmax",
    ]
