"""The same picture in every encoding gives the same numbers, or is refused in one sentence."""

import json
import sys
from importlib.resources import files
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from onnx import TensorProto
from PIL import Image, ImageOps
from skimage.data import coins

from tests.support.command import copy_model, fails, invoke
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED

RNG = np.random.default_rng(5)
GREY = RNG.integers(0, 256, (5, 7), np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)
ALPHA = RNG.integers(0, 256, (5, 7), np.uint8)
DEEP = np.uint16(257)
COLOURS = RNG.integers(0, 256, (256, 3), np.uint8)
"""Of the palettes."""


def tag(number, value, kind="H"):
    return (number, kind, 1, value, True)


def tiff(pixels, **options):
    return lambda path: tifffile.imwrite(path, pixels, **options)


def pillow(pixels, mode=None, **options):
    def save(path):
        image = Image.fromarray(pixels)
        (image if mode is None else image.convert(mode)).save(path, **options)

    return save


def palette_png(path):
    image = Image.fromarray(GREY).convert("L")
    image.putpalette(COLOURS.ravel().tolist())
    image.save(path)


def palette_tiff(step):
    return tiff(GREY, photometric="palette", colormap=COLOURS.T.astype(np.uint16) * np.uint16(step))


def deep_png(path):
    """Of colours, which Pillow does not write."""
    Path(path).write_bytes(imagecodecs.png_encode(COLOUR * DEEP))


GREY_ENCODINGS = {
    "8.png": pillow(GREY),
    "8.bmp": pillow(GREY),
    "8.gif": pillow(GREY),
    "8.webp": pillow(GREY, lossless=True),
    "zstd-16.tif": tiff(GREY * DEEP, compression="zstd"),
    "16.png": pillow(GREY * DEEP),
    "8.tif": tiff(GREY),
    "16.tif": tiff(GREY * DEEP),
    "16-big-endian.tif": tiff(GREY * DEEP, byteorder=">"),
    "16-white-is-0.tif": tiff(np.uint16(65535) - GREY * DEEP, photometric="miniswhite"),
    "white-is-0.tif": tiff(255 - GREY, photometric="miniswhite"),
    "deflate.tif": tiff(GREY * DEEP, compression="zlib", predictor=True),
    "lzw.tif": pillow(GREY, compression="tiff_lzw"),
    "lzw-16.tif": pillow(GREY * DEEP, compression="tiff_lzw"),
    "tiles.tif": tiff(np.pad(GREY, ((0, 0), (0, 0))), tile=(16, 16)),
    "with-alpha.png": pillow(np.stack([GREY, ALPHA], axis=-1)),
    "with-alpha.tif": tiff(np.stack([GREY, ALPHA], axis=-1), photometric="minisblack", extrasamples=["unassalpha"]),
    "with-16-alpha.tif": tiff(
        np.stack([GREY, ALPHA], axis=-1) * DEEP, photometric="minisblack", extrasamples=["unassalpha"]
    ),
    "with-smaller-copy.tif": lambda path: two_pages(path, subfiletype=1),
}
COLOUR_ENCODINGS = {
    "8.png": pillow(COLOUR),
    "8.bmp": pillow(COLOUR),
    "8.webp": pillow(COLOUR, lossless=True),
    "16.png": deep_png,
    "lzw-16.tif": tiff(COLOUR * DEEP, compression="lzw", predictor=True),
    "8.tif": tiff(COLOUR),
    "16.tif": tiff(COLOUR * DEEP),
    "planes.tif": tiff(np.moveaxis(COLOUR, -1, 0), photometric="rgb", planarconfig="separate"),
    "16-planes.tif": tiff(np.moveaxis(COLOUR * DEEP, -1, 0), photometric="rgb", planarconfig="separate"),
    "lzw.tif": pillow(COLOUR, compression="tiff_lzw"),
    "with-alpha.png": pillow(np.dstack([COLOUR, ALPHA])),
    "with-alpha.tif": tiff(np.dstack([COLOUR, ALPHA]), photometric="rgb", extrasamples=["unassalpha"]),
    "opaque.tif": tiff(np.dstack([COLOUR, ALPHA * 0 + 255]), photometric="rgb", extrasamples=["assocalpha"]),
    "cmyk.tif": tiff(np.dstack([255 - COLOUR, ALPHA * 0]), photometric="separated"),
    "16-cmyk.tif": tiff(np.dstack([255 - COLOUR, ALPHA * 0]) * DEEP, photometric="separated"),
}
PALETTES = {
    "palette.png": palette_png,
    "palette.tif": palette_tiff(257),
    "palette-of-pillow.tif": palette_tiff(256),
    "palette-of-8-bits.tif": palette_tiff(1),
}


def two_pages(path, **options):
    with tifffile.TiffWriter(path) as writer:
        writer.write(GREY)
        writer.write(GREY[::2, ::2], **options)


def fed(name, channels=1, kind=TensorProto.FLOAT, *options):
    """What the model gets from a file: its only input, without the batch."""
    model = copy_model(Path("copy.onnx"), [1, channels, "H", "W"], kind)
    done = invoke("run", model, "-i", name, "-o", "y.npy", *options)
    assert done.exit_code == OK, done.output
    return np.load("y.npy")[0]


ENCODINGS = {
    **{("grey", name): (save, GREY[..., np.newaxis]) for name, save in GREY_ENCODINGS.items()},
    **{("colours", name): (save, COLOUR) for name, save in COLOUR_ENCODINGS.items()},
    **{("palette", name): (save, COLOURS[GREY]) for name, save in PALETTES.items()},
}


@pytest.mark.sample(5)
@pytest.mark.parametrize(("kind", "name"), ENCODINGS)
def test_a_picture_in_every_encoding(here, kind, name):
    """It gives the same numbers, 0 to 255, whatever its depth, byte order, polarity, planes, inks or compression.

    The numbers of a palette are colours, not light; writers store these three ways.
    """
    save, pixels = ENCODINGS[kind, name]
    save(name)
    np.testing.assert_array_equal(fed(name, pixels.shape[-1]), np.moveaxis(pixels, -1, 0))


@pytest.mark.sample(8)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_applied(here, orientation):
    """A camera's word for what is up counts in every format; Pillow's transposition is the truth."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(GREY).save("a.png", exif=exif)
    Image.fromarray(GREY * DEEP).save("deep.png", exif=exif)
    smooth = np.tile(np.arange(0, 240, 5, dtype=np.uint8), (16, 1))
    Image.fromarray(smooth).save("a.jpg", exif=exif, quality=100)
    tifffile.imwrite("a.tif", GREY, extratags=[tag(274, orientation)])
    tifffile.imwrite("deep.tif", GREY * DEEP, extratags=[tag(274, orientation)])
    Image.fromarray(GREY).save("lzw.tif", compression="tiff_lzw", tiffinfo={274: orientation})
    truth = np.asarray(ImageOps.exif_transpose(Image.open("a.png")))
    for name in ("a.png", "deep.png", "a.tif", "deep.tif", "lzw.tif"):
        np.testing.assert_array_equal(fed(name)[0], truth, err_msg=name)
    np.testing.assert_array_equal(fed("a.jpg")[0], np.asarray(ImageOps.exif_transpose(Image.open("a.jpg"))))


def test_volumes_are_turned_upright(here):
    """Every page of a volume is turned as the file says."""
    pixels = RNG.integers(0, 256, (3, 5, 7), np.uint8)
    tifffile.imwrite("a.tif", pixels, photometric="minisblack", extratags=[tag(274, 6)], metadata=None)
    copy_model(Path("copy.onnx"), [1, 1, "D", "H", "W"])
    assert invoke("run", "copy.onnx", "-i", "a.tif", "-o", "y.npy").exit_code == OK
    np.testing.assert_array_equal(np.load("y.npy")[0, 0], np.rot90(pixels, -1, axes=(1, 2)))


@pytest.mark.slow
def test_masks_and_overlays_are_upright(here):
    """What is drawn over a turned 16-bit photograph is what is drawn over the plain one."""
    model = files("unpool") / "data" / "coins.onnx"
    plain = coins()[40:140, 60:188]
    Image.fromarray(plain).save("plain.png")
    tifffile.imwrite("turned.tif", np.rot90(plain) * DEEP, extratags=[tag(274, 6)])
    for name in ("plain.png", "turned.tif"):
        stem = Path(name).stem
        assert invoke("run", model, "-i", name, "-o", f"{stem}-mask.png", "--argmax").exit_code == OK
        assert invoke("run", model, "-i", name, "-o", f"{stem}-over.png", "--overlay").exit_code == OK
    for kind in ("mask", "over"):
        one, other = (np.asarray(Image.open(f"{stem}-{kind}.png")) for stem in ("plain", "turned"))
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_depth_does_not_change_what_is_found(here):
    """The network of the demo finds the same share of coin in the photograph of 8 and of 16 bits."""
    model = files("unpool") / "data" / "coins.onnx"
    Image.fromarray(coins()).save("8.png")
    Image.fromarray(coins() * DEEP).save("16.png")
    shares = []
    for name in ("8.png", "16.png"):
        done = invoke("run", model, "-i", name, "-o", "m.png", "--argmax", "--json")
        shares.append(json.loads(done.stdout)["results"][0]["areas"]["coin"])
    assert shares[0] == shares[1]
    assert 0.2 < shares[0] < 0.5


def test_the_scale_of_deep_pictures_is_said(here):
    """One line on stderr, also with -q, and a note in --json say what was taken as white."""
    Path("in").mkdir()
    for name in ("a", "b"):
        Image.fromarray(GREY * DEEP).save(f"in/{name}.png")
    copy_model(Path("copy.onnx"), [1, 1, "H", "W"])
    note = "65535 is taken as white and goes in as 255, as in 8-bit pictures. --white 255 keeps the numbers"
    done = invoke("run", "copy.onnx", "-i", "in", "-o", "out/", "-q")
    assert done.stderr == f"warning: in/a.png and 1 more: {note}\n"
    done = invoke("run", "copy.onnx", "-i", "in", "-o", "out/", "--json")
    assert [one["notes"] for one in json.loads(done.stdout)["results"]] == [[note]] * 2


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint32])
def test_an_unknown_scale_is_said(here, dtype):
    """Floats, signed and long integers go in as they are, and the command says that nobody knows their white."""
    tifffile.imwrite("a.tif", GREY.astype(dtype))
    copy_model(Path("copy.onnx"), [1, 1, "H", "W"])
    done = invoke("run", "copy.onnx", "-i", "a.tif", "-o", "y.npy")
    np.testing.assert_array_equal(np.load("y.npy")[0, 0], GREY)
    assert done.stderr.startswith(f"warning: a.tif: its numbers, {np.dtype(dtype)}, go in as they are")
    assert invoke("run", "copy.onnx", "-i", "a.tif", "-o", "y.npy", "--white", "255").stderr == ""


def test_white_is_what_the_caller_says(here):
    """--white 255 keeps the numbers of a deep picture, --white 4095 reads 12 bits, and neither says anything."""
    Image.fromarray(GREY.astype(np.uint16) * 16).save("a.png")
    assert fed("a.png", 1, TensorProto.FLOAT, "--white", "255").max() == 16.0 * GREY.max()
    np.testing.assert_allclose(
        fed("a.png", 1, TensorProto.FLOAT, "--white", "4095"), GREY[None] * (16 * 255 / 4095), rtol=1e-6
    )
    assert invoke("run", "copy.onnx", "-i", "a.png", "-o", "y.npy", "--white", "4095").stderr == ""


def test_the_bits_that_a_tiff_uses_are_its_scale(here):
    """12 bits in 16 are read as such where the file says so; a largest value that is no bound of bits is no scale."""
    pixels = GREY.astype(np.uint16) * 16 + 15
    tifffile.imwrite("12.tif", pixels, extratags=[tag(281, 4095)])
    np.testing.assert_allclose(fed("12.tif")[0], pixels * (255 / 4095), rtol=1e-6)
    for value in (4000, 2047):
        tifffile.imwrite("16.tif", pixels, extratags=[tag(281, value)])
        np.testing.assert_allclose(fed("16.tif")[0], pixels * (255 / 65535), rtol=1e-6)


def test_two_values_are_black_and_white(here):
    """A picture of one bit per pixel holds 0 and 255, in both polarities and compressed."""
    bits = GREY > 100
    tifffile.imwrite("a.tif", bits, photometric="minisblack")
    tifffile.imwrite("w.tif", ~bits, photometric="miniswhite")
    Image.fromarray(bits).save("g.tif", compression="group4")
    for name in ("a.tif", "w.tif", "g.tif"):
        np.testing.assert_array_equal(fed(name)[0], bits * 255.0, err_msg=name)


def test_integer_inputs_get_numbers(here):
    """An input of 16-bit integers gets a deep picture as it is; one of bytes gets it on its scale, or refuses."""
    Image.fromarray(GREY * DEEP).save("a.png")
    np.testing.assert_array_equal(fed("a.png", 1, TensorProto.UINT16)[0], GREY * DEEP)
    np.testing.assert_array_equal(fed("a.png", 1, TensorProto.UINT8)[0], GREY)


def test_transparency_is_said(here):
    """Colours of transparent pixels are no part of the picture: the command says that they are used."""
    Image.fromarray(np.dstack([COLOUR, ALPHA])).save("a.png")
    copy_model(Path("copy.onnx"), [1, 3, "H", "W"])
    done = invoke("run", "copy.onnx", "-i", "a.png", "-o", "y.npy")
    assert done.stderr == "warning: a.png: some of it is transparent; the colours there are taken as they are stored\n"


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp"])
def test_the_first_picture_of_an_animation(here, name):
    """Of an animation the first picture is taken, and one line says so."""
    frames = [Image.fromarray(one) for one in (GREY, GREY[::-1])]
    frames[0].save(name, save_all=True, append_images=frames[1:], **({"lossless": True} if name == "a.webp" else {}))
    np.testing.assert_array_equal(fed(name)[0], GREY)
    done = invoke("run", "copy.onnx", "-i", name, "-o", "y.npy")
    assert done.stderr == f"warning: {name}: an animation: its first picture is taken\n"


def test_jpeg_inside_tiff(here):
    """Pages in JPEG, stored as YCbCr, are read as pictures and as volumes, close to what they were."""
    smooth = np.add.outer(np.arange(32), np.arange(48)).astype(np.uint8)
    colours = np.stack([smooth, smooth[::-1], 200 - smooth], axis=-1)
    options = {"photometric": "rgb", "compression": "jpeg", "compressionargs": {"level": 95}}
    tifffile.imwrite("a.tif", colours, **options)
    assert np.abs(fed("a.tif", 3) - np.moveaxis(colours, -1, 0)).max() < 6
    pages = np.stack([colours, colours[:, ::-1]])
    tifffile.imwrite("v.tif", pages, tile=(16, 16), metadata=None, **options)
    copy_model(Path("copy.onnx"), [1, 3, "D", "H", "W"])
    done = invoke("run", "copy.onnx", "-i", "v.tif", "-o", "y.npy")
    assert done.exit_code == OK, done.output
    assert np.abs(np.load("y.npy")[0] - np.moveaxis(pages, -1, 0)).max() < 6


def test_without_imagecodecs(here, monkeypatch):
    """Flat pictures in LZW are read by Pillow then; what nothing reads names the extra."""
    tifffile.imwrite("v.tif", np.stack([GREY, GREY]), compression="lzw", photometric="minisblack")
    GREY_ENCODINGS["lzw-16.tif"]("a.tif")
    deep_png("a.png")

    def missing(self, key):
        raise KeyError(key)

    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    monkeypatch.setattr(type(tifffile.TIFF.DECOMPRESSORS), "__getitem__", missing)
    np.testing.assert_array_equal(fed("a.tif")[0], GREY)
    copy_model(here / "copy.onnx", [1, 3, "H", "W"])
    fails(UNSUPPORTED, "run", "copy.onnx", "-i", "a.png", "-o", "z.npy", says="pip install '.[formats]'")
    copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"])
    fails(UNSUPPORTED, "run", "copy.onnx", "-i", "v.tif", "-o", "z.npy", says="pip install '.[formats]'")


@pytest.mark.parametrize(
    ("name", "save", "channels", "code", "says"),
    [
        ("a.tif", two_pages, 1, UNFIT, "pages of one size and type, got 2 kinds"),
        ("a.tif", tiff(np.zeros((5, 7), np.complex64)), 1, UNSUPPORTED, "expected integers or floats"),
        ("a.tif", tiff(COLOUR, photometric="cielab"), 3, UNSUPPORTED, "CIELAB of 8 bits"),
        ("a.tif", tiff(GREY.astype(np.float32), photometric="miniswhite"), 1, UNSUPPORTED, "what is black"),
        (
            "a.tif",
            tiff(np.dstack([COLOUR, ALPHA]), photometric="rgb", extrasamples=["assocalpha"]),
            3,
            UNSUPPORTED,
            "multiplied by their alpha",
        ),
        ("a.tif", pillow(COLOUR * 1, compression="tiff_lzw", tiffinfo={}), 5, UNFIT, "takes 5 channels"),
    ],
    ids=["sizes", "complex", "lab", "white-float", "alpha", "channels"],
)
def test_what_would_be_guessed_is_refused(here, name, save, channels, code, says):
    """Encodings that nobody can read as light for certain end with one sentence."""
    save(name)
    copy_model(here / "copy.onnx", [1, channels, "H", "W"])
    fails(code, "run", "copy.onnx", "-i", name, "-o", "y.npy", says=says)


def test_pages_that_are_turned_differently_are_refused(here):
    """A volume whose pages have several orientations has none."""
    with tifffile.TiffWriter("a.tif") as writer:
        for orientation in (1, 3):
            writer.write(GREY, extratags=[tag(274, orientation)], contiguous=False, metadata=None)
    copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"])
    fails(UNSUPPORTED, "run", "copy.onnx", "-i", "a.tif", "-o", "y.npy", says="of one orientation, got [1, 3]")


@pytest.mark.slow
def test_broken_tiffs_are_errors_of_ours(here):
    """Any byte of a TIFF may be another one: the command reads it, or says in one line that it cannot."""
    tifffile.imwrite("a.tif", GREY, photometric="palette", colormap=COLOURS.T.astype(np.uint16), compression="zlib")
    whole = Path("a.tif").read_bytes()
    copy_model(here / "copy.onnx", [1, 3, "H", "W"])
    for at in range(0, 200, 7):
        Path("a.tif").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        done = invoke("run", "copy.onnx", "-i", "a.tif", "-o", "y.npy")
        assert done.exit_code in (OK, UNFIT, UNSUPPORTED), (at, done.exception)
