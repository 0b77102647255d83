"""The exceptions of unpool.

    UnpoolError (ValueError)                a value or attribute is wrong
    ├── ShapeError                          a rank, size or shape does not fit
    ├── UnsupportedError (NotImplementedError)   valid elsewhere; the message says where: version, type, device
    ├── IndicesError (IndexError)           an element of `indices` points outside its tensor
    ├── FileError (OSError)                 a file cannot be read or written
    │   └── MissingFileError (FileNotFoundError)
    ├── ModelError                          not an ONNX model, or a model that breaks the standard
    └── MissingExtraError (ModuleNotFoundError)   an optional package is not installed

Messages follow one pattern: *where: what was expected, what came. What to do.*
Every class is also the built-in exception that a caller would catch anyway. What a session raises is also what
onnxruntime raises in its place, one of its own classes or a TypeError (`runtime/errors.py`).
"""


class UnpoolError(ValueError):
    """Root of every error that unpool raises on purpose."""


class ShapeError(UnpoolError):
    """A rank, size or shape does not fit the operator or the memory of the machine."""


class UnsupportedError(UnpoolError, NotImplementedError):
    """The request is valid somewhere else; the message names the version, type or device that accepts it."""


class IndicesError(UnpoolError, IndexError):
    """An element of an indices tensor points outside the tensor it counts in."""


class FileError(UnpoolError, OSError):
    """A file exists but cannot be read or written as what it should be."""


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist."""


class ModelError(UnpoolError):
    """The bytes are not an ONNX model, or the model breaks a rule of the standard."""


class MissingExtraError(UnpoolError, ModuleNotFoundError):
    """A package of an extra is not installed; the message says how to install it, `name` is the module."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name
