"""Results -> the content of files."""

import logging
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.display import format_shape
from unpool.errors import ShapeError, UnsupportedError
from unpool.images.overlay import BAND
from unpool.images.raster import Sheet, write_png

if TYPE_CHECKING:
    from PIL import Image

PICTURE_FORMATS = ("png", "jpg", "tif")
FLAT_FORMATS = ("png", "jpg")
QUALITY = 90
"""Of .jpg, unless it is said."""
LONGEST_JPEG = 65535
"""Pixels of a side."""
TILE = 256
"""Pixels of a row that a tile of a .tif has."""
VOLUME_FORMATS = ("nii", "nii.gz")
ARRAY_FORMATS = ("npy", "npz")
WINDOW_FORMATS = ("npy", "tif", "zarr", "nii")

_log = logging.getLogger("unpool.cli")


def write_arrays(stream: BinaryIO, form: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write all arrays, whose names are those of the members (npz), or the only one (npy)."""
    if form == "npy":
        (array,) = arrays.values()
        np.save(stream, array, allow_pickle=False)
        return
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_picture(stream: BinaryIO, form: str, picture: "Image.Image") -> None:
    """Write a ready picture as .png or .tif."""
    if form == "png":
        picture.save(stream, format="PNG")
    else:
        import tifffile

        pixels = np.asarray(picture)
        tifffile.imwrite(stream, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack", compression="zlib")


def write_pages(stream: BinaryIO, form: str, pages: Iterable[tuple[Sheet, Iterable[NDArray[Any]]]]) -> None:
    """Write pictures as the pages of a .tif, or the only one in any format; each as `write_rows` does."""
    if form != "tif":
        ((sheet, bands),) = pages
        write_rows(stream, form, sheet, bands)
        return
    import tifffile

    with tifffile.TiffWriter(stream) as file:
        for sheet, bands in pages:
            _write_page(file, sheet, bands)


def write_rows(
    stream: BinaryIO, form: str, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int = QUALITY
) -> None:
    """Write a flat picture row by row; only .jpg holds it, in 4 bytes per pixel.

    Args:
        stream: an open file.
        form: png, jpg or tif.
        sheet: the size and kind of the picture.
        bands: its rows from top to bottom, (rows, width) or (rows, width, channels).
        quality: of .jpg, 1 to 100.
    """
    if form == "png":
        write_png(stream, sheet, bands)
    elif form == "jpg":
        _write_jpeg(stream, sheet, bands, quality)
    else:
        import tifffile

        with tifffile.TiffWriter(stream) as file:
            _write_page(file, sheet, bands)


def _write_page(file: Any, sheet: Sheet, bands: Iterable[NDArray[Any]]) -> None:
    rows = max(16, min(TILE, BAND // sheet.width // 16 * 16))
    file.write(
        _tiles(_regrouped(bands, rows), rows),
        shape=(sheet.height, sheet.width, *((sheet.channels,) if sheet.channels > 1 else ())),
        dtype=np.uint16 if sheet.depth == 16 else np.uint8,
        photometric="rgb" if sheet.channels > 1 else "minisblack",
        compression="zlib",
        tile=(rows, TILE),
        maxworkers=1,
        metadata=None,
    )


def _write_jpeg(stream: BinaryIO, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int) -> None:
    from PIL import Image

    if max(sheet.height, sheet.width) > LONGEST_JPEG:
        raise ShapeError(
            f".jpg: holds {LONGEST_JPEG} pixels along a side, got {sheet.height}x{sheet.width}. Write .png or .tif."
        )
    picture, top = Image.new("L" if sheet.channels == 1 else "RGB", (sheet.width, sheet.height)), 0
    for band in bands:
        picture.paste(Image.fromarray(np.ascontiguousarray(band)), (0, top))
        top += len(band)
    picture.save(stream, format="JPEG", quality=quality)


def _regrouped(bands: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """The same rows, so many at a time; fewer at the end."""
    held: list[NDArray[Any]] = []
    for band in bands:
        held.append(band)
        while sum(map(len, held)) >= rows:
            joined = np.concatenate(held) if len(held) > 1 else held[0]
            yield joined[:rows]
            held = [joined[rows:]] if len(joined) > rows else []
    if held:
        yield np.concatenate(held)


def _tiles(bands: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Tiles of a .tif, filled up with zeros at its ends."""
    for band in bands:
        for left in range(0, band.shape[1], TILE):
            piece = band[:, left : left + TILE]
            missing = ((0, rows - piece.shape[0]), (0, TILE - piece.shape[1]), *((0, 0),) * (band.ndim - 2))
            yield np.ascontiguousarray(np.pad(piece, missing))


def write_planes(stream: BinaryIO, form: str, pixels: NDArray[Any], where: str) -> None:
    """Write one image or volume given with channels last: (H, W, C) or (D, H, W, C), or without C.

    Raises:
        ShapeError: the shape is not one of these, or .png cannot hold it.
        UnsupportedError: the type is not one that the format holds; nothing is rescaled or clipped.
    """
    if form in FLAT_FORMATS:
        sheet = sheet_of(pixels.shape, pixels.dtype, form, where)
        write_rows(stream, form, sheet, [pixels[..., 0] if sheet.channels == 1 else pixels])
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


def sheet_of(shape: tuple[int, ...], dtype: np.dtype[Any], form: str, where: str) -> Sheet:
    """The size and kind of a picture of pixels (H, W, C).

    Raises:
        ShapeError, UnsupportedError: .png or .jpg does not hold them.
    """
    channels = (1, 3, 4) if form == "png" else (1, 3)
    if len(shape) != 3 or shape[-1] not in channels or not min(shape):
        counts = "1, 3 or 4" if form == "png" else "1 or 3"
        raise ShapeError(
            f"{where}: .{form} holds a flat picture of {counts} channels, got {format_shape(shape)}. "
            "Write .tif or .npy."
        )
    if dtype == np.uint8 or (form == "png" and dtype == np.uint16 and shape[-1] == 1):
        return Sheet(*shape, depth=8 * dtype.itemsize)
    kinds = "uint8, or uint16 grey" if form == "png" else "uint8"
    raise UnsupportedError(f"{where}: .{form} holds {kinds}, got {dtype}. Write .tif or .npy, or add --argmax.")


def check_kind(name: str, kind: str, form: str) -> None:
    """Refuse what no file of this format can hold, before the model runs.

    Args:
        name: of an output.
        kind: its type in the words of a session.
        form: of the file.
    """
    if kind.startswith("tensor("):
        if kind == "tensor(string)" and form not in ARRAY_FORMATS:
            raise UsageError(f"output {name!r} holds texts: .{form} is for numbers. Write .npy or .npz.")
    elif kind.startswith("seq(tensor("):
        if form != "npz":
            raise UsageError(f"output {name!r} is a sequence of tensors: one .{form} holds one. Write .npz.")
    else:
        raise UnsupportedError(
            f"output {name!r} is {kind}: files hold tensors and sequences of tensors. "
            "Choose another with --output-name, or use unpool.InferenceSession."
        )


def elements(outputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Outputs by name, an element of a sequence as `name.0`, `name.1`, ...

    >>> sorted(elements({"y": np.zeros(2), "s": [np.zeros(3), np.zeros(4)]}))
    ['s.0', 's.1', 'y']
    """
    found: dict[str, NDArray[Any]] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            digits = len(str(len(value) - 1))
            found |= {_unused(f"{name}.{at:0{digits}}", {*outputs, *found}): one for at, one in enumerate(value)}
        else:
            found[name] = value
    return found


def _unused(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name


def writable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a type that files hold, value for value: texts of one length, small types of ONNX in wider ones.

    Raises:
        UnsupportedError: a text ends in NUL, which files of NumPy do not keep.
    """
    array = np.asarray(array)
    if array.dtype == object:
        if any(str(one).endswith("\0") for one in array.ravel()):
            raise UnsupportedError(
                f"{name}: a text ends in NUL, which .npy does not keep. Use unpool.InferenceSession."
            )
        return array.astype(np.str_)
    wide = _wider(array.dtype)
    if wide is None:
        return array
    _log.info("%s: %s is written as %s, value for value", name, array.dtype, wide)
    return array.astype(wide)


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """NumPy's type for one of ml_dtypes', which files would not name; None for NumPy's own."""
    if dtype.type.__module__ != ml_dtypes.bfloat16.__module__:
        return None
    try:
        limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return np.dtype(np.float32)
    return np.dtype(np.int8 if limits.min < 0 else np.uint8)
