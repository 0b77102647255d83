"""`unpool bench`: times of a model and of its nodes, next to onnxruntime."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command

if TYPE_CHECKING:
    from unpool.runtime.measure.bench import ModelTimes, NodeTime
    from unpool.runtime.measure.timing import Timing

TITLES = ("node", "runs on", "ms", "share", "onnxruntime ms", "times faster")


@command
def bench(
    model: options.ModelPath,
    inputs: options.RunInputs = None,
    layout: options.LayoutWord = options.Layout.NCHW,
    size: options.Size = None,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before the timed ones.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 20,
    threads: options.Threads = None,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    exact: options.Exact = False,
    tune: Annotated[bool, options.Flag("--tune", help="Use OpenVINO if it is faster, as with tune=True.")] = False,
    as_json: options.Json = False,
) -> CommandResult:
    """Time a model and each of its nodes in unpool and in onnxruntime, each in its own process.

    Example: unpool bench segnet.onnx --size height=360 --size width=480
    """
    from unpool.cli.feed import one_feed
    from unpool.cli.model import open_session, slots
    from unpool.graph.random_inputs import random_feed
    from unpool.runtime.measure.bench import bench as time_model
    from unpool.runtime.measure.timing import Effort

    arguments = options.semantics(compat, index_space, exact=exact, threads=threads)
    session, sizes = open_session(model, **arguments), options.parse_sizes(size)
    feed = one_feed(inputs, slots(session), layout) if inputs else random_feed(session.get_inputs(), sizes)
    times = time_model(model, feed, Effort(warmup, iterations, seconds=0, limit=math.inf), tune=tune, **arguments)
    is_finite = times.difference is not None and math.isfinite(times.difference)
    document = {
        "model": str(model),
        **asdict(times),
        "ratio": times.ratio,
        "ceiling": times.ceiling,
        "difference": times.difference if is_finite else None,  # JSON has no infinity
        "is_equal": times.is_equal,
    }
    return CommandResult(report_lines(times), document)


def report_lines(times: "ModelTimes") -> list[str]:
    """A table of the nodes, and lines about the whole model."""
    from unpool.display import table

    rows = [_row(node) for node in times.nodes]
    count = "1 thread" if times.threads == 1 else f"{times.threads} threads"
    lines = [*table(TITLES, rows).splitlines(), "", f"whole model, {count}: unpool {_spread(times.unpool)}"]
    if times.onnxruntime is None or times.ratio is None:
        return [*lines, f"onnxruntime cannot run it: {times.refusal}"]
    ratio = times.ratio
    comparison = f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
    lines[-1] += f", onnxruntime {_spread(times.onnxruntime)}: unpool is {comparison}"
    if times.ceiling is not None:
        lines.append(
            f"MaxPool, MaxUnpool and ConvTranspose take {times.operator_share:.0%} of onnxruntime's time: "
            f"without them it would be {times.ceiling:.2f} times faster"
        )
    if times.difference is not None and not times.is_equal:
        lines.append(f"the two differ by up to {times.difference:.1g} of the largest value: they compute other things")
    return lines


def _row(node: "NodeTime") -> tuple[str, ...]:
    theirs, ratio = "-", "-"
    if node.onnxruntime is not None:
        theirs = f"{node.onnxruntime * 1e3:.3f}"
        ratio = f"{node.onnxruntime / node.seconds:.2f}" if node.seconds else "-"
    return node.node, node.runner, f"{node.seconds * 1e3:.3f}", f"{node.share:.1%}", theirs, ratio


def _spread(timing: "Timing") -> str:
    return f"{timing.median * 1e3:.3f} ms ({timing.p20 * 1e3:.3f} to {timing.p80 * 1e3:.3f})"
