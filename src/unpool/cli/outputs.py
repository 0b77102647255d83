"""Names, formats and types of output files, and standard output."""

import logging
import os
import re
import sys
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.errors import UnsupportedError
from unpool.files.targets import is_reserved
from unpool.images.formats import stem_of

ARRAY_FORMATS = ("npy", "npz")  # that hold tensors as they are
SEPARATORS = tuple(separator for separator in (os.sep, os.altsep) if separator)
STDOUT = "-"

LONGEST = 100  # bytes; leaves room for a suffix in the 255 that file systems take

_log = logging.getLogger("unpool.cli")


def files_of(place: Path, form: str, outputs: Sequence[str]) -> dict[Path, list[str]]:
    """File -> outputs in it: all in one .npz; otherwise each in a file of its own, with its name if there are several.

    >>> [path.name for path in files_of(Path("masks/a.npy"), "npy", ["y", "head/z"])]
    ['a.y.npy', 'a.head_z.npy']
    """
    if form == "npz" or len(outputs) == 1:
        return {place: list(outputs)}
    stem, names = stem_of(place), safe_names(outputs)
    return {place.with_name(f"{stem}.{names[name]}.{form}"): [name] for name in outputs}


def refuse_stdout(output: Path) -> None:
    """Refuse `-` for a model, whose files appear when they are complete."""
    if str(output) == STDOUT:
        raise UsageError("-o -: a model goes into a file, not to standard output. Name a file.")


def refuse_terminal() -> None:
    """Refuse to write the bytes of a file to a terminal, or to a closed stream."""
    if sys.stdout is None or sys.stdout.isatty():
        fact = "closed, results need a place" if sys.stdout is None else "a terminal, results are bytes"
        raise UsageError(f"-o -: standard output is {fact}. Send it to a file or a program.")


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """A file name for each name: itself where possible, without separators, unique also if case does not count.

    >>> safe_names(["y", "/head/Conv:0", "../../evil", "Y", "con", ""])
    {'y': 'y', '/head/Conv:0': '_head_Conv_0', '../../evil': '_.._evil', 'Y': 'Y_2', 'con': '_con', '': '_'}
    """
    names, by_name = list(names), {}
    reserved = {_folded(name) for name in names if _safe(name) == name}
    used: set[str] = set()
    for name in names:
        safe = free = _safe(name)
        if safe != name or _folded(name) in used:
            number = 1
            while _folded(free) in reserved | used:
                number += 1
                free = f"{safe}_{number}"
        by_name[name] = free
        used.add(_folded(free))
    return by_name


def _safe(name: str) -> str:
    text = re.sub(r"[^\w.+\- ]", "_", unicodedata.normalize("NFC", name))
    text = text.encode()[:LONGEST].decode(errors="ignore").strip(". ") or "_"
    return f"_{text}" if is_reserved(text) else text


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def check_kind(name: str, kind: str, form: str) -> None:
    """Refuse an output whose type, in the words of a session, no file of this format can hold."""
    if kind.startswith("tensor("):
        if kind == "tensor(string)" and form not in ARRAY_FORMATS:
            raise UsageError(f"output {name!r} holds texts: .{form} is for numbers. Write .npy or .npz.")
    elif kind.startswith("seq(tensor("):
        if form != "npz":
            raise UsageError(f"output {name!r} is a sequence of tensors: one .{form} holds one. Write .npz.")
    else:
        advice = "Choose another with --output-name, or use unpool.InferenceSession."
        raise UnsupportedError(f"output {name!r} is {kind}: files hold tensors and sequences of tensors. {advice}")


def write_arrays(stream: BinaryIO, form: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write all arrays, as members with their names (npz), or the only one (npy)."""
    if form == "npy":
        (array,) = arrays.values()
        np.save(stream, array, allow_pickle=False)
        return
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def elements(outputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Outputs by name, an element of a sequence as `name.0`, `name.1`, ...

    >>> sorted(elements({"y": np.zeros(2), "s": [np.zeros(3), np.zeros(4)]}))
    ['s.0', 's.1', 'y']
    """
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in outputs.items():
        if not isinstance(value, list):
            arrays[name] = value
            continue
        digits, taken = len(str(len(value) - 1)), {*outputs, *arrays}
        for number, element in enumerate(value):
            unused = f"{name}.{number:0{digits}}"
            while unused in taken:
                unused += "_"
            arrays[unused] = element
    return arrays


def writable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a type that files hold, value for value: texts of one length, small types of ONNX in wider ones."""
    array = np.asarray(array)
    if array.dtype == object:
        if any(str(text).endswith("\0") for text in array.ravel()):
            fact = "a text ends in NUL, which .npy does not keep"
            raise UnsupportedError(f"{name}: {fact}. Use unpool.InferenceSession.")
        return array.astype(np.str_)
    if array.dtype.type.__module__ != ml_dtypes.bfloat16.__module__:
        return array
    try:
        wide: type = np.int8 if ml_dtypes.iinfo(array.dtype).min < 0 else np.uint8  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        wide = np.float32
    _log.info("%s: %s is written as %s, value for value", name, array.dtype, np.dtype(wide))
    return array.astype(wide)
