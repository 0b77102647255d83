"""The words and numbers that options take."""

import math
from enum import StrEnum

from unpool.cli.exits import UsageError


class Layout(StrEnum):
    """Where a model has its channels."""

    NCHW = "nchw"
    NHWC = "nhwc"


class Compat(StrEnum):
    """Whose meaning is followed where the standard's text and onnxruntime differ."""

    SPEC = "spec"
    ORT = "ort"


class IndexSpace(StrEnum):
    """In which shape MaxUnpool counts its indices when output_shape is given."""

    AUTO = "auto"
    OUTPUT = "output"
    INFERRED = "inferred"


class Provider(StrEnum):
    """Who runs what unpool does not."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"
    CUDA = "cuda"


class Target(StrEnum):
    """What a lowered model is for."""

    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    COREML = "coreml"
    TFLITE = "tflite"
    ONNXRUNTIME_WEB = "onnxruntime-web"
    ANY = "any"


class Shell(StrEnum):
    """For which shell words are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


class Format(StrEnum):
    """What a file of results can be."""

    NPY = "npy"
    NPZ = "npz"
    PNG = "png"
    JPG = "jpg"
    TIF = "tif"
    ZARR = "zarr"
    NII = "nii"
    NII_GZ = "nii.gz"


class Pages(StrEnum):
    """What the pages of a .tif are, where they are not depth or channels."""

    BATCH = "batch"


class Blend(StrEnum):
    """How results of overlapping windows become one."""

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
