"""Files that claim more than they hold, or than fits: one line, before any memory is taken."""

import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import zarr
from numcodecs import BZ2, Zlib
from numpy.lib import format as npy
from PIL import Image

from tests.support.command import copy_model, fails, invoke
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED
from unpool.images.tiff import jpeg_size

MOST = 2**27
"""Bytes that a refusal may take: far below every claim, and above what the session and the libraries take."""


def png(width, height, depth=8, colour=0, rows=b""):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def webp(width, height):
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<IB3x", 10, 2) + sizes
    return b"RIFF" + struct.pack("<I", len(body)) + body


def array(shape, bytes_):
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes_


def archive(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", content)
    return stream.getvalue()


def tiff(tags, **options):
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.zeros((16, 16), np.uint8), **options)
    stream.seek(0)
    with tifffile.TiffFile(stream, mode="r+") as file:
        for name, value in tags.items():
            file.pages[0].tags[name].overwrite(value)
    return stream.getvalue()


def jpeg_in_tiff(rows, columns):
    """A TIFF of 16 x 16 whose JPEG says another size."""
    whole = tiff({}, compression="jpeg")
    at = whole.index(b"\xff\xc0")
    return whole[: at + 5] + struct.pack(">HH", rows, columns) + whole[at + 9 :]


BOMBS = {
    "plain.npy": (array((10**5, 10**5), b""), "claims 40000000000 bytes of numbers"),
    "wide.npy": (array((2**62, 8), b""), "bytes of numbers, the file has"),
    "header.npz": (
        archive(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**27) + bytes(2**27)),
        "its header claims 134217728 bytes",
    ),
    "packed.npz": (archive(array((10**5, 10**5), b"")), "claims 40000000000 bytes of numbers"),
    "grey.png": (png(60000, 60000), "claims 450000000 bytes, more than its"),
    "huge.png": (png(2**31 - 1, 2**31 - 1), "bytes, more than its"),
    "deep.png": (png(60000, 60000, 16, 2), "claims 450000000 bytes, more than its"),
    "huge.webp": (webp(2**24, 2**24), "this process"),
    "strips.tif": (
        tiff({"ImageWidth": 60000, "ImageLength": 60000, "RowsPerStrip": 60000}, rowsperstrip=16),
        "claims 3600000000 bytes, more than its",
    ),
    "tile.tif": (tiff({"TileWidth": 60000, "TileLength": 60000}, tile=(16, 16)), "claims 3600000000 bytes, more than"),
    "jpeg.tif": (jpeg_in_tiff(65000, 65000), "expected a JPEG of 16x16 pixels, got one of 65000x65000"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_claims_take_no_memory(here, name):
    """The claim is refused in one line, and Python takes far less memory than it is about."""
    content, says = BOMBS[name]
    Path(name).write_bytes(content)
    model = copy_model(here / "copy.onnx", [1, 3 if name == "deep.png" else 1, "H", "W"])
    invoke("inspect", model)  # what is imported then, is not counted
    tracemalloc.start()
    try:
        for more in ((), ("--tile", "8x8")) if name == "jpeg.tif" else ((),):
            fails(UNFIT, "run", model, "-i", name, "-o", "y.npy", *more, says=says)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_a_picture_above_the_limit_of_pillow(here, monkeypatch):
    """Pillow calls a picture of many pixels an attack; what counts here is the memory."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    Image.fromarray(np.zeros((5, 7), np.uint8)).save("a.png")
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"])
    assert invoke("run", model, "-i", "a.png", "-o", "y.npy").exit_code == OK
    assert Image.MAX_IMAGE_PIXELS == 10


def test_pages_in_a_circle(here):
    """A page without entries that points to itself has no end for tifffile."""
    content = bytearray(tiff({}))
    first = int.from_bytes(content[4:8], "little")
    tags = int.from_bytes(content[first : first + 2], "little")
    struct.pack_into("<I", content, first + 2 + 12 * tags, len(content))
    Path("a.tif").write_bytes(content + struct.pack("<HI", 0, len(content)))
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"])
    for more in ((), ("--tile", "8x8")):
        fails(UNFIT, "run", model, "-i", "a.tif", "-o", "y.npy", *more, says="page directories form a loop")


def test_other_compressions_are_refused(here):
    """JPEG 2000 and the like say their size in ways that are not checked here."""
    tifffile.imwrite("a.tif", np.zeros((16, 16), np.uint8), compression="jpeg2000")
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"])
    for more in ((), ("--tile", "8x8")):
        fails(UNSUPPORTED, "run", model, "-i", "a.tif", "-o", "y.npy", *more, says="its compression, JPEG2000")


def test_the_size_in_a_jpeg():
    """The first frame says rows and columns, whatever stands before it; without one there is no size."""
    whole = imagecodecs.jpeg_encode(np.zeros((5, 7, 3), np.uint8))
    assert jpeg_size(whole) == (5, 7)
    assert jpeg_size(b"\xff\xd8\xff\xfe\x00\x06\xff\xc0ab" + whole[2:]) == (5, 7)
    assert jpeg_size(b"\xff\xd8\xff") is None
    assert jpeg_size(b"") is None


def test_damaged_zarr_arrays_end_in_one_line(here):
    """A chunk that is cut off ends with 3, a codec that is not read with 4; each is one line that names the array."""
    pixels = np.random.default_rng(1).random((1, 1, 16, 16), np.float32)
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"])
    for name, compressors in (("cut.zarr", [Zlib()]), ("codec.zarr", [BZ2()])):
        array = zarr.create_array(name, shape=pixels.shape, dtype="f4", zarr_format=2, compressors=compressors)
        array[...] = pixels
    chunk = Path("cut.zarr/0.0.0.0")
    chunk.write_bytes(chunk.read_bytes()[:100])
    for more in (("-o", "y.npy"), ("-o", "y.npy", "--tile", "8x8")):
        fails(UNFIT, "run", model, "-i", "cut.zarr", *more, says="cut.zarr: expected the window [0:1, 0:1, 0:")
        fails(UNSUPPORTED, "run", model, "-i", "codec.zarr", *more, says="codec.zarr: its chunks need the codec 'bz2'")


def test_an_image_without_rows_ends_in_one_line(here):
    """An array of no rows has no tiles: exit code 3 and one line."""
    np.save("empty.npy", np.zeros((1, 1, 0, 16), np.float32))
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"])
    for more in (
        ("-o", "y.npy", "--tile", "8x8"),
        ("-o", "y.zarr"),
        ("-o", "y.npy", "--blend", "gaussian", "--tile", "8"),
    ):
        fails(UNFIT, "run", model, "-i", "empty.npy", *more, says="of shape [1, 1, 0, 16] has no elements")
