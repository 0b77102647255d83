"""`unpool report`: one page about a model."""

import math
from pathlib import Path
from typing import Annotated

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import UsageError
from unpool.errors import MissingFileError


@command
def report(
    model: options.ModelPath,
    output: Annotated[Path, options.OutputOption(help="HTML file to write.")],
    inputs: options.RunInputs = None,
    layout: options.LayoutWord = options.Layout.NCHW,
    size: options.Size = None,
    iterations: Annotated[int, typer.Option(min=0, help="Timed runs; 0 skips the times.")] = 10,
    accuracy: Annotated[bool, options.Flag(help="Evaluate every node again in float64.")] = True,
    threads: options.Threads = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    exact: options.Exact = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Write an HTML page about a model: plan, times, accuracy, findings, memory and feature maps.

    Example: unpool report segnet.onnx -i photo.png -o report.html
    """
    from unpool.cli.feed import one_feed
    from unpool.cli.model import open_session, slots
    from unpool.cli.outputs import refuse_stdout
    from unpool.files import is_same
    from unpool.runtime.measure.timing import Effort
    from unpool.runtime.report.report import ReportOptions
    from unpool.runtime.report.report import report as report_model

    refuse_stdout(output)
    if output.is_dir() or output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {output}: expected a file for a page such as report.html.")
    if is_same(output, model):
        raise UsageError(f"-o {output}: is the model that is read. Choose another file.")
    if not output.parent.is_dir():
        raise MissingFileError(f"{output.parent}: no such folder for the output. Create it first.")
    arguments = options.semantics(compat, index_space, exact=exact, threads=threads)
    sizes = options.parse_sizes(size)
    feed = one_feed(inputs, slots(open_session(model, **arguments)), layout) if inputs else None
    effort = Effort(2, iterations, seconds=0, limit=math.inf) if iterations else None
    choice = ReportOptions(effort, accuracy)
    page = report_model(model, feed, sizes=sizes, layout=layout.upper(), options=choice, **arguments)
    page.save(output)
    return CommandResult([*page.lines, f"{output}: written"])
