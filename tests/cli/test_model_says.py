"""What a model says of its pictures and classes, and arrays of another rank or type than it takes."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tifffile
from onnx import TensorProto, helper
from PIL import Image

from tests.support.command import copy_model, fails, invoke
from unpool.cli.errors import OK, UNFIT, USAGE

RNG = np.random.default_rng(5)
GREY = RNG.integers(1, 256, (5, 7), np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)
DEEP = np.uint16(257)
STEPS = {
    "unpool.input_scale": "1/255",
    "unpool.input_mean": "0.485,0.456,0.406",
    "unpool.input_std": "0.229,0.224,0.225",
}
OPTIONS = ("--scale", "1/255", "--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225")


def saying(path, entries, channels=1, kind=TensorProto.FLOAT):
    model = onnx.load(copy_model(Path(path), [1, channels, "H", "W"], kind))
    helper.set_model_props(model, entries)
    onnx.save(model, path)
    return path


def fed(model, source, *options):
    """What the model gets, and what the command says about it."""
    done = invoke("run", model, "-i", source, "-o", "y.npy", *options)
    assert done.exit_code == OK, done.output
    return np.load("y.npy")[0], done.stderr


def test_the_model_says_what_options_say(here):
    """Steps that the model names are those that options name, and options come before them, one by one."""
    Image.fromarray(COLOUR).save("a.png")
    plain, told = saying("plain.onnx", {}, 3), saying("told.onnx", STEPS, 3)
    np.testing.assert_array_equal(fed(told, "a.png")[0], fed(plain, "a.png", *OPTIONS)[0])
    others = ("--mean", "0", "--std", "2")
    np.testing.assert_array_equal(fed(told, "a.png", *others)[0], fed(plain, "a.png", "--scale", "1/255", *others)[0])
    np.save("x.npy", COLOUR.astype(np.float32).transpose(2, 0, 1)[None])
    np.testing.assert_array_equal(fed(told, "x.npy")[0], COLOUR.transpose(2, 0, 1))
    assert "told.onnx says unpool.input_scale = 1/255" in fed(told, "a.png", "-v")[1]


WHITES = {
    "8 bits, deep picture": (
        "255",
        GREY * DEEP,
        GREY,
        "its white is 65535, the model is for pictures whose white is 255",
    ),
    "16 bits, deep picture": ("65535", GREY * DEEP, GREY, ""),
    "16 bits, flat picture": ("65535", GREY, GREY, "its white is 255, the model is for pictures whose white is 65535"),
    "12 bits": ("4095", GREY * np.uint16(16), GREY * (16 * 255 / 4095), ""),
    "12 bits, too bright": ("4095", GREY * DEEP, GREY * (257 * 255 / 4095), "above 4095, white as the model says"),
    "floats": ("1", GREY / np.float32(255), GREY, "are read with 1 as white, as the model says"),
}


@pytest.mark.parametrize("name", WHITES)
def test_white_of_the_model(here, name):
    """The depth that a model is for decides how deep files are read, and what differs is said in one line."""
    white, pixels, expected, says = WHITES[name]
    tifffile.imwrite("a.tif", pixels)
    model = saying("m.onnx", {"unpool.input_white": white})
    got, said = fed(model, "a.tif")
    np.testing.assert_allclose(got[0], expected, rtol=1e-6)
    assert (said.count("\n"), says in said) == (1 if says else 0, True)
    assert fed(model, "a.tif", "--white", "255")[1] == ""


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("input_scale", "1e999999999"),
        ("input_scale", "much"),
        ("input_mean", "0.1,nan"),
        ("input_std", "0"),
        ("input_white", "-255"),
        ("input_scale", "9" * 2**21),
        ("palette", "#000000,red"),
    ],
)
def test_a_hostile_model_is_refused(bright, here, entry, text):
    """An entry that is not what it should be ends with one short line, which names it."""
    model = onnx.load(bright)
    helper.set_model_props(model, {f"unpool.{entry}": text})
    onnx.save(model, "m.onnx")
    Image.fromarray(GREY).save("a.png")
    words = ("run", "m.onnx", "-i", "a.png", "-o", "y.png", "--argmax")
    fails(UNFIT, *words, says=f"m.onnx: its metadata, unpool.{entry}: expected ")
    assert len(invoke(*words).stderr) < 200


def test_hostile_class_names_steer_nothing(here):
    """Names of classes go to a terminal and into a picture: without its controls, and not for ever."""
    entries = {"classes": json.dumps(["a\x1b[2J\nb", "long " * 99])}
    Image.fromarray(np.array([[0, 1]], np.uint8)).save("a.png")
    done = invoke(
        "run", saying("m.onnx", entries, 1, TensorProto.UINT8), "-i", "a.png", "-o", "o.png", "--overlay", "--json"
    )
    first, second = json.loads(done.stdout)["results"][0]["areas"]
    assert first == "a [2J b"
    assert len(second) == 100


def test_colours_of_the_model(bright, here):
    """A palette in the model colours masks; --palette comes before it; classes behind its end keep ours."""
    model = onnx.load(bright)
    helper.set_model_props(model, {"classes": "sky,sea", "unpool.palette": "#102030"})
    onnx.save(model, "m.onnx")
    Image.fromarray(GREY).save("a.png")
    for words, first in (((), [16, 32, 48]), (("--palette", "#ff0000,#00FF00"), [255, 0, 0])):
        assert invoke("run", "m.onnx", "-i", "a.png", "-o", "m.png", "--argmax", *words).exit_code == OK
        found = Image.open("m.png").getpalette()
        assert found[:3] == first
        assert found[3:6] == ([0, 255, 0] if words else [86, 180, 233])
    words = ("-i", "a.png", "-o", "y.npy", "--palette", "#ff0000")
    fails(USAGE, "run", "m.onnx", *words, says="--palette colours the classes")


PROMOTED = {
    "volume": ((4, 5, 6), np.int16, (1, 1, 4, 5, 6), "4x5x6 int16 goes in as 1x1x4x5x6 float32"),
    "channels": ((1, 4, 5, 6), np.float32, (1, 1, 4, 5, 6), "1x4x5x6 float32 goes in as 1x1x4x5x6 float32"),
    "type": ((1, 1, 4, 5, 6), np.float64, (1, 1, 4, 5, 6), "1x1x4x5x6 float64 goes in as 1x1x4x5x6 float32"),
    "none": ((1, 1, 4, 5, 6), np.float32, (1, 1, 4, 5, 6), ""),
}


@pytest.mark.parametrize("name", PROMOTED)
def test_arrays_of_another_rank_or_type(here, name):
    """Axes of one element are added, types widened where that loses nothing, and one line says so."""
    shape, dtype, expected, says = PROMOTED[name]
    x = RNG.integers(-999, 999, shape).astype(dtype)
    np.save("vol.npy", x)
    model = copy_model(here / "m.onnx", ["N", 1, "D", "H", "W"])
    done = invoke("run", model, "-i", "vol.npy", "-o", "y.npy")
    assert done.stderr == (f"warning: vol.npy: {says}\n" if says else "")
    np.testing.assert_array_equal(np.load("y.npy"), x.reshape(expected).astype(np.float32))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.full((1, 1, 2, 2, 2), 2**24 + 1), "int64 from 1.67772e+07 to 1.67772e+07, which it cannot represent"),
        (np.zeros((3, 2, 2, 2), np.float32), "takes ?x1x?x?x?, got 3x2x2x2"),
        (np.zeros((2, 2), np.float32), "takes ?x1x?x?x?, got 2x2"),
        (np.zeros((1, 1, 2, 2, 2), np.complex64), "takes float32, got complex64"),
    ],
    ids=["numbers", "three of what", "flat", "complex"],
)
def test_arrays_that_would_be_guessed(here, x, says):
    """Numbers that would be rounded, and axes that could be two things, are refused."""
    np.save("x.npy", x)
    model = copy_model(here / "m.onnx", ["N", 1, "D", "H", "W"])
    fails(UNFIT, "run", model, "-i", "x.npy", "-o", "y.npy", says=says)
