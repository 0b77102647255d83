"""Files as tensors: windows of every format are those of the array, and what is written is read by others."""

import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from unpool import images
from unpool.errors import FileError, MissingFileError, ShapeError, UnsupportedError
from unpool.images.formats import BY_SUFFIX, window_format
from unpool.images.sink import OutputSpec
from unpool.images.tiff_segments import SegmentReader

RNG = np.random.default_rng(3)
COLOUR = RNG.integers(0, 256, (1, 3, 75, 90), np.uint8)
WINDOWS = (
    (slice(None), slice(None), slice(0, 75), slice(0, 90)),
    (slice(0, 1), slice(None), slice(17, 60), slice(33, 34)),
)


def save_npy(path):
    np.save(path / "a.npy", COLOUR)
    return path / "a.npy"


def save_backward(path):
    np.save(path / "a.npy", np.asfortranarray(COLOUR[0]))
    return path / "a.npy"


def save_zarr(path):
    array = zarr.create_array(str(path / "a.zarr"), shape=COLOUR.shape, dtype=COLOUR.dtype, chunks=(1, 2, 20, 50))
    array[:] = COLOUR
    return path / "a.zarr"


def save_tiff(path, **options):
    tifffile.imwrite(path / "a.tif", COLOUR[0].transpose(1, 2, 0), photometric="rgb", **options)
    return path / "a.tif"


def save_pages(path):
    tifffile.imwrite(path / "a.tif", COLOUR[0], photometric="minisblack")
    return path / "a.tif"


def save_pyramid(path):
    """A pyramid whose second level is the image."""
    pixels = COLOUR[0].transpose(1, 2, 0)
    with tifffile.TiffWriter(path / "a.tif", bigtiff=True) as file:
        file.write(pixels.repeat(2, 0).repeat(2, 1), photometric="rgb", tile=(32, 48), subifds=1)
        file.write(pixels, photometric="rgb", tile=(32, 48), subfiletype=1, compression="zlib")
    return path / "a.tif"


SAVERS = {
    "npy": save_npy,
    "npy, columns first, no batch": save_backward,
    "zarr": save_zarr,
    "tiled tiff": lambda path: save_tiff(path, tile=(32, 48), compression="zlib", bigtiff=True),
    "tiff of strips": lambda path: save_tiff(path, rowsperstrip=7, compression="zlib"),
    "tiff of pages": save_pages,
    "level of a pyramid": save_pyramid,
}


@pytest.mark.parametrize("name", SAVERS)
def test_windows_are_those_of_the_array(name, tmp_path):
    """A window of a file is the same window of the array that was saved, twice and in any order."""
    source = images.open(SAVERS[name](tmp_path), channels=3, level=int("level" in name))
    assert (source.shape, source.dtype) == (COLOUR.shape, COLOUR.dtype)
    for window in (*WINDOWS, WINDOWS[0]):
        np.testing.assert_array_equal(source[window], COLOUR[window])


LAYOUTS = {
    "one strip": {},
    "strips": {"rowsperstrip": 7},
    "tiles": {"tile": (16, 32)},
    "deflated strips": {"rowsperstrip": 7, "compression": "zlib", "predictor": True},
    "LZW tiles": {"tile": (16, 32), "compression": "lzw"},
    "big-endian strips": {"rowsperstrip": 7, "bigtiff": True, "byteorder": ">"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["u1", "i2", "f4"])
def test_windows_of_tiff_files_are_those_of_tifffile(layout, kind, tmp_path):
    """Whatever the segments: grey, colours together and in planes, pages, pages in planes; ends of the image, too."""
    for shape, words in (
        ((37, 53), {}),
        ((37, 53, 3), {"photometric": "rgb"}),
        ((3, 37, 53), {"photometric": "rgb", "planarconfig": "separate"}),
        ((2, 4, 37, 53), {"photometric": "minisblack"}),
        ((2, 3, 37, 53), {"photometric": "rgb", "planarconfig": "separate"}),
        ((1, 1), {}),
    ):
        stored = RNG.integers(0, 99, shape).astype(kind)
        tifffile.imwrite(tmp_path / "a.tif", stored, **words, **LAYOUTS[layout])
        with tifffile.TiffFile(tmp_path / "a.tif") as file:
            reader = SegmentReader(file.series[0])
            for first, last in ((0, 0), (0, 1), (5, 0), (30, 1)):
                window = tuple(slice(min(first, size - 1), max(size - last, min(first, size - 1))) for size in shape)
                np.testing.assert_array_equal(reader.read(window), stored[window])


def test_missing_segments_of_a_tiff_file_have_no_data(tmp_path):
    """A tile whose size is 0 is zeros; one whose bytes end too early is an error with the file's name."""
    stored = RNG.integers(1, 99, (32, 48), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", stored, tile=(16, 16))
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        counts = list(file.pages[0].databytecounts)
        file.pages[0].tags["TileByteCounts"].overwrite([0, *counts[1:]])
    stored[:16, :16] = 0
    np.testing.assert_array_equal(images.open(tmp_path / "a.tif")[(slice(None),) * 4][0, 0], stored)
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(content[:-20])
    with pytest.raises(FileError, match=r"a\.tif"):
        images.open(tmp_path / "a.tif")[(slice(None),) * 4]


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_volumes_have_the_axes_and_the_scale_of_the_file(name, tmp_path):
    """NIfTI's slope and intercept are applied; a compressed file says that it was read whole."""
    stored = RNG.integers(-5, 900, (6, 7, 8), np.int16)
    image = nibabel.Nifti1Image(stored, np.diag([2.0, 3, 4, 1]))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / name)
    source = images.open(tmp_path / name, rank=5)
    assert (source.shape, source.dtype, bool(source.warning)) == ((1, 1, 6, 7, 8), np.float32, name.endswith("gz"))
    expected = nibabel.load(tmp_path / name).get_fdata(dtype=np.float32)[None, None]
    np.testing.assert_array_equal(source[:, :, 1:4, 2:7, 3:8], expected[:, :, 1:4, 2:7, 3:8])


def read_back(path):
    if path.suffix == ".zarr":
        return np.asarray(zarr.open_array(str(path), mode="r"))
    if path.suffix == ".nii":
        return np.asarray(nibabel.load(path).dataobj)
    return np.load(path) if path.suffix == ".npy" else tifffile.imread(path)


def as_others_see_it(tensor, ending):
    """What a reader of that format gives for a tensor of batch, channels and space."""
    if ending in (".npy", ".zarr"):
        return tensor
    image = tensor[0] if tensor.shape[1] > 1 else tensor[0, 0]
    is_colour = ending.startswith(".tif") and tensor.dtype == np.uint8
    return np.moveaxis(image, 0, -1) if tensor.shape[1] > 1 and (ending == ".nii" or is_colour) else image


@pytest.mark.parametrize("ending", sorted(suffix for suffix, each in BY_SUFFIX.items() if each.windows))
@pytest.mark.parametrize(
    ("shape", "kind"), [((1, 3, 300, 270), "u1"), ((1, 2, 5, 40, 270), "f4"), ((1, 1, 33, 28), "i2")], ids=str
)
def test_others_read_what_is_written(ending, shape, kind, tmp_path):
    """Windows written in any order, over the ends of tiles and chunks, make the array; and are read back."""
    tensor = RNG.integers(0, 200, shape).astype(kind)
    path, written = tmp_path / f"b{ending}", OutputSpec(shape, tensor.dtype, 1, (1, *shape[1:-2], 16, 25))
    window_format(path).create(path, written)
    sink = window_format(path).open(path, written)
    middle = [(slice(None),) * (len(shape) - 1) + (part,) for part in (slice(25, 28), slice(28, None), slice(0, 25))]
    for window in middle:
        sink.write(window, tensor[window])
    np.testing.assert_array_equal(sink.read(middle[0]), tensor[middle[0]])
    np.testing.assert_array_equal(read_back(path), as_others_see_it(tensor, ending))


def test_what_cannot_be_read_in_windows_is_an_error(tmp_path):
    """No file, another format, a broken file, other axes, pixels to be turned, a level that is not there."""
    np.save(tmp_path / "flat.npy", np.zeros(3))
    (tmp_path / "broken.tif").write_bytes(b"II*\0no image")
    (tmp_path / "broken.nii").write_bytes(b"no volume")
    (tmp_path / "empty.zarr").mkdir()
    tifffile.imwrite(tmp_path / "turned.tif", COLOUR[0, 0], extratags=[(274, "H", 1, 6, True)])
    tifffile.imwrite(tmp_path / "white.tif", COLOUR[0, 0], photometric="miniswhite")
    for name, kind, says in (
        ("none.npy", MissingFileError, "no such file"),
        ("flat.npy", ShapeError, "2 or 3 or 4 axes"),
        ("broken.tif", FileError, "expected a TIFF"),
        ("broken.nii", FileError, "expected the header of a NIfTI"),
        ("empty.zarr", FileError, "expected a Zarr"),
        ("turned.tif", UnsupportedError, "orientation 6"),
        ("white.tif", UnsupportedError, "MINISWHITE"),
    ):
        with pytest.raises(kind, match=says):
            images.open(tmp_path / name)
    with pytest.raises(FileError, match="a level from 0 to 0, got 3"):
        images.open(save_tiff(tmp_path), level=3)
    with pytest.raises(UnsupportedError, match="ends in"):
        window_format(tmp_path / "y.png")
