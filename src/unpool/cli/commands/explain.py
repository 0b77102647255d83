"""The command `unpool explain`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.option_values import Compat, Layout
from unpool.cli.options import Choice, CompatWord, Json


def explain(
    operator: Annotated[
        str,
        typer.Argument(metavar="OPERATOR", help="MaxPool, MaxUnpool or ConvTranspose.", show_default=False),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="size, the spatial sizes of X, such as size=7x9; and attributes such as kernel_shape=3 strides=2,2 "
            "pads=0,1,0,1 auto_pad=SAME_UPPER. One integer stands for all axes.",
            show_default=False,
        ),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(min=1, help="The opset that selects the version.", show_default="the newest version")
    ] = None,
    to: Annotated[
        int | None, typer.Option(min=1, help="Another opset: what changed up to its version.", show_default=False)
    ] = None,
    layout: Annotated[
        Layout, Choice(help="NHWC: the versions of onnxruntime's domain com.ms.internal.nhwc.")
    ] = Layout.NCHW,
    compat: CompatWord = Compat.SPEC,
    as_json: Json = False,
) -> None:
    """Print what a version of an operator accepts, what changed between two, or what it does to sizes, as a drawing.

    In the drawing # is a tap on an element, o one on padding, or on what is cut off, and - a gap of the window.

    Example: unpool explain MaxPool size=7x9 kernel_shape=3 strides=2 pads=1 ceil_mode=1
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.explain import explained, to_json

        keywords = {"opset": opset, "to": to, "layout": layout.value.upper(), "compat": compat.value}
        done = explained(operator, settings or (), keywords)
        console.say_report(str(done).splitlines(), to_json(done), as_json)
