"""Where results go: one file, a folder with a file per result, or standard output."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unpool.cli.exits import UsageError
from unpool.cli.safe_names import safe_names
from unpool.images.formats import stem_of, suffix_of

SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".png": "png",
    ".jpg": "jpg",
    ".jpeg": "jpg",
    ".tif": "tif",
    ".tiff": "tif",
    ".nii": "nii",
    ".nii.gz": "nii.gz",
    ".zarr": "zarr",
}
SEPARATORS = tuple(one for one in (os.sep, os.altsep) if one)
STDOUT = "-"


@dataclass(frozen=True)
class Destination:
    """A place for results; `form` is the format that its name says, None where it says none."""

    path: Path
    form: str | None = None
    is_stdout: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether each result gets a file of its own in this folder."""
        return self.form is None and not self.is_stdout

    def targets(self, stems: Sequence[str], form: str) -> dict[str, Path]:
        """Result name -> file.

        Raises:
            UsageError: several results for one file.

        >>> {stem: path.name for stem, path in Destination(Path("masks")).targets(["a", "b"], "png").items()}
        {'a': 'a.png', 'b': 'b.png'}
        """
        if self.is_folder:
            return {stem: self.path / f"{stem}.{form}" for stem in stems}
        if len(stems) > 1:
            raise UsageError(
                f"-o {self.path}: expected a folder for {len(stems)} results, got a place for one. "
                "Give a folder, with / at its end if it is new, and --format."
            )
        return {stems[0]: self.path}


def files_of(place: Path, form: str, outputs: Sequence[str]) -> dict[Path, list[str]]:
    """File -> outputs in it: all in one .npz; otherwise each in a file of its own, with its name if there are several.

    >>> [path.name for path in files_of(Path("masks/a.npy"), "npy", ["y", "head/z"])]
    ['a.y.npy', 'a.head_z.npy']
    """
    if form == "npz" or len(outputs) == 1:
        return {place: list(outputs)}
    stem, names = stem_of(place), safe_names(outputs)
    return {place.with_name(f"{stem}.{names[name]}.{form}"): [name] for name in outputs}


def destination(text: str) -> Destination:
    """What `-o` says: `-` is standard output; a folder is one that exists, or a name with a separator at its end.

    Raises:
        UsageError: a name without a suffix that says what to write.

    >>> destination("masks/").is_folder, destination("mask.png").form
    (True, 'png')
    """
    path = Path(text)
    if text == STDOUT:
        return Destination(path, is_stdout=True)
    suffix = suffix_of(path)
    is_zarr = SUFFIXES.get(suffix) == "zarr"
    if not is_zarr and (path.is_dir() or text.endswith(SEPARATORS)):
        return Destination(path)
    if suffix in SUFFIXES:
        return Destination(path, SUFFIXES[suffix])
    folder = "" if suffix else f" For a new folder, write {path}{SEPARATORS[0]}"
    raise UsageError(
        f"-o {text}: expected a name that ends in {', '.join(SUFFIXES)}, a folder, or - for standard output, "
        f"got {suffix or 'no suffix'}.{folder}"
    )


def refuse_stdout(output: Path) -> None:
    """Refuse `-` for a model, whose files appear when they are complete."""
    if str(output) == STDOUT:
        raise UsageError("-o -: a model goes into a file, not to standard output. Name a file.")


def refuse_terminal() -> None:
    """Refuse to write the bytes of a file to a screen, or to nobody."""
    if sys.stdout is None:
        raise UsageError("-o -: standard output is closed, results need a place. Send it to a file or a program.")
    if sys.stdout.isatty():
        raise UsageError("-o -: standard output is a terminal, results are bytes. Send it to a file or a program.")


def write_stdout(content: bytes) -> None:
    """Write the bytes of one result."""
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
