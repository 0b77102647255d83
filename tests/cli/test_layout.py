"""Channels-last models, as Keras and tf2onnx write them: errors name --layout nhwc where it helps, and it does."""

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.support import models
from tests.support.command import invoke
from unpool import InferenceSession
from unpool.cli.errors import OK
from unpool.errors import UnsupportedError
from unpool.runtime.report.report import ReportOptions, report
from unpool.runtime.tiles.run import run as run_tiles

COMMANDS = {
    "run": ("run", "m.onnx", "-i", "p.png", "-o", "y.npy"),
    "run in tiles": ("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--tile", "16x16"),
    "run in tiles of a picture": ("run", "m.onnx", "-i", "p.png", "-o", "y.npy", "--tile", "16x16"),
    "run to a mask": ("run", "m.onnx", "-i", "p.png", "-o", "y.png", "--argmax"),
    "inspect": ("inspect", "m.onnx"),
    "report": ("report", "m.onnx", "-i", "p.png", "-o", "r.html", "--iterations", "0"),
    "compare": ("compare", "m.onnx", "-i", "p.png"),
    "bench": ("bench", "m.onnx", "-i", "p.png", "--iterations", "1"),
}


def channels_last(sizes="n, h, w, 3"):
    """A round trip between two Transposes."""
    return models.model(
        f"""keras (float[{sizes}] image) => (float[n2, h2, w2, c2] out) {{
            x = Transpose <perm = [0, 3, 1, 2]> (image)
            c = Conv <pads = [1, 1, 1, 1]> (x, w)
            y, i = MaxPool <{models.POOL}> (c)
            u = MaxUnpool <{models.POOL}> (y, i)
            out = Transpose <perm = [0, 2, 3, 1]> (u)
        }}""",
        w=models.random(5, 3, 3, 3),
    )


@pytest.fixture
def folder(here):
    """A channels-last model, a picture and an array for it."""
    onnx.save(channels_last(), "m.onnx")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)).save("p.png")
    np.save("x.npy", models.random(1, 32, 48, 3))
    return here


def save_first(channels):
    """A channels-first pool in the place of the model."""
    text = f"g (float[n, {channels}, h, w] x) => (float[n, c, p, q] y) {{ y = MaxPool <{models.POOL}> (x) }}"
    onnx.save(models.model(text), "m.onnx")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_layout_is_named_and_helps(folder, name):
    """Without the option, the text names it; with it, the command works and says nothing about layouts."""
    assert "--layout nhwc" in invoke(*COMMANDS[name]).output
    done = invoke(*COMMANDS[name], "--layout", "nhwc")
    assert done.exit_code == OK, done.output
    assert "--layout" not in done.output
    assert "none are exact" not in done.output


@pytest.mark.parametrize("sizes", ["a, b, c, d", "1, 32, 48, 3"])
def test_open_and_fixed_sizes(folder, sizes):
    """A run that fails on a picture names the layout in which it does not fail, whatever sizes the model states."""
    onnx.save(channels_last(sizes), "m.onnx")
    assert "--layout nhwc" in invoke("run", "m.onnx", "-i", "p.png", "-o", "y.npy").output
    assert invoke("run", "m.onnx", "-i", "p.png", "-o", "y.npy", "--layout", "nhwc").exit_code == OK


def test_the_layout_of_a_channels_first_model(folder):
    """The other way round: a channels-first model that gets --layout nhwc."""
    save_first(3)
    assert "--layout nchw" in invoke(*COMMANDS["run"], "--layout", "nhwc").output


def test_an_array_is_to_be_transposed(folder):
    """An array goes in as it is, whatever the layout: the message gives the shape that fits."""
    np.save("x.npy", models.random(1, 3, 32, 48))
    text = invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy").output
    assert "Transpose it to 1x32x48x3" in text
    assert "--layout" not in text


def test_a_mask_of_an_array_says_which_axis(folder):
    """An array fits, so nothing fails: a note says along which axis classes were counted."""
    assert "--layout nhwc" in invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--argmax").output


def test_a_shape_that_does_not_fit_either_is_only_a_shape(folder):
    """Where neither layout fits, no layout is named."""
    save_first(5)
    assert "layout" not in invoke("run", "m.onnx", "-i", "p.png", "-o", "y.npy").output


def test_tiles_name_the_layout_that_they_tried():
    """The refusal of a node names the other layout only if tiles are exact in it."""
    session, x = InferenceSession(channels_last()), models.random(1, 32, 48, 3)
    with pytest.raises(UnsupportedError, match="With layout='NHWC'"):
        run_tiles(session, {"image": x}, (16, 16))
    (expected,) = session.run(None, {"image": x})
    np.testing.assert_allclose(run_tiles(session, {"image": x}, (16, 16), layout="NHWC")["out"], expected, atol=1e-5)
    pooled = models.model("g (float[n, 3, h, w] x) => (float[n, c, p, q] y) { y = GlobalAveragePool (x) }")
    with pytest.raises(UnsupportedError) as caught:
        run_tiles(InferenceSession(pooled), {"x": models.random(1, 3, 32, 48)}, (16, 16))
    assert "layout" not in str(caught.value)


def test_a_report_forecasts_the_memory_of_its_layout():
    """The forecast of a run's peak needs the layout of the image."""
    x, options = models.random(1, 32, 48, 3), ReportOptions(effort=None, accuracy=False)
    last, first = (report(channels_last(), {"image": x}, layout=layout, options=options) for layout in ("NHWC", "NCHW"))
    assert last.memory.peak_bytes is not None
    assert first.memory.peak_bytes is None
    assert "layout='NHWC'" in first.memory.reason
