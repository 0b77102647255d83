"""Results -> files: every file is written beside its place and moved there when all of them are complete."""

import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.cli.model import BFLOAT16, sizes
from unpool.errors import FileError, MissingFileError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

PICTURE_FORMATS = ("png", "tif")
ARRAY_FORMATS = ("npy", "npz")
SUFFIXES = {".npy": "npy", ".npz": "npz", ".png": "png", ".tif": "tif", ".tiff": "tif"}

_log = logging.getLogger("unpool.cli")


class Staging:
    """Files that appear together: written under temporary names, renamed on success, removed on any error."""

    def __init__(self, folder: Path, may_create: bool) -> None:
        """`folder`: where the files go; `may_create`: make it (not its parents) when it is missing."""
        home = folder.parent if may_create else folder
        if not home.is_dir():
            raise MissingFileError(f"{home}: no such folder for the output. Make it first.")
        self._folder = folder
        self._is_new = not folder.exists()
        self._staged: list[tuple[Path, Path]] = []

    def __enter__(self) -> "Staging":
        self._folder.mkdir(exist_ok=True)
        return self

    def open(self, target: Path) -> BinaryIO:
        """A stream for the file that will be `target`."""
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            stream = temporary.open("x+b")
        except OSError as error:
            raise FileError(f"{target}: cannot be written ({error.strerror}). Choose another place.") from error
        self._staged.append((temporary, target))
        return stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for temporary, target in self._staged:
                os.replace(temporary, target)
            return
        for temporary, _ in self._staged:
            temporary.unlink(missing_ok=True)
        if self._is_new:
            self._folder.rmdir()


def targets(output: Path, stems: Sequence[str], suffix: str) -> dict[str, Path]:
    """Result name -> file: `output` itself, or one file per result when it is a folder or has no suffix.

    Raises:
        UsageError: several results for one file, or a suffix that is not written.

    >>> {stem: path.name for stem, path in targets(Path("masks"), ["a", "b"], "png").items()}
    {'a': 'a.png', 'b': 'b.png'}
    """
    if is_folder(output):
        return {stem: output / f"{stem}.{suffix}" for stem in stems}
    format_of(output)
    if len(stems) > 1:
        raise UsageError(
            f"-o {output}: {len(stems)} results need a folder, got a file name. Give a folder and --format."
        )
    return {stems[0]: output}


def refuse_stdout(output: Path) -> None:
    """Refuse `-`: results are files that appear when they are complete."""
    if str(output) == "-":
        raise UsageError("-o -: results go into files, not to standard output. Name a file or folder.")


def is_folder(output: Path) -> bool:
    """Whether results go into this path as a folder: it is one, or it is free and has no suffix."""
    return output.is_dir() or (not output.suffix and not output.exists())


def format_of(path: Path) -> str:
    """npy, npz, png or tif."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise UsageError(f"-o {path}: expected .npy, .npz, .png, .tif or a folder, got {path.suffix!r}.") from None


def write_arrays(stream: BinaryIO, form: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write all arrays (npz), or the only one (npy)."""
    if form == "npy":
        (array,) = arrays.values()
        np.save(stream, array, allow_pickle=False)
    else:
        np.savez(stream, allow_pickle=False, **arrays)


def write_picture(stream: BinaryIO, form: str, picture: "Image.Image") -> None:
    """Write a ready picture as .png or .tif."""
    if form == "png":
        picture.save(stream, format="PNG")
    else:
        import tifffile

        pixels = np.asarray(picture)
        tifffile.imwrite(stream, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack", compression="zlib")


def write_planes(stream: BinaryIO, form: str, pixels: NDArray[Any], where: str) -> None:
    """Write one image or volume given with channels last: (H, W, C) or (D, H, W, C), or without C.

    Raises:
        ShapeError: the shape is not one of these, or .png cannot hold it.
        UnsupportedError: the type is not one that the format holds; nothing is rescaled or clipped.
    """
    if form == "png":
        write_picture(stream, form, _png(pixels, where))
        return
    import tifffile

    is_colour = pixels.ndim >= 3 and pixels.shape[-1] in (3, 4) and pixels.dtype in (np.uint8, np.uint16)
    if is_colour:
        tifffile.imwrite(stream, pixels, photometric="rgb", compression="zlib")
        return
    pages = (
        np.moveaxis(pixels, -1, 0) if pixels.ndim >= 3 and pixels.shape[-1] != 1 else pixels.reshape(pixels.shape[:-1])
    )
    tifffile.imwrite(stream, np.ascontiguousarray(pages), photometric="minisblack", compression="zlib")


def _png(pixels: NDArray[Any], where: str) -> "Image.Image":
    from PIL import Image

    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3, 4):
        raise ShapeError(
            f"{where}: .png holds a flat picture of 1, 3 or 4 channels, got {sizes(pixels.shape)}. Write .tif or .npy."
        )
    plane = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    if plane.dtype == np.uint8 or (plane.dtype == np.uint16 and plane.ndim == 2):
        return Image.fromarray(np.ascontiguousarray(plane))
    raise UnsupportedError(
        f"{where}: .png holds uint8, or uint16 grey, got {plane.dtype}. Write .tif or .npy, or add --argmax."
    )


def writable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a type that files hold: bfloat16 is widened to float32, which is exact."""
    if array.dtype == BFLOAT16:
        _log.info("%s: bfloat16 is written as float32, value for value", name)
        return array.astype(np.float32)
    return array
