"""Pixels that Python feeds a model, and those of the command."""

import numpy as np
import pytest
import tifffile
from PIL import Image

import unpool
from tests.cli.test_model_says import COLOUR, DEEP, GREY, STEPS, fed, saying
from unpool.picture_input import PictureInput

MODELS = {
    "plain": {},
    "steps": STEPS,
    "white": {"unpool.input_white": "4095"},
    "both": STEPS | {"unpool.input_white": "1"},
}
PICTURES = {"grey": GREY, "colour": COLOUR, "16 bits": GREY * DEEP, "floats": GREY / np.float32(255)}


@pytest.mark.parametrize("entries", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("pixels", PICTURES.values(), ids=PICTURES)
def test_the_input_is_that_of_the_command(here, entries, pixels):
    """Whatever the picture and the metadata, `array` has the numbers that `unpool run` gives the model."""
    tifffile.imwrite("a.tif", pixels)
    model = saying("m.onnx", entries, 3)
    model_input = PictureInput(unpool.InferenceSession(model))
    picture = unpool.images.read("a.tif", channels=model_input.channels)
    np.testing.assert_array_equal(model_input.array(picture)[0], fed(model, "a.tif")[0])


def test_a_picture_that_does_not_fit(here):
    """It is refused with the words of the command, and a size that fits is known."""
    coins = PictureInput(unpool.InferenceSession(str(unpool.__path__[0]) + "/data/coins.onnx"))
    x = coins.array(unpool.images.Picture(np.zeros((4, 4, 1), np.uint8), 255))
    assert coins.size_error(x).startswith("the model runs from 8x8 on, got 4x4.")
    Image.fromarray(COLOUR).save("a.png")
    with pytest.raises(unpool.ShapeError, match="takes"):
        coins.array(unpool.images.read("a.png"))
