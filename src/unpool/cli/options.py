"""Arguments and options that several commands share."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unpool.cli.errors import UsageError
from unpool.images.formats import FORMATS

Layout = StrEnum("Layout", ["NCHW", "NHWC"])
Compat = StrEnum("Compat", ["SPEC", "ORT"])
IndexSpace = StrEnum("IndexSpace", ["AUTO", "OUTPUT", "INFERRED"])
Provider = StrEnum("Provider", ["ONNXRUNTIME", "CUDA"])
TargetName = StrEnum("TargetName", ["OPENVINO", "TENSORRT", "COREML", "TFLITE", "ONNXRUNTIME-WEB", "ANY"])
Shell = StrEnum("Shell", ["BASH", "ZSH", "FISH", "POWERSHELL"])
Format = StrEnum("Format", [each.name.upper() for each in FORMATS if each.is_written])  # type: ignore[misc]
Pages = StrEnum("Pages", ["BATCH"])
Blend = StrEnum("Blend", ["CONSTANT", "GAUSSIAN"])


def number(option: str, text: str) -> float:
    """A decimal number, or a fraction of whole ones; `option` begins the error message.

    >>> number("--scale", "1/255") == 1 / 255, number("--scale", "0.5")
    (True, 0.5)
    """
    above, slash, below = text.partition("/")
    with suppress(ValueError, ZeroDivisionError, OverflowError):
        value = int(above) / int(below) if slash else float(text)
        if math.isfinite(value):
            return value
    raise UsageError(f"{option}: expected a number such as 0.5 or 1/255, got {text[:40]!r}.")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """One number, or several separated by commas.

    >>> numbers("--mean", "0.485, 0.456, 0.406")
    (0.485, 0.456, 0.406)
    """
    return tuple(number(option, part) for part in text.split(","))


def positive_numbers(option: str, text: str) -> tuple[float, ...]:
    """Like `numbers`, all above zero."""
    values = numbers(option, text)
    if min(values) <= 0:
        raise UsageError(f"{option}: expected numbers above 0, got {text[:40]}.")
    return values


def positive_number(option: str, text: str) -> float:
    """Like `number`, above zero."""
    value = number(option, text)
    if value <= 0:
        raise UsageError(f"{option}: expected a number above 0, got {text[:40]}.")
    return value


def parse_sizes(options: Sequence[str] | None) -> dict[str, int]:
    """Values of dynamic dimensions by name, from options such as `height=64`.

    >>> parse_sizes(["n=1", "height=64"])
    {'n': 1, 'height': 64}
    """
    sizes = {}
    for option in options or ():
        name, equals, digits = option.rpartition("=")
        if not (name and equals and digits.isdecimal() and int(digits)):
            raise UsageError(f"--size: expected NAME=NUMBER from 1 on, such as height=64, got {option!r}.")
        sizes[name] = int(digits)
    return sizes


def semantics(compat: str, index_space: str, **others: Any) -> dict[str, Any]:
    """The keywords for the meaning of operators that functions of the library share, and others."""
    return {"compat": str(compat), "index_space": str(index_space), **others}


@dataclass(frozen=True)
class Parser:
    """In the annotation of an option: the function that makes its value of its name, for messages, and its text."""

    parse: Callable[[str, str], Any]


def text_option(metavar: str, text: str, default: str | bool = False) -> Any:
    """An option that takes one text; its help shows `default` as the default."""
    return typer.Option(metavar=metavar, help=text, show_default=default)


Flag = partial(typer.Option, metavar="")  # an option that takes no value, and whose help shows none
Choice = partial(typer.Option, case_sensitive=False)  # an option that takes one of a few words, in any case of letters
INDEX_SPACE_HELP = "Tensor that the indices of MaxUnpool refer to if it has an output_shape."
LAYOUT_HELP = "Position of the model's channels: before (NCHW) or after (NHWC) the spatial axes."
PROVIDER_HELP = "Runtime of the other operators: onnxruntime on the CPU, or cuda, which runs all of them but MaxUnpool."

SizeOption = partial(typer.Option, "--size", metavar="NAME=NUMBER")
OutputOption = partial(typer.Option, "-o", "--output", show_default=False)

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)]
ModelOutput = Annotated[Path, OutputOption(help="ONNX file to write.")]
Quiet = Annotated[bool, Flag("--quiet", "-q", help="Print errors and warnings only.")]
Verbose = Annotated[bool, Flag("--verbose", "-v", help="Log copies, casts and fallbacks on stderr.")]
Json = Annotated[bool, Flag("--json", help="Print the result as JSON on stdout.")]
Force = Annotated[bool, Flag("--force", help="Overwrite the input model and its data files.")]
Exact = Annotated[bool, Flag("--exact", help="Every MaxPool in unpool; no fast algorithms.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
CompatWord = Annotated[Compat, Choice("--compat", help="Follow the standard's text, or onnxruntime where they differ.")]
IndexWord = Annotated[IndexSpace, Choice("--index-space", help=INDEX_SPACE_HELP)]
ProviderWord = Annotated[Provider, Choice("--provider", help=PROVIDER_HELP)]
LayoutWord = Annotated[Layout, Choice("--layout", help=LAYOUT_HELP)]
Size = Annotated[list[str] | None, SizeOption(help="Value of a dynamic dimension.")]
VerifySize = Annotated[list[str] | None, SizeOption(help="Value of a dynamic dimension, for verification.")]
RunInputs = Annotated[
    list[str] | None,
    typer.Option("-i", "--input", metavar="[NAME=]PATH", help="Inputs of one run.", show_default="random numbers"),
]
