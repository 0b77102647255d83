"""Bytes of memory that it takes to read a file whole, from its header alone.

Where a limit of memory is given, a file that would break it is refused before it is read.
"""

from dataclasses import dataclass
from math import prod
from typing import BinaryIO

import numpy as np

from unpool.cli.feed import of_rank
from unpool.cli.inputs import InputFile
from unpool.cli.metadata import PixelRule
from unpool.cli.model import Slot
from unpool.images.checks import pillow_unlimited
from unpool.images.formats import NIFTI_SUFFIXES, TIFF_SUFFIXES
from unpool.images.nifti import header_of
from unpool.images.npy import read_header
from unpool.images.source import BATCH

DECODED = 16
"""Bytes per pixel that Pillow takes at most: two pictures of 4 bytes, and two arrays of 4."""
DECODED_AS = {"WEBP": 28, "MPO": 20}
"""Those of formats whose decoders take more."""
PROGRESSIVE = 7
"""Bytes per pixel for the coefficients of a progressive .jpg."""
DEEPER = 2
"""Factor for pixels of more than 8 bits."""
PALETTE, SEPARATED, YCBCR, JPEG = 3, 5, 6, 7
CONVERTED = {PALETTE: 12, SEPARATED: 24}
"""Bytes per sample that the colours of a TIFF take on their way to RGB."""
SCALED = 16
"""Bytes per voxel that the slope and intercept of a NIfTI file take."""


@dataclass(frozen=True)
class Footprint:
    """Memory for reading a file whole.

    Attributes:
        shape: of the input that it fills.
        peak: bytes while the file is read.
        held: bytes that are kept.
    """

    shape: tuple[int, ...]
    peak: int
    held: int


def footprint(source: InputFile, slot: Slot, rule: PixelRule) -> Footprint:
    """The memory that a file takes as an input of a model.

    Args:
        source: the file, whose header is read.
        slot: the input.
        rule: where channels are, and whether pages are a batch.
    """
    layout, batch = rule.layout, 1
    spatial: tuple[int, ...]
    with source.open() as stream:
        if not source.is_image:
            return _of_array(source, stream, slot, layout)
        if source.suffix in TIFF_SUFFIXES:
            whole, channels, peak, held = _of_tiff(stream)
            (*pages, height, width) = whole
            is_volume = slot.spatial_rank(layout) == 3
            if rule.pages == BATCH and len(pages) > is_volume:
                batch = pages.pop(0)
            spatial = (prod(pages), height, width) if is_volume else (height, width)
        elif source.suffix in NIFTI_SUFFIXES:
            spatial, channels, peak, held = _of_nifti(stream, str(source))
        else:
            spatial, channels, peak, held = _of_raster(stream)
    spatial = spatial[: slot.spatial_rank(layout)]
    count = slot.channels(layout) or channels
    shape = (batch, count, *spatial) if layout == "nchw" else (batch, *spatial, count)
    return Footprint(shape, peak, held)


def _of_raster(stream: BinaryIO) -> tuple[tuple[int, ...], int, int, int]:
    from PIL import Image

    with pillow_unlimited(), Image.open(stream) as image:
        width, height = image.size
        turned = image.getexif().get(274, 1) >= 5
        each = DECODED_AS.get(image.format or "", DECODED) + (PROGRESSIVE if image.info.get("progressive") else 0)
        channels = 1 if image.mode in ("1", "L") or image.mode.startswith("I") else len(image.getbands())
    count = width * height
    spatial = (width, height) if turned else (height, width)
    return spatial, channels, count * each * DEEPER, count * 4 * DEEPER


def _of_tiff(stream: BinaryIO) -> tuple[tuple[int, ...], int, int, int]:
    import tifffile

    with tifffile.TiffFile(stream) as file:
        series = file.series[0]
        page, samples = series.keyframe, prod(series.shape)
        sizes: dict[str, int] = dict(zip(series.axes, series.shape, strict=True))
    channels = sizes.pop("S", 1) * sizes.pop("C", 1)
    spatial = (sizes.pop("Y", 1), sizes.pop("X", 1))
    spatial = spatial[::-1] if page.tags.valueof(274, default=1) >= 5 else spatial
    stored, kind = samples * series.dtype.itemsize, int(page.photometric)
    peak = 3 * stored + samples * CONVERTED.get(kind, 0)
    if kind == YCBCR or int(page.compression) == JPEG:
        peak += DECODED * samples
    return (*sizes.values(), *spatial), channels, peak, stored * (6 if kind == PALETTE else 1)


def _of_nifti(stream: BinaryIO, where: str) -> tuple[tuple[int, ...], int, int, int]:
    header = header_of(stream, _size_of(stream), where)
    shape, stored = header.get_data_shape(), header.get_data_dtype().itemsize
    is_scaled = header.get_slope_inter()[0] is not None
    count, spatial = prod(shape), (*shape[:3], *(1,) * (3 - len(shape)))
    channels = prod(size for size in shape[3:] if size > 1)
    return spatial, channels, count * (stored + (SCALED if is_scaled else stored)), count * (8 if is_scaled else stored)


def _of_array(source: InputFile, stream: BinaryIO, slot: Slot, layout: str) -> Footprint:
    """An array, which may be cast to the type of the input, and back to see that nothing was lost."""
    if source.member is None:
        header = read_header(stream, _size_of(stream), str(source))
    else:
        import zipfile

        with zipfile.ZipFile(stream) as file, file.open(f"{source.member}.npy") as member:
            header = read_header(member, file.getinfo(f"{source.member}.npy").file_size, str(source))
    shape, dtype = header.shape, header.dtype
    placeholder = np.broadcast_to(np.empty((), dtype), shape)
    count, width = prod(shape), max(dtype.itemsize, slot.dtype.itemsize)
    peak = count * dtype.itemsize if dtype == slot.dtype else count * 3 * width
    return Footprint(of_rank(placeholder, slot, layout).shape, peak, count * slot.dtype.itemsize)


def _size_of(stream: BinaryIO) -> int:
    """Bytes of an open file, whose position goes back to its beginning."""
    size = stream.seek(0, 2)
    stream.seek(0)
    return size
