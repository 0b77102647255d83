"""Arguments and options that several commands share."""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.errors import UsageError


class Layout(StrEnum):
    """Position of the channels in the shapes of a model."""

    NCHW = "nchw"
    NHWC = "nhwc"


class Compat(StrEnum):
    """The semantics where the standard's text and onnxruntime differ."""

    SPEC = "spec"
    ORT = "ort"


class IndexSpace(StrEnum):
    """The shape in which MaxUnpool's indices count when output_shape is given."""

    AUTO = "auto"
    OUTPUT = "output"
    INFERRED = "inferred"


class Provider(StrEnum):
    """Runtimes of the operators that unpool does not run."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"
    CUDA = "cuda"


class TargetName(StrEnum):
    """Runtimes that models are lowered for."""

    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    COREML = "coreml"
    TFLITE = "tflite"
    ONNXRUNTIME_WEB = "onnxruntime-web"
    ANY = "any"


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


class Format(StrEnum):
    """Formats of output files."""

    NPY = "npy"
    NPZ = "npz"
    PNG = "png"
    JPG = "jpg"
    TIF = "tif"
    ZARR = "zarr"
    NII = "nii"
    NII_GZ = "nii.gz"


class Pages(StrEnum):
    """Roles of the pages of a .tif, besides depth and channels."""

    BATCH = "batch"


class Blend(StrEnum):
    """Weights of overlapping windows in their average."""

    CONSTANT = "constant"
    GAUSSIAN = "gaussian"


def number(option: str, text: str) -> float:
    """A decimal number, or a fraction of whole ones; `option` is what the error message begins with.

    >>> number("--scale", "1/255") == 1 / 255, number("--scale", "0.5")
    (True, 0.5)
    """
    above, slash, below = text.partition("/")
    try:
        found = int(above) / int(below) if slash else float(text)
        if math.isfinite(found):
            return found
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    raise UsageError(f"{option}: expected a number such as 0.5 or 1/255, got {text[:40]!r}.")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """One number, or several with commas between.

    >>> numbers("--mean", "0.485, 0.456, 0.406")
    (0.485, 0.456, 0.406)
    """
    return tuple(number(option, part) for part in text.split(","))


def positive_numbers(option: str, text: str) -> tuple[float, ...]:
    """Like `numbers`, all above zero.

    >>> positive_numbers("--std", "2")
    (2.0,)
    """
    found = numbers(option, text)
    if min(found) <= 0:
        raise UsageError(f"{option}: expected numbers above 0, got {text[:40]}.")
    return found


def parse_sizes(options: Sequence[str]) -> dict[str, int]:
    """Values of dynamic dimensions by name, from options such as `height=64`.

    >>> parse_sizes(["n=1", "height=64"])
    {'n': 1, 'height': 64}
    """
    sizes = {}
    for option in options:
        name, equals, number = option.rpartition("=")
        if not (name and equals and number.isdecimal() and int(number)):
            raise UsageError(f"--size: expected NAME=NUMBER from 1 on, such as height=64, got {option!r}.")
        sizes[name] = int(number)
    return sizes


Flag = partial(typer.Option, metavar="")
"""An option that takes no value, and whose help shows none."""

Choice = partial(typer.Option, case_sensitive=False)
"""An option that takes one of a few words, in capitals or not."""

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)]
Quiet = Annotated[bool, Flag("--quiet", "-q", help="Print errors and warnings only.")]
Verbose = Annotated[bool, Flag("--verbose", "-v", help="Log what is copied, cast or left out, on stderr.")]
Json = Annotated[bool, Flag("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
CompatWord = Annotated[Compat, Choice("--compat", help="Follow the standard's text, or onnxruntime where they differ.")]
IndexWord = Annotated[
    IndexSpace,
    Choice("--index-space", help="Where MaxUnpool counts indices when output_shape is given."),
]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)]
ProviderWord = Annotated[
    Provider,
    Choice(
        "--provider",
        help="Runtime for the other operators: onnxruntime, openvino, or cuda (unpool's kernels on the GPU too).",
    ),
]
Force = Annotated[bool, Flag("--force", help="Overwrite the input model and its data files.")]
Size = Annotated[list[str] | None, typer.Option("--size", metavar="NAME=NUMBER", help="Value of a dynamic dimension.")]
VerifySize = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=NUMBER", help="Value of a dynamic dimension, for verification."),
]
RunInputs = Annotated[
    list[str] | None,
    typer.Option("-i", "--input", metavar="[NAME=]PATH", help="Inputs of one run.", show_default="random numbers"),
]
Exact = Annotated[
    bool,
    Flag("--exact", help="Let unpool run every MaxPool, and compute every product as the model writes it."),
]
