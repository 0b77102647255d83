"""The exceptions of unpool.

    UnpoolError (ValueError)                a value or attribute is wrong
    ├── ShapeError                          a rank, size or shape does not fit
    ├── UnsupportedError (NotImplementedError)   valid elsewhere; the message says where: version, type, device
    ├── IndicesError (IndexError)           an element of `indices` points outside its tensor
    ├── FileError (OSError)                 a file cannot be read or written
    │   └── MissingFileError (FileNotFoundError)
    ├── ModelError                          not an ONNX model, or a model that breaks the standard
    └── MissingExtraError (ModuleNotFoundError)   an optional package is not installed

Messages follow one pattern: *where: the fact, with its value. What to do.* Every class is also the built-in exception
that a caller would catch anyway. Errors of a session are also instances of the class that onnxruntime raises, one of
its own or a TypeError (`graph/errors.py`).
"""

import os
import sys
import warnings
from collections.abc import Iterable

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class UnpoolError(ValueError):
    """Base class of all errors of unpool."""


class ShapeError(UnpoolError):
    """A rank, size or shape does not fit the operator or the memory of the machine."""


class UnsupportedError(UnpoolError, NotImplementedError):
    """The request is valid for another version, type or device, which the message names."""


class IndicesError(UnpoolError, IndexError):
    """An element of an indices tensor points outside the tensor that it refers to."""


class FileError(UnpoolError, OSError):
    """A file exists, but cannot be read or written in the expected format."""


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist."""


class ModelError(UnpoolError):
    """The bytes are not an ONNX model, or the model violates the standard."""


class MissingExtraError(UnpoolError, ModuleNotFoundError):
    """A package of an extra is not installed; the message says how to install it, `name` is the module."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def suggest_name(name: object, known: Iterable[str], otherwise: str = "Choose one of these.") -> str:
    """The last sentence of an error about an unknown name: the most similar known one, if any is similar.

    >>> suggest_name("kernel", ["auto_pad", "kernel_shape"]), suggest_name("x", ["kernel_shape"])
    ('Did you mean kernel_shape?', 'Choose one of these.')
    """
    from difflib import get_close_matches

    matches = get_close_matches(str(name).lower(), {each.lower(): each for each in known}, n=1)
    return f"Did you mean {matches[0]}?" if matches else otherwise


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller's own code, which is the first frame outside this package.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_caller("slow")
    >>> caught[0].filename == __file__
    False
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
