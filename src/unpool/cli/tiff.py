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

from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.bounds import check_pixels, pillow_unlimited
from unpool.cli.picture import Picture
from unpool.cli.tiff_segments import check_segments
from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.runtime.streams.opened import BATCH, pages_advice
from unpool.runtime.streams.source import read_errors
from unpool.runtime.streams.tiff_pages import check_pages

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
        channels: pages count as channels when there are exactly as many; None: never.
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
        channels: pages count as channels when there are exactly as many; None: never.
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
        sizes = "x".join(str(size) for size in pixels.shape)
        raise ShapeError(f"{where}: expected {expected}, got {sizes} pixels with axes {axes}. {pages_advice(role)}")
    order = [axes.index(letter) for letter in (*batch, *pages, "Y", "X", *colour)]
    arranged = pixels.transpose(order)
    arranged = arranged if colour else arranged[..., None]
    return arranged[None] if role == BATCH and not batch else arranged


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Pixels (..., H, W, C) as they are to be looked at.

    Source: TIFF 6.0 and Exif 3.0, tag 274: which sides of the picture the first row and the first column are.

    >>> upright(np.array([[[1], [2], [3]]]), 6)[..., 0].tolist()
    [[1], [2], [3]]
    """
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, -3, -2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[..., ::-1, :]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[..., ::-1, :, :]
    return pixels


def _only_series(file: Any, where: str) -> Any:
    """The first series; smaller copies behind it are left out, other pictures are an error."""
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
    return Picture(_with_alpha(pixels, page, where), _white(pixels, bits, page))


def _white(pixels: NDArray[Any], bits: int, page: Any) -> float | None:
    if pixels.dtype.kind != "u" or bits > MOST_BITS:
        return None
    full = 2**bits - 1
    said = _number(page, MAX_SAMPLE, full)
    fewer_bits = SMALLEST_WHITE <= said < full and (said + 1).bit_count() == 1 and page.photometric != MIN_IS_WHITE
    return said if fewer_bits and pixels.max(initial=0) <= said else full


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
    """Whether the colours are of a kind that Pillow turns into RGB; others than those and ours are refused."""
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
