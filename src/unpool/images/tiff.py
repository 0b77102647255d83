"""TIFF files: read in one piece as pictures, upright and in the colours that the file states, or in windows.

    photometric   MINISBLACK, RGB as they are · MINISWHITE inverted · PALETTE looked up · CMYK as RGB
                  YCbCr by Pillow, of a volume in JPEG by imagecodecs · others refused
    compression   none, deflate and PackBits by tifffile · LZW, JPEG, Zstandard, LZMA by imagecodecs where it is
                  installed · flat pictures with another one by Pillow
    orientation   all eight; pages that differ are refused
    white         all bits set, up to 16 bits; fewer bits where MaxSampleValue says so; else unknown
    alpha         not multiplied into the colours, or opaque; else refused

Nothing is guessed that a file does not say. Page directories are checked before tifffile follows them, and segments (a
strip or a tile each) before they are unpacked.
"""

import struct
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.images.axes import Array, AxisMapping, Shape, Slices, channel_axis, full_slices, spatial_axes
from unpool.images.checks import REPLACE, check_claim, check_pixels, pillow_unlimited, read_errors
from unpool.images.pixels import DecodingBytes, Picture, upright
from unpool.images.raster import from_pillow
from unpool.images.source import BATCH, OpenOptions, TiledSource, fingerprint_file
from unpool.images.tiff_segments import SegmentReader
from unpool.memory import check_bytes

ORIENTATION, MAX_SAMPLE, INK_SET = 274, 281, 332
MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE, SEPARATED, YCBCR = 0, 1, 2, 3, 5, 6
CMYK, JPEG = 1, 7
DEFLATE_LIKE = (1, 5, 8, 32773, 32946)
"""None, LZW, deflate, PackBits, and deflate by its older number: none unpacks to more than deflate does, or by far."""
COMPRESSIONS = (*DEFLATE_LIKE, 2, 3, 4, JPEG, 34925, 50000)  # also the three of fax machines, JPEG, LZMA and Zstandard
ASSOCIATED = 1
DECODED = 16  # bytes per sample that Pillow takes at most
CONVERTED = {PALETTE: 12, SEPARATED: 24}  # bytes per sample that colours take on their way to RGB
MIN_WHITE, MAX_WHITE, MAX_WHITE_BITS = 255, 65535, 16
JPEG_BLOCK = 16  # pixels: JPEG pads to whole blocks
JPEG_HEAD = 2**20  # bytes of a segment in which the size of a JPEG has to stand


def read_tiff(
    stream: BinaryIO, size: int, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """The picture of a TIFF file of `size` bytes; `channels` and `pages` as in `arrange`."""
    import tifffile

    with read_errors(where, "a TIFF image"), tifffile.TiffFile(stream) as file:
        check_pages(file, stream, size, where)
        full_size = [series for series in file.series if not series.keyframe.is_reduced]
        if len(full_size) > 1:
            raise ShapeError(f"{where}: expected pages of one size and type, got {len(full_size)} kinds. Split them.")
        series = full_size[0] if full_size else file.series[0]
        page = series.keyframe
        if _is_for_pillow(page, spatial_rank, where):
            return _read_with_pillow(stream, spatial_rank, where)
        check_segments(series, stream, size, where)
        check_pixels(series.shape, series.dtype.itemsize, where)
        orientations = {_number(page.aspage(), ORIENTATION, 0) for page in series.pages if page is not None}
        stated = sorted(orientations - {0})  # writers of volumes leave it to the first page
        if len(stated) > 1:
            raise UnsupportedError(f"{where}: expected pages of one orientation, got {stated}. Turn them first.")
        try:
            raw = series.asarray()
        except (ValueError, ImportError) as error:  # how tifffile says that it cannot decompress
            return _decompress(stream, page, spatial_rank, where, error)
        pixels = arrange(raw, series.axes, spatial_rank, channels, where, pages)
        return replace(_interpret(upright(pixels, max(stated, default=1)), page, where), is_batch=pages == BATCH)


def decoding_bytes(stream: BinaryIO, _: str) -> DecodingBytes:
    """The sizes of the pages, of a page, and the memory that reading all of them takes at most."""
    import tifffile

    with tifffile.TiffFile(stream) as file:
        series = file.series[0]
        page, samples = series.keyframe, prod(series.shape)
        sizes: dict[str, int] = dict(zip(series.axes, series.shape, strict=True))
    channels = sizes.pop("S", 1) * sizes.pop("C", 1)
    spatial = (sizes.pop("Y", 1), sizes.pop("X", 1))
    spatial = spatial[::-1] if page.tags.valueof(ORIENTATION, default=1) >= 5 else spatial
    stored, kind = samples * series.dtype.itemsize, int(page.photometric)
    peak = 3 * stored + samples * CONVERTED.get(kind, 0)
    if kind == YCBCR or int(page.compression) == JPEG:
        peak += DECODED * samples
    held = stored * (6 if kind == PALETTE else 1)
    return DecodingBytes((*sizes.values(), *spatial), channels, peak, held)


def arrange(
    pixels: NDArray[Any], axes: str, spatial_rank: int, channels: int | None, where: str, role: str | None = None
) -> NDArray[Any]:
    """Move the axes of a TIFF series to (H, W, C) or (D, H, W, C), or to (N, H, W, C) or (N, D, H, W, C).

    `axes` has one letter per axis as tifffile names them: Y, X, S or C for channels, others for pages. Pages count as
    channels if `channels` is their number. With the role BATCH, their first axis is the batch; one page is one image.

    >>> arrange(np.zeros((3, 5, 7)), "CYX", 2, 3, "a.tif").shape
    (5, 7, 3)
    """
    pages = [letter for letter in axes if letter not in "YXSC"]
    colour = [letter for letter in axes if letter in "SC"]
    batch = pages[:1] if role == BATCH and len(pages) >= spatial_rank - 1 else []
    pages = pages[len(batch) :]
    may_be_channels = role != BATCH and spatial_rank == 2 and len(pages) == 1 and not colour
    if may_be_channels and pixels.shape[axes.index(pages[0])] == channels:
        pages, colour = [], pages
    if not set("YX") <= set(axes) or len(pages) != spatial_rank - 2 or len(colour) > 1:
        expected = "a flat picture" if spatial_rank == 2 else "a volume, one page per slice"
        text = f"{format_shape(pixels.shape)} pixels with axes {axes}. {_pages_advice(role)}"
        raise ShapeError(f"{where}: expected {expected}, got {text}")
    arranged = pixels.transpose([axes.index(letter) for letter in (*batch, *pages, "Y", "X", *colour)])
    arranged = arranged if colour else arranged[..., None]
    return arranged[None] if role == BATCH and not batch else arranged


def _pages_advice(pages: str | None) -> str:
    if pages == BATCH:
        return "Split the pages, or give a .npy."
    return "Take the pages as a batch (--pages batch), split them, or give a .npy."


def _number(page: Any, tag: int, default: int) -> int:
    value = page.tags.valueof(tag, default=default)
    return int(value[0] if isinstance(value, tuple) else value)


def _word(value: Any) -> str:
    """The name of a value of a tag, or its number where tifffile knows no name."""
    return str(getattr(value, "name", value))


def _interpret(pixels: NDArray[Any], page: Any, where: str) -> Picture:
    """Pixels (..., C) with the meaning that the file gives them."""
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    if pixels.dtype.kind not in "uifb" or not isinstance(page.bitspersample, int):
        kind = f"{page.dtype} of {page.bitspersample} bits"
        raise UnsupportedError(f"{where}: expected integers or floats of one size, got {kind}. Convert the image.")
    bits = page.bitspersample
    if pixels.dtype.kind == "b":
        pixels, bits = pixels.astype(np.uint8) * np.uint8(255), 8
    if page.photometric == PALETTE:
        return _look_up(pixels, page, where)
    if page.photometric == SEPARATED:
        return _from_inks(pixels, page, where)
    if page.photometric == MIN_IS_WHITE:
        if pixels.dtype.kind != "u":
            raise UnsupportedError(f"{where}: 0 is white, but {page.dtype} does not say what is black. Convert it.")
        pixels = pixels.dtype.type(2**bits - 1) - pixels
    white = _white_level(pixels.dtype, bits, page)
    if white is not None and pixels.max(initial=0) > white:
        white = 2**bits - 1
    return Picture(_with_alpha(pixels, page, where), white)


def _white_level(dtype: np.dtype[Any], bits: int, page: Any) -> float | None:
    """The value of white: all bits set, or fewer where MaxSampleValue says so; None where it is unknown."""
    if dtype.kind != "u" or bits > MAX_WHITE_BITS:
        return None
    full = 2**bits - 1
    stated = _number(page, MAX_SAMPLE, full)
    has_fewer_bits = MIN_WHITE <= stated < full and (stated + 1).bit_count() == 1
    return stated if has_fewer_bits and page.photometric != MIN_IS_WHITE else full


def _with_alpha(pixels: NDArray[Any], page: Any, where: str) -> NDArray[Any]:
    """Grey with alpha as colours with alpha; alpha that is multiplied into the colours only where it does nothing."""
    kinds = [int(kind) for kind in page.extrasamples]
    opaque = float(2**page.bitspersample - 1) if pixels.dtype.kind == "u" else 1.0
    if ASSOCIATED in kinds and (pixels[..., -1] != opaque).any():
        raise UnsupportedError(f"{where}: its colours are multiplied by their alpha. Save it without alpha.")
    has_alpha = len(kinds) == 1 and kinds[0] != 0
    if page.photometric in (MIN_IS_WHITE, MIN_IS_BLACK) and has_alpha and pixels.shape[-1] == 2:
        return pixels.take([0, 0, 0, 1], axis=-1)
    return pixels


def _look_up(pixels: NDArray[Any], page: Any, where: str) -> Picture:
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
    """RGB of cyan, magenta, yellow and black inks: the light that passes two inks is the product."""
    if pixels.dtype.kind != "u" or pixels.shape[-1] != 4:
        samples = f"{pixels.shape[-1]} samples of {page.dtype}"
        raise UnsupportedError(f"{where}: expected 4 inks of whole numbers, got {samples}. Convert the image to RGB.")
    full = np.iinfo(pixels.dtype).max
    light = (full - pixels).astype(np.float64)
    colours = np.rint(light[..., :3] * light[..., 3:] / full)
    return Picture(colours.astype(pixels.dtype), full if full <= MAX_WHITE else None)


def _is_for_pillow(page: Any, spatial_rank: int, where: str) -> bool:
    """True for colours that Pillow converts to RGB; colours that neither library reads are an error."""
    kind = int(page.photometric)
    is_inks = kind == SEPARATED and _number(page, INK_SET, CMYK) == CMYK
    is_jpeg = int(page.compression) == JPEG
    if kind in (MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE) or (is_inks and not is_jpeg):
        return False
    if (kind == YCBCR or is_inks) and page.bitspersample == 8:
        return is_inks or spatial_rank == 2 or not is_jpeg
    colours = f"{_word(page.photometric)} of {page.bitspersample} bits"
    raise UnsupportedError(f"{where}: its colours are {colours}, which are not read. Convert the image to RGB.")


def _decompress(stream: BinaryIO, page: Any, spatial_rank: int, where: str, error: Exception) -> Picture:
    """The picture by Pillow, which has more compressions but cuts deep colours to 8 bits: those are an error."""
    is_shallow = page.bitspersample in (1, 2, 4, 8)
    is_deep_grey = page.bitspersample == 16 and page.photometric == MIN_IS_BLACK and page.samplesperpixel == 1
    has_plain_colours = ASSOCIATED not in map(int, page.extrasamples)
    if spatial_rank == 2 and has_plain_colours and page.dtype.kind in "ub" and (is_shallow or is_deep_grey):
        return _read_with_pillow(stream, spatial_rank, where)
    raise _compression_error(page, where, error) from error


def _compression_error(page: Any, where: str, error: Exception) -> FileError:
    """The error for a compression that tifffile does not read; a MissingExtraError if imagecodecs is not installed."""
    compression = _word(page.compression)
    require(f"{where}, compressed by {compression}", "formats", "imagecodecs")
    return FileError(
        f"{where}: expected a compression that tifffile reads, got {compression} ({error}). "
        "Save the image with deflate or without compression."
    )


def _read_with_pillow(stream: BinaryIO, spatial_rank: int, where: str) -> Picture:
    from PIL import Image

    stream.seek(0)
    with pillow_unlimited(), Image.open(stream, formats=("TIFF",)) as image:
        if spatial_rank != 2 or getattr(image, "n_frames", 1) > 1:
            raise ShapeError(f"{where}: expected one flat picture, in this compression and these colours. Convert it.")
        check_pixels((*image.size[::-1], 4), 1, where)
        return from_pillow(image)


def open_tiff(path: Path, wanted: OpenOptions) -> TiledSource:
    """A TIFF file to read in windows; pixels that have to be changed to be seen as they are meant are refused."""
    require(str(path), "run", "tifffile")
    import tifffile

    with ExitStack() as stack, read_errors(str(path), "a TIFF image"):
        file = stack.enter_context(tifffile.TiffFile(path))
        check_pages(file, file.filehandle, file.filehandle.size, str(path))
        series = next((series for series in file.series if not series.keyframe.is_reduced), file.series[0])
        if wanted.level >= len(series.levels):
            last = len(series.levels) - 1
            raise FileError(f"{path}: expected a level from 0 to {last}, got {wanted.level}. Choose one of them.")
        page: Any = series.levels[wanted.level].keyframe
        kind, orientation = int(page.photometric), page.tags.valueof(ORIENTATION, default=1)
        is_plain = kind in (MIN_IS_BLACK, RGB) or (kind == YCBCR and page.bitspersample == 8)
        extras = [int(extra) for extra in page.extrasamples]
        is_number = page.dtype is not None and page.dtype.kind in "uif"
        if not is_plain or orientation != 1 or ASSOCIATED in extras or not is_number:
            pixels = f"{page.photometric.name}, {page.dtype}, orientation {orientation}, {len(extras)} extra samples"
            raise UnsupportedError(f"{path}: only upright grey or RGB is read in parts, got {pixels}. Run it whole.")
        try:
            page.decode(None, 0)  # a segment that is not in the file, to see if its compression is known
        except (ValueError, ImportError) as error:
            raise _compression_error(page, str(path), error) from error
        check_decoding(page, str(path))
        level = series.levels[wanted.level]
        segments = SegmentReader(level)
        arrangement = _axis_mapping(level.axes, segments.shape, wanted, str(path))
        read = _window_reader(segments, None if page.is_tiled else level.axes.index("Y"))
        weakref.finalize(read, stack.pop_all().close)
    white = _white_level(page.dtype, page.bitspersample, page) if isinstance(page.bitspersample, int) else None
    return TiledSource(
        path, segments.shape, page.dtype, arrangement, read, lambda: fingerprint_file(path), white_level=white
    )


def _axis_mapping(axes: str, stored: Shape, wanted: OpenOptions, where: str) -> AxisMapping:
    """Y, X are the last axes of space; S or C are channels; one axis of pages is depth, or channels where they fit."""
    spatial = spatial_axes(wanted.rank, wanted.layout)
    channel = channel_axis(wanted.rank, wanted.layout)
    places = {"Y": spatial[-2], "X": spatial[-1]} if len(spatial) >= 2 else {}
    places |= {"S": channel, "C": channel}
    if wanted.pages == BATCH:
        places |= dict.fromkeys([letter for letter in axes if letter not in places][:1], 0)
    for letter, size in zip(axes, stored, strict=True):
        if letter not in places:
            places[letter] = spatial[0] if len(spatial) == 3 else channel if size == wanted.channels else -1
    mapped = tuple(places[letter] for letter in axes)
    if -1 in mapped or len(set(mapped)) < len(mapped) or not set("YX") <= set(axes):
        text = f"{format_shape(stored)} pixels with axes {axes}. {_pages_advice(wanted.pages)}"
        raise ShapeError(f"{where}: expected an image of {len(spatial)} axes of space, got {text}")
    return AxisMapping(mapped, wanted.rank)


def _window_reader(segments: SegmentReader, row_axis: int | None) -> Callable[[Slices], Array]:
    """A reader of windows of tiles (None), or of strips, whose full width is kept for the next window of these rows."""
    kept: dict[tuple[tuple[int, int], ...], Array] = {}

    def read(slices: Slices) -> Array:
        if row_axis is None:
            return segments.read(slices)
        rows = slices[: row_axis + 1]
        key = tuple((part.start, part.stop) for part in rows)
        if key not in kept:
            kept.clear()
            kept[key] = segments.read((*rows, *full_slices(segments.shape[len(rows) :])))
        return kept[key][(*(slice(None),) * len(rows), *slices[row_axis + 1 :])]

    return read


def check_pages(file: Any, stream: Any, size: int, where: str) -> None:
    """Refuse pages that form a circle, which tifffile would follow for ever, and pages that overlap."""
    words, offset, seen, entries = file.tiff, file.pages.first.offset, set(), 0
    while 0 < offset < size:
        if offset in seen or entries * words.tagsize > size:
            raise FileError(f"{where}: corrupt TIFF: its page directories form a loop or overlap. {REPLACE}")
        seen.add(offset)
        count = _unpack(stream, offset, words.tagnoformat, words.tagnosize)
        offset = _unpack(stream, offset + words.tagnosize + count * words.tagsize, words.offsetformat, words.offsetsize)
        entries += 1 + count


def _unpack(stream: Any, offset: int, form: str, size: int) -> int:
    """A number in a file; 0 after its end."""
    stream.seek(offset)
    content = stream.read(size)
    number: int = struct.unpack(form, content)[0] if len(content) == size else 0
    return number


def check_segments(series: Any, stream: BinaryIO, size: int, where: str) -> None:
    """Refuse pixels and segments that claim more than a file of `size` bytes can hold, or this process."""
    page = series.keyframe
    _require_compression(page, where)
    if int(page.compression) in DEFLATE_LIKE:
        check_claim(series.nbytes, size, where)
        check_claim(prod(page.chunks) * page.dtype.itemsize, size, where)
    check_pixels(tuple(page.chunks), page.dtype.itemsize, where)
    if int(page.compression) == JPEG:
        for part in (part.aspage() for part in series.pages if part is not None):
            for offset, count in zip(part.dataoffsets, part.databytecounts, strict=True):
                stream.seek(offset)
                _require_jpeg_size(stream.read(min(count, JPEG_HEAD)), part, where)


def check_decoding(page: Any, where: str) -> None:
    """Refuse segments that no memory holds, and let `page.decode` check each JPEG before it is unpacked."""
    _require_compression(page, where)
    check_bytes(prod(page.chunks) * page.dtype.itemsize, "one strip or tile", where)
    if int(page.compression) != JPEG:
        return
    decode = page.decode

    def decode_checked(data: bytes | None, *place: Any, **words: Any) -> Any:
        if data:
            _require_jpeg_size(data, page, where)
        return decode(data, *place, **words)

    page.decode = decode_checked


def _require_compression(page: Any, where: str) -> None:
    """Refuse a compression that is not in the list: any decoder that is installed would run."""
    if int(page.compression) not in COMPRESSIONS:
        compression = _word(page.compression)
        raise UnsupportedError(f"{where}: its compression, {compression}, is not read. Use deflate, LZW or JPEG.")


def _require_jpeg_size(data: bytes, page: Any, where: str) -> None:
    """Refuse a JPEG that says another size than its segment has: it would unpack to more than the file says."""
    rows = page.tilelength if page.is_tiled else min(page.rowsperstrip, page.imagelength)
    columns = page.tilewidth if page.is_tiled else page.imagewidth
    height, width = jpeg_size((page.jpegheader or b"") + data) or (0, 0)
    if not (0 < height < rows + JPEG_BLOCK and 0 < width < columns + JPEG_BLOCK):
        raise FileError(f"{where}: expected a JPEG of {rows}x{columns} pixels, got one of {height}x{width}. {REPLACE}")


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Rows and columns that the first frame of a JPEG states; None without one.

    Source: ITU-T T.81, B.1.1.3: markers and the lengths of their segments.
    """
    at = 2
    while data[at : at + 1] == b"\xff":
        marker = data[at + 1] if at + 1 < len(data) else 0
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = data[at + 5 : at + 9]
            return (int.from_bytes(frame[:2]), int.from_bytes(frame[2:])) if len(frame) == 4 else None
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
