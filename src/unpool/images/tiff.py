"""TIFF file -> a picture: pages and channels in order, turned upright, palettes and light as the file says.

    photometric   MINISBLACK, RGB as they are · MINISWHITE turned round · PALETTE looked up · CMYK as RGB
                  YCbCr by Pillow, of a volume in JPEG by imagecodecs · others refused
    compression   none, deflate and PackBits by tifffile · LZW, JPEG, Zstandard, LZMA by imagecodecs where it is
                  installed · of flat pictures, what these do not read by Pillow
    orientation   all eight; pages that differ are refused
    white         all bits set, up to 16 bits; fewer bits where MaxSampleValue says so; else unknown
    alpha         not multiplied into the colours, or opaque; else refused

What a file does not say is not guessed.
"""

import weakref
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.images.axes import Array, AxisMapping, Shape, Slices, channel_axis, spatial_axes
from unpool.images.checks import check_pixels, pillow_unlimited, read_errors
from unpool.images.fingerprint import fingerprint_file
from unpool.images.pixels import Picture, upright
from unpool.images.source import BATCH, OpenOptions, TiledSource, pages_advice
from unpool.images.tiff_checks import check_decoding, check_pages, check_segments

PACKAGES = ("tifffile", "zarr", "numcodecs")
ORIENTATION, MAX_SAMPLE, INK_SET = 274, 281, 332
MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE, SEPARATED, YCBCR = 0, 1, 2, 3, 5, 6
CMYK, JPEG = 1, 7
ASSOCIATED = 1
SMALLEST_WHITE, WHITEST, MOST_BITS = 255, 65535, 16


def read_tiff(
    stream: BinaryIO, size: int, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """The picture of a TIFF file.

    Args:
        stream: the file, at its beginning.
        size: bytes of the file.
        where: what an error message begins with.
        spatial_rank: 2, or 3 for one page per slice.
        channels: pages count as channels if this is their number; None: never.
        pages: BATCH where pages are those of a batch.

    Raises:
        FileError: not a TIFF file, or it is broken, or its compression is unknown.
        ShapeError: a volume was expected and a picture came, or the other way round; or it is larger than the memory.
        UnsupportedError: pixels whose meaning would be guessed.
    """
    import tifffile

    with read_errors(where, "a TIFF image"), tifffile.TiffFile(stream) as file:
        check_pages(file, stream, size, where)
        series = _only_series(file, where)
        page = series.keyframe
        if _is_for_pillow(page, spatial_rank, where):
            return _read_with_pillow(stream, spatial_rank, where)
        check_segments(series, stream, size, where)
        check_pixels(series.shape, series.dtype.itemsize, where)
        orientation = _orientation(series, where)
        try:
            raw = series.asarray()
        except (ValueError, ImportError) as error:  # how tifffile says that it cannot decompress
            return _decompressed(stream, page, spatial_rank, where, error)
        pixels = arrange(raw, series.axes, spatial_rank, channels, where, pages)
        return replace(_lit(upright(pixels, orientation), page, where), is_batch=pages == BATCH)


def arrange(
    pixels: NDArray[Any], axes: str, spatial_rank: int, channels: int | None, where: str, role: str | None = None
) -> NDArray[Any]:
    """Move the axes of a TIFF series to (H, W, C) or (D, H, W, C), or to (N, H, W, C) or (N, D, H, W, C).

    Args:
        pixels: the series.
        axes: one letter per axis as tifffile names them: Y, X, S or C for channels, others for pages.
        spatial_rank: 2 or 3.
        channels: pages count as channels if this is their number; None: never.
        where: what the error message begins with.
        role: BATCH where pages, the first axis of them, are those of a batch; one page is a batch of one.

    >>> arrange(np.zeros((3, 5, 7)), "CYX", 2, 3, "a.tif").shape
    (5, 7, 3)
    >>> arrange(np.zeros((4, 5, 7, 3)), "QYXS", 2, 3, "a.tif", BATCH).shape
    (4, 5, 7, 3)
    >>> arrange(np.zeros((9, 5, 7)), "QYX", 3, 1, "a.tif").shape
    (9, 5, 7, 1)
    """
    pages = [letter for letter in axes if letter not in "YXSC"]
    colour = [letter for letter in axes if letter in "SC"]
    batch = pages[:1] if role == BATCH and len(pages) >= spatial_rank - 1 else []
    pages = pages[len(batch) :]
    if (
        role != BATCH
        and spatial_rank == 2
        and len(pages) == 1
        and not colour
        and pixels.shape[axes.index(pages[0])] == channels
    ):
        pages, colour = [], pages
    fits = "Y" in axes and "X" in axes and len(pages) == spatial_rank - 2 and len(colour) <= 1
    if not fits:
        expected = "a flat picture" if spatial_rank == 2 else "a volume, one page per slice"
        raise ShapeError(
            f"{where}: expected {expected}, got {format_shape(pixels.shape)} pixels with axes {axes}. "
            f"{pages_advice(role)}"
        )
    order = [axes.index(letter) for letter in (*batch, *pages, "Y", "X", *colour)]
    arranged = pixels.transpose(order)
    arranged = arranged if colour else arranged[..., None]
    return arranged[None] if role == BATCH and not batch else arranged


def _only_series(file: Any, where: str) -> Any:
    """The first series; smaller copies after it are skipped, other pictures are an error."""
    whole = [series for series in file.series if not series.keyframe.is_reduced]
    if len(whole) > 1:
        raise ShapeError(f"{where}: expected pages of one size and type, got {len(whole)} kinds. Split the pages.")
    return whole[0] if whole else file.series[0]


def _orientation(series: Any, where: str) -> int:
    """That of the pages that state one: writers of volumes leave it to the first."""
    found = {_number(page.aspage(), ORIENTATION, 0) for page in series.pages if page is not None} - {0}
    if len(found) > 1:
        raise UnsupportedError(f"{where}: expected pages of one orientation, got {sorted(found)}. Turn them first.")
    return found.pop() if found else 1


def _number(page: Any, tag: int, otherwise: int) -> int:
    value = page.tags.valueof(tag, default=otherwise)
    return int(value[0] if isinstance(value, tuple) else value)


def _word(value: Any) -> str:
    """The name of a value of a tag, or its number where tifffile knows no name."""
    return str(getattr(value, "name", value))


def _lit(pixels: NDArray[Any], page: Any, where: str) -> Picture:
    """Pixels (..., C) with the meaning that the file gives them."""
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    if pixels.dtype.kind not in "uifb" or not isinstance(page.bitspersample, int):
        raise UnsupportedError(
            f"{where}: expected integers or floats of one size, got {page.dtype} of {page.bitspersample} bits. "
            "Convert the image first."
        )
    bits = page.bitspersample
    if pixels.dtype.kind == "b":
        pixels, bits = pixels.astype(np.uint8) * np.uint8(255), 8
    if page.photometric == PALETTE:
        return _looked_up(pixels, page, where)
    if page.photometric == SEPARATED:
        return _from_inks(pixels, page, where)
    if page.photometric == MIN_IS_WHITE:
        if pixels.dtype.kind != "u":
            raise UnsupportedError(f"{where}: 0 is white, of {page.dtype} it is not known what is black. Convert it.")
        pixels = pixels.dtype.type(2**bits - 1) - pixels
    white = _white_level(pixels.dtype, bits, page)
    if white is not None and pixels.max(initial=0) > white:
        white = 2**bits - 1
    return Picture(_with_alpha(pixels, page, where), white)


def _white_level(dtype: np.dtype[Any], bits: int, page: Any) -> float | None:
    """The value of white: all bits set, or fewer where MaxSampleValue says so; None where it is unknown."""
    if dtype.kind != "u" or bits > MOST_BITS:
        return None
    full = 2**bits - 1
    stated = _number(page, MAX_SAMPLE, full)
    has_fewer_bits = SMALLEST_WHITE <= stated < full and (stated + 1).bit_count() == 1
    return stated if has_fewer_bits and page.photometric != MIN_IS_WHITE else full


def _with_alpha(pixels: NDArray[Any], page: Any, where: str) -> NDArray[Any]:
    """Grey with alpha as colours with alpha; alpha that is multiplied into the colours only where it does nothing."""
    kinds = [int(kind) for kind in page.extrasamples]
    if ASSOCIATED in kinds and (pixels[..., -1] != _largest(pixels, page)).any():
        raise UnsupportedError(
            f"{where}: its colours are multiplied by their alpha. Flatten the image, or save it without alpha."
        )
    has_alpha = len(kinds) == 1 and kinds[0] != 0
    is_grey = page.photometric in (MIN_IS_WHITE, MIN_IS_BLACK) and has_alpha and pixels.shape[-1] == 2
    if not is_grey:
        return pixels
    grey, alpha = pixels[..., :1], pixels[..., 1:]
    return np.concatenate([grey, grey, grey, alpha], axis=-1)


def _largest(pixels: NDArray[Any], page: Any) -> float:
    return float(2**page.bitspersample - 1) if pixels.dtype.kind == "u" else 1.0


def _looked_up(pixels: NDArray[Any], page: Any, where: str) -> Picture:
    """Colours of a palette, as 8-bit ones where they are: writers multiply these by 257, or by 256, or not at all."""
    if pixels.shape[-1] != 1 or page.colormap is None:
        raise UnsupportedError(f"{where}: expected one palette index per pixel, got other samples. Convert it to RGB.")
    colours = np.asarray(page.colormap).T
    for step in (257, 256):
        if not (colours % step).any():
            return Picture((colours // step).astype(np.uint8)[pixels[..., 0]], 255)
    if colours.max() <= 255:
        return Picture(colours.astype(np.uint8)[pixels[..., 0]], 255)
    return Picture(colours[pixels[..., 0]], 65535)


def _from_inks(pixels: NDArray[Any], page: Any, where: str) -> Picture:
    """RGB of cyan, magenta, yellow and black inks: what two inks let through is the product."""
    if pixels.dtype.kind != "u" or pixels.shape[-1] != 4:
        raise UnsupportedError(
            f"{where}: expected 4 inks of whole numbers, got {pixels.shape[-1]} samples of {page.dtype}. "
            "Convert the image to RGB first."
        )
    full = np.iinfo(pixels.dtype).max
    light = (full - pixels).astype(np.float64)
    colours = np.rint(light[..., :3] * light[..., 3:] / full)
    return Picture(colours.astype(pixels.dtype), full if full <= WHITEST else None)


def _is_for_pillow(page: Any, spatial_rank: int, where: str) -> bool:
    """True for colours that Pillow converts to RGB; colours that neither reads are an error."""
    kind = int(page.photometric)
    is_inks = kind == SEPARATED and _number(page, INK_SET, CMYK) == CMYK
    is_jpeg = int(page.compression) == JPEG
    if kind in (MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE) or (is_inks and not is_jpeg):
        return False
    if (kind == YCBCR or is_inks) and page.bitspersample == 8:
        return is_inks or spatial_rank == 2 or not is_jpeg
    raise UnsupportedError(
        f"{where}: its colours are {_word(page.photometric)} of {page.bitspersample} bits, which are not read. "
        "Convert the image to RGB first."
    )


def _decompressed(stream: BinaryIO, page: Any, spatial_rank: int, where: str, error: Exception) -> Picture:
    """Pillow knows more compressions, and cuts deep colours to 8 bits: it gets what has no more."""
    is_shallow = page.bitspersample in (1, 2, 4, 8)
    is_deep_grey = page.bitspersample == 16 and page.photometric == MIN_IS_BLACK and page.samplesperpixel == 1
    is_whole = ASSOCIATED not in [int(kind) for kind in page.extrasamples]
    if spatial_rank == 2 and is_whole and page.dtype.kind in "ub" and (is_shallow or is_deep_grey):
        return _read_with_pillow(stream, spatial_rank, where)
    require(f"{where}, compressed by {_word(page.compression)}", "formats", "imagecodecs")
    raise FileError(
        f"{where}: expected a compression that tifffile reads, got {_word(page.compression)} ({error}). "
        "Save the image with deflate or without compression."
    ) from error


def _read_with_pillow(stream: BinaryIO, spatial_rank: int, where: str) -> Picture:
    from PIL import Image, ImageOps

    stream.seek(0)
    with pillow_unlimited(), Image.open(stream, formats=("TIFF",)) as image:
        if spatial_rank != 2 or getattr(image, "n_frames", 1) > 1:
            raise ShapeError(f"{where}: expected one flat picture, in this compression and these colours. Convert it.")
        check_pixels((*image.size[::-1], 4), 1, where)
        image.load()
        turned = ImageOps.exif_transpose(image)
        is_plain = turned.mode in ("L", "RGB", "RGBA") or turned.mode.startswith("I;16")
        wanted = "RGBA" if "A" in turned.mode else "L" if turned.mode == "1" else "RGB"
        pixels = np.asarray(turned if is_plain else turned.convert(wanted))
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    return Picture(pixels[..., None] if pixels.ndim == 2 else pixels, 65535 if pixels.dtype == np.uint16 else 255)


def open_tiff(path: Path, wanted: OpenOptions) -> TiledSource:
    """A TIFF file to read.

    Raises:
        FileError: not such a file, or it has no such level.
        ShapeError: its axes are not those of the tensor.
        UnsupportedError: its pixels have to be changed to be seen as they are meant.
        MissingExtraError: zarr is not installed, or imagecodecs, which the compression needs.
    """
    require(str(path), "formats", *PACKAGES)
    import tifffile
    import zarr

    with ExitStack() as opened, read_errors(str(path), "a TIFF image"):
        file = opened.enter_context(tifffile.TiffFile(path))
        check_pages(file, file.filehandle, file.filehandle.size, str(path))
        series = _level_series(file, path, wanted.level)
        page = series.levels[wanted.level].keyframe
        _refuse_changed(page, path)
        _require_decoder(page, path)
        check_decoding(page, str(path))
        array: Any = zarr.open_array(series.aszarr(level=wanted.level), mode="r")
        arrangement = _axis_mapping(series.axes, array.shape, wanted, str(path))
        read = _by_windows(array) if page.is_tiled else _by_bands(array, series.axes.index("Y"))
        weakref.finalize(read, opened.pop_all().close)
    return TiledSource(
        path,
        array.shape,
        page.dtype,
        arrangement,
        read,
        lambda: fingerprint_file(path),
        white_level=_white_level(page.dtype, page.bitspersample, page) if isinstance(page.bitspersample, int) else None,
    )


def _level_series(file: Any, path: Path, level: int) -> Any:
    found = [one for one in file.series if not one.keyframe.is_reduced] or file.series[:1]
    levels = len(found[0].levels)
    if level >= levels:
        raise FileError(f"{path}: expected a level from 0 to {levels - 1}, got {level}. Choose one of them.")
    return found[0]


def _refuse_changed(page: Any, path: Path) -> None:
    kind, turned = int(page.photometric), page.tags.valueof(ORIENTATION, default=1)
    is_plain = kind in (MIN_IS_BLACK, RGB) or (kind == YCBCR and page.bitspersample == 8)
    extras = [int(one) for one in page.extrasamples]
    if not is_plain or turned != 1 or ASSOCIATED in extras or page.dtype is None or page.dtype.kind not in "uif":
        raise UnsupportedError(
            f"{path}: expected upright pixels in grey or RGB to be read in parts, got {page.photometric.name}, "
            f"{page.dtype}, orientation {turned}, {len(extras)} extra samples. Convert the image, or run it whole."
        )


def _require_decoder(page: Any, path: Path) -> None:
    """Refuse a compression that tifffile cannot undo here; a segment that is not in the file is decoded for that."""
    try:
        page.decode(None, 0)
    except (ValueError, ImportError) as error:
        compression = getattr(page.compression, "name", page.compression)
        require(f"{path}, compressed by {compression}", "formats", "imagecodecs")
        raise FileError(
            f"{path}: expected a compression that tifffile reads, got {compression} ({error}). "
            "Save the image with deflate or without compression."
        ) from error


def _axis_mapping(axes: str, stored: Shape, wanted: OpenOptions, where: str) -> AxisMapping:
    """Y, X are the last axes of space; S or C are channels; one axis of pages is depth, or channels where they fit."""
    spatial = spatial_axes(wanted.rank, wanted.layout)
    places = {"Y": spatial[-2], "X": spatial[-1]} if len(spatial) >= 2 else {}
    channel = channel_axis(wanted.rank, wanted.layout)
    places |= dict.fromkeys("SC", channel)
    if wanted.pages == BATCH:
        places |= dict.fromkeys([letter for letter in axes if letter not in places][:1], 0)
    for letter, size in zip(axes, stored, strict=True):
        if letter not in places:
            is_depth = len(spatial) == 3
            places[letter] = spatial[0] if is_depth else channel if size == wanted.channels else -1
    found = tuple(places[letter] for letter in axes)
    if -1 in found or len(set(found)) < len(found) or not set("YX") <= set(axes):
        raise ShapeError(
            f"{where}: expected an image of {len(spatial)} axes of space, got {format_shape(stored)} pixels with "
            f"axes {axes}. {pages_advice(wanted.pages)}"
        )
    return AxisMapping(found, wanted.rank)


def _by_windows(array: Any) -> Any:
    def read(slices: Slices) -> Array:
        return np.asarray(array[slices])

    return read


def _by_bands(array: Any, vertical: int) -> Any:
    """A reader of strips of the full width, which are kept for the next window of the same rows."""
    kept: dict[tuple[tuple[int, int], ...], Array] = {}

    def read(slices: Slices) -> Array:
        rows = slices[vertical]
        outer = slices[: vertical + 1]
        key = tuple((part.start, part.stop) for part in outer)
        if key not in kept:
            kept.clear()
            kept[key] = np.asarray(array[(*outer, *(slice(None) for _ in slices[vertical + 1 :]))])
        inner = (*(slice(None) for _ in slices[:vertical]), slice(0, rows.stop - rows.start))
        return kept[key][(*inner, *slices[vertical + 1 :])]

    return read
