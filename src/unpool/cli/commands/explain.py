"""`unpool explain`: the contract of an operator, in words and as a drawing."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import UsageError

_INTEGERS = re.compile(r"\[?\s*-?\d+(\s*[,x]\s*-?\d+)*\s*\]?")

OPERATOR_HELP = "MaxPool, MaxUnpool or ConvTranspose."
SETTINGS_HELP = (
    "The spatial sizes of X, such as size=7x9, the channels of X and of the output, such as channels=64,32, and "
    "attributes, such as kernel_shape=3 strides=2,2 pads=0,1,0,1 auto_pad=SAME_UPPER. One integer applies to all axes."
)
OPSET_HELP = "The opset that selects the version."
TO_HELP = "Another opset, to list what changed up to its version."
LAYOUT_HELP = "NHWC explains the versions of onnxruntime's domain com.ms.internal.nhwc."


@command
def explain(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help=OPERATOR_HELP, show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help=SETTINGS_HELP, show_default=False)
    ] = None,
    opset: Annotated[int | None, typer.Option(min=1, help=OPSET_HELP, show_default="the newest version")] = None,
    to: Annotated[int | None, typer.Option(min=1, help=TO_HELP, show_default=False)] = None,
    layout: Annotated[options.Layout, options.Choice(help=LAYOUT_HELP)] = options.Layout.NCHW,
    compat: options.CompatWord = options.Compat.SPEC,
    as_json: options.Json = False,
) -> CommandResult:
    """Print what a version of an operator accepts, what changed between two versions, or a call's sizes and kernel.

    In the drawing, # is a tap on an element, o a tap on padding or a cropped position, and - a gap of the dilation.

    Example: unpool explain MaxPool size=7x9 kernel_shape=3 strides=2 pads=1 ceil_mode=1
    """
    from unpool.explanation.explain import explain as explain_operator

    arguments: dict[str, Any] = {"opset": opset, "to": to, "layout": layout.value.upper(), "compat": compat.value}
    values = parse_settings(settings or ())
    name = min(values.keys() & arguments.keys(), default=None)
    if name is not None:
        raise UsageError(f"unpool explain: {name} is an option, not a setting. Write --{name}.")
    explanation = explain_operator(operator, **arguments, **values)
    return CommandResult(str(explanation).splitlines(), asdict(explanation))


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Values by name from words such as `strides=2,2`: integers, lists of integers, or text.

    >>> parse_settings(["size=7x9", "kernel_shape=3", "pads=[0, 1, 0, 1]", "auto_pad=VALID"])
    {'size': [7, 9], 'kernel_shape': 3, 'pads': [0, 1, 0, 1], 'auto_pad': 'VALID'}
    """
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise UsageError(f"unpool explain: expected KEY=VALUE such as strides=2,2, got {word!r}.")
        if name in settings:
            raise UsageError(f"unpool explain: {name} is given twice. Remove {word!r}.")
        settings[name] = text
        if _INTEGERS.fullmatch(text):
            numbers = [int(number) for number in re.findall(r"-?\d+", text)]
            settings[name] = numbers if len(numbers) > 1 or text.startswith("[") else numbers[0]
    return settings
