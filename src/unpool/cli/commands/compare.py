"""`unpool compare`: one model in several runtimes, or two models, value by value."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import FINDINGS, OK, UNSUPPORTED, UsageError
from unpool.errors import suggest_name

OTHER_HELP = "A second ONNX file, to compare with the first."
AGAINST_HELP = (
    "Comma-separated: onnxruntime, reference (onnx's), openvino, torch, unpool. torch runs no ONNX file: it computes "
    "each MaxPool, MaxUnpool and ConvTranspose separately, on the inputs that unpool computed."
)
AGAINST_DEFAULT = "onnxruntime; unpool for two models"
TOLERANCE_HELP = (
    "Tolerance of floats, relative to the largest element of the value. The default depends on the narrowest float "
    "type on the way to the value. Integers must be equal."
)
TOLERANCE_DEFAULT = "float64 1e-10, float32 1e-4, float16 0.01, bfloat16 0.05"
BISECT_HELP = "Also run the model with one more pass of unpool each time, and name the passes that change an output."
SHARE_HELP = "Share of the elements that may differ by more than the tolerance."


@command
def compare(
    model: options.ModelPath,
    other: Annotated[Path | None, typer.Argument(metavar="[OTHER]", help=OTHER_HELP, show_default=False)] = None,
    against: Annotated[str | None, options.text_option("RUNTIMES", AGAINST_HELP, AGAINST_DEFAULT)] = None,
    inputs: options.RunInputs = None,
    layout: options.LayoutWord = options.Layout.NCHW,
    size: options.Size = None,
    tolerance: Annotated[str | None, options.text_option("NUMBER", TOLERANCE_HELP, TOLERANCE_DEFAULT)] = None,
    ulp: Annotated[int, typer.Option(min=0, help="Tolerance of floats in units of the last place.")] = 0,
    share: Annotated[float, typer.Option(min=0, max=1, help=SHARE_HELP)] = 0.0,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    exact: options.Exact = False,
    bisect_passes: Annotated[bool, options.Flag("--bisect-passes", help=BISECT_HELP)] = False,
    every: Annotated[bool, options.Flag("--all", help="List every value, not only first differences.")] = False,
    as_json: options.Json = False,
) -> CommandResult:
    """Compare a model in several runtimes, or two models: outputs, and the first node that differs.

    The exit code is 1 if values differ (for two models: if outputs differ), else 4 if a runtime cannot run the model.
    Differing indices are classified: the elements tie, they almost tie, or one runtime is wrong.

    Example: unpool compare segnet.onnx --against onnxruntime,openvino
    """
    from unpool.cli.feed import one_feed
    from unpool.cli.model import open_session, slots
    from unpool.numerics import Tolerance
    from unpool.runtime.compare.compare import compare as compare_models

    relative = None if tolerance is None else options.number("--tolerance", tolerance)
    arguments = options.semantics(compat, index_space, exact=exact)
    comparison = compare_models(
        *([model] if other is None else [model, other]),
        against=None if against is None else runtime_names(against),
        feed=one_feed(inputs, slots(open_session(model, **arguments)), layout) if inputs else None,
        sizes=options.parse_sizes(size),
        tolerance=Tolerance(relative, ulp, share),
        bisect_passes=bisect_passes,
        **arguments,
    )
    reports = [{**asdict(report), "differs": report.differs} for report in comparison.reports]
    document = {**asdict(comparison), "reports": reports, "differs": comparison.differs}
    code = FINDINGS if comparison.differs else UNSUPPORTED if comparison.has_unsupported else OK
    return CommandResult(comparison.lines(all_values=every), document, code)


def runtime_names(text: str) -> list[str]:
    """The runtimes of `--against`.

    >>> runtime_names("onnxruntime, torch")
    ['onnxruntime', 'torch']
    """
    from unpool.runtime.compare.runtimes import NAMES

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        advice = suggest_name(unknown[0] if unknown else "", NAMES)
        raise UsageError(f"--against: expected some of {', '.join(NAMES)}, got {text!r}. {advice}")
    return names
