"""Image files in, pictures out: what the command reads and draws."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from skimage.color import rgb2lab

from unpool import images
from unpool.errors import FileError, MissingFileError, ShapeError, UnsupportedError
from unpool.images.overlay import CLEAR, OKABE_ITO, legend_for, legend_strip
from unpool.images.pixels import for_display, to_channels

RNG = np.random.default_rng(7)


def saved(path: Path, pixels: np.ndarray, **options) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def test_sixteen_bit_grey_png_keeps_its_values(tmp_path):
    """A 16-bit grey picture is not cut to 8 bits."""
    pixels = RNG.integers(0, 65536, (5, 7), np.uint16)
    read = images.read(saved(tmp_path / "a.png", pixels), spatial_rank=2, channels=1).pixels
    assert read.dtype == np.uint16
    np.testing.assert_array_equal(read[..., 0], pixels)


@pytest.mark.parametrize(("have", "want"), [(1, 3), (1, 4), (3, 1), (3, 4), (4, 1), (4, 3)])
def test_channels_become_those_of_the_model(tmp_path, have, want):
    """A picture of 1, 3 or 4 channels fills a model of 1, 3 or 4; grey weighs colours by BT.601."""
    pixels = RNG.integers(0, 256, (5, 7, have), np.uint8)
    path = saved(tmp_path / "a.png", pixels[..., 0] if have == 1 else pixels)
    colour = np.repeat(pixels, 3, axis=-1) if have == 1 else pixels[..., :3]
    grey = np.rint(colour @ np.array([0.299, 0.587, 0.114]))[..., None]
    opaque = np.concatenate([colour, np.full((5, 7, 1), 255)], axis=-1)
    np.testing.assert_array_equal(
        images.read(path, spatial_rank=2, channels=want).pixels, {1: grey, 3: colour, 4: opaque}[want]
    )


def test_pages_of_a_tiff_are_channels_when_the_model_has_as_many(tmp_path):
    """Five pages fill a flat model of five channels."""
    pixels = RNG.integers(0, 256, (5, 7, 9), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack")
    np.testing.assert_array_equal(
        images.read(tmp_path / "a.tif", spatial_rank=2, channels=5).pixels, np.moveaxis(pixels, 0, -1)
    )


REFUSED = {
    "a volume for a flat model": ("volume.tif", 2, ShapeError, "expected a"),
    "a picture for a model of volumes": ("flat.tif", 3, ShapeError, "expected a"),
    "a flat format for a model of volumes": ("flat.png", 3, ShapeError, "flat picture"),
    "a picture that ends too early, not a grey lower half": ("short.png", 2, FileError, r"short\.png"),
    "a path that does not exist": ("none.png", 2, MissingFileError, r"none\.png"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_picture_for_the_model_is_refused(tmp_path, name):
    """Nothing is guessed: the error says what was expected, or names the file."""
    path, rank, kind, says = REFUSED[name]
    for file, shape in (("volume.tif", (4, 5, 7)), ("flat.tif", (5, 7))):
        tifffile.imwrite(tmp_path / file, np.zeros(shape, np.uint8), photometric="minisblack")
    saved(tmp_path / "flat.png", np.zeros((5, 7), np.uint8))
    short = saved(tmp_path / "short.png", RNG.integers(0, 256, (50, 70), np.uint8))
    short.write_bytes(short.read_bytes()[:1500])
    with pytest.raises(kind, match=says):
        images.read(tmp_path / path, spatial_rank=rank, channels=1)


def test_unusual_channels_are_refused():
    """Nothing guesses how two channels become three."""
    with pytest.raises(ShapeError, match="takes 3 channels, the image has 2"):
        to_channels(np.zeros((5, 7, 2), np.uint8), 3, "a.tif")


def test_display_ignores_values_that_are_not_finite():
    """NaN and infinity do not decide how a float picture is stretched."""
    shown = for_display(np.array([[[0.0], [2.0], [np.nan], [np.inf]]]))
    assert shown[0, :, 1].tolist() == [0, 255, 0, 255]


def test_class_colours_differ():
    """300 classes have 300 colours, and the first are those of Okabe and Ito."""
    colours = legend_for(300, None).colours
    assert colours[0] == CLEAR
    assert colours[1:8] == OKABE_ITO
    assert len(set(colours)) == 300


def test_colours_of_twenty_classes_look_different():
    """Any two of the first 20 colours are at least 20 units of CIELAB apart."""
    lab = rgb2lab(np.array(legend_for(21, None).colours)[None] / 255)[0]
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    assert distances[~np.eye(21, dtype=bool)].min() > 20


def test_first_class_is_coloured_when_it_is_something():
    """Class 0 shows the image through only when it has no name or is the background."""
    assert legend_for(2, ["road", "car"]).colours[0] == OKABE_ITO[0]
    assert legend_for(2, ["Background", "car"]).clear_first


def test_legend_shows_a_swatch_of_every_class():
    """The strip below holds the colour of each class that occurs, dark text, and no other class."""
    legend = legend_for(4, ["background", "coin", "dust", "edge"])
    pixels = np.asarray(legend_strip(legend, [0, 1, 3], 300)).reshape(-1, 3).tolist()
    assert list(OKABE_ITO[0]) in pixels
    assert list(OKABE_ITO[2]) in pixels
    assert list(OKABE_ITO[1]) not in pixels
    assert [20, 20, 20] in pixels


def test_legend_wraps_and_widens():
    """A long legend takes more rows; a name wider than the picture widens the strip."""
    names = [f"name {number}" for number in range(9)]
    legend = legend_for(9, names)
    assert legend_strip(legend, range(9), 200).height > legend_strip(legend, range(2), 200).height
    assert legend_strip(legend_for(1, ["a rather long class name"]), [0], 20).width > 100


def test_axes_notes_and_windows_for_python_callers(tmp_path):
    """`read` names its axes and its white, and `open` gives windows of the same pixels as a tensor."""
    pixels = (np.arange(5 * 7 * 3).reshape(5, 7, 3) * 300).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=(16, 16))

    picture, source = images.read(tmp_path / "a.tif"), images.open(tmp_path / "a.tif")

    assert (picture.axes, picture.white_level, picture.notes) == ("HWC", 65535, ())
    assert (source.shape, source.white_level, source.warning) == ((1, 3, 5, 7), 65535, "")
    np.testing.assert_array_equal(picture.pixels, pixels)
    np.testing.assert_array_equal(source[:, :, 1:4, 2:6][0], np.moveaxis(pixels[1:4, 2:6], -1, 0))


def test_pages_as_a_batch_and_arrays(tmp_path):
    """Pages can be those of a batch; arrays are no images, and the message names what reads them."""
    pixels = np.arange(2 * 5 * 7, dtype=np.uint8).reshape(2, 5, 7)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack")
    np.save(tmp_path / "a.npy", pixels)

    picture = images.read(tmp_path / "a.tif", pages="batch")

    assert (picture.axes, picture.pixels.shape) == ("NHWC", (2, 5, 7, 1))
    with pytest.raises(UnsupportedError, match=r"unpool\.images\.open"):
        images.read(tmp_path / "a.npy")
