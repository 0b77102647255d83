"""`unpool compare`: one model in several runtimes, or two models, value by value."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli.errors import FINDINGS, OK, UNSUPPORTED, UsageError, guard
from unpool.cli.options import (
    Compat,
    CompatWord,
    Exact,
    Flag,
    IndexSpace,
    IndexWord,
    Json,
    ModelPath,
    RunInputs,
    Size,
    number,
    parse_sizes,
)

if TYPE_CHECKING:
    from unpool.runtime.compare.records import Comparison


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
            help="Comma-separated: onnxruntime, reference (of onnx), openvino, torch, unpool. torch runs no ONNX file: "
            "it computes each MaxPool, MaxUnpool and ConvTranspose by itself, from the inputs that unpool gives it.",
            show_default="onnxruntime; unpool for two models",
        ),
    ] = None,
    inputs: RunInputs = None,
    size: Size = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Tolerance of floats, relative to the largest element of the value. Integers must be equal.",
            show_default="float64 1e-10, float32 1e-4, float16 0.01, bfloat16 0.05",
        ),
    ] = None,
    ulp: Annotated[int, typer.Option(min=0, help="Tolerance of floats in units of the last place, in addition.")] = 0,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the elements of a value that may exceed the tolerance.")
    ] = 0.0,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    every: Annotated[bool, Flag("--all", help="List every value, not only where it begins to differ.")] = False,
    as_json: Json = False,
) -> None:
    """Compare a model in several runtimes, or two models: the outputs, the first node that differs, and how far.

    Exits with 1 where values differ (of two models, where outputs do), else with 4 where a runtime cannot run it.
    Indices that differ are counted apart: where elements tie, where they almost do, and where one runtime is wrong.

    Example: unpool compare segnet.onnx --against onnxruntime,openvino
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.feed import one_feed
        from unpool.cli.model import SessionOptions, open_session, slots
        from unpool.numerics import Tolerance
        from unpool.runtime.compare.compare import compare as compare_models

        limits = Tolerance(None if tolerance is None else number("--tolerance", tolerance), ulp, share)
        options = SessionOptions(compat, index_space, exact)
        comparison = compare_models(
            *([model] if other is None else [model, other]),
            against=None if against is None else runtime_names(against),
            feed=one_feed(inputs, slots(open_session(model, options))) if inputs else None,
            sizes=parse_sizes(size or ()),
            tolerance=limits,
            **options.semantics,
        )
        console.say_report(comparison.lines(all_values=every), _document(comparison), as_json)
        code = exit_code_of(comparison)
    if code != OK:
        raise typer.Exit(code)


def runtime_names(text: str) -> Sequence[str]:
    """The runtimes of `--against`.

    >>> runtime_names("onnxruntime, torch")
    ['onnxruntime', 'torch']
    """
    from unpool.errors import suggest_name
    from unpool.runtime.compare.runtimes import NAMES

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise UsageError(
            f"--against: expected some of {', '.join(NAMES)}, got {text!r}. "
            f"{suggest_name(unknown[0] if unknown else '', NAMES)}"
        )
    return names


def exit_code_of(comparison: "Comparison") -> int:
    """1 where anything differs (of two models, an output), else 4 where a runtime cannot run a node, else 0."""
    if comparison.differs:
        return FINDINGS
    return UNSUPPORTED if comparison.has_unsupported else OK


def _document(comparison: "Comparison") -> dict[str, Any]:
    """The same as JSON types."""
    reports = [{**asdict(report), "differs": report.differs} for report in comparison.reports]
    return {**asdict(comparison), "reports": reports, "differs": comparison.differs}
