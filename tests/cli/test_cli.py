"""The command `unpool`: what it writes, what it prints, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tifffile
from onnx import TensorProto
from PIL import Image

from tests.support import models
from tests.support.command import copy_model, fails, invoke, picture, pool_model, save_model, sum_model
from unpool.cli.errors import INTERRUPTED, OK, UNFIT, UNSUPPORTED, USAGE
from unpool.images.overlay import OKABE_ITO

RNG = np.random.default_rng(11)
ORANGE = np.array(OKABE_ITO[0], float)


def installed(*words) -> subprocess.CompletedProcess[str]:
    """The installed script in a process of its own."""
    script = Path(sys.executable).parent / ("unpool.exe" if os.name == "nt" else "unpool")
    return subprocess.run([script, *words], capture_output=True, text=True, check=False)


def test_picture_becomes_mask(bright, here):
    """--argmax writes the class numbers of a photograph as a palette picture of the same size."""
    pixels = picture("a.png", RNG.integers(0, 256, (5, 7)))
    result = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax")
    assert result.exit_code == OK
    mask = Image.open("m.png")
    assert mask.mode == "P"
    np.testing.assert_array_equal(np.asarray(mask), pixels > 100)
    assert result.stdout.startswith("m.png: 1x5x7 uint8; ")


def test_picture_becomes_overlay(bright, here):
    """--overlay keeps the background, blends the coins with orange, and adds a legend below."""
    pixels = picture("a.png", np.where(np.arange(900).reshape(30, 30) % 30 < 15, 40, 240))
    assert invoke("run", bright, "-i", "a.png", "-o", "o.png", "--overlay", "--alpha", "0.25").exit_code == OK
    drawn = np.asarray(Image.open("o.png"))
    assert drawn[3, 3].tolist() == [40, 40, 40]
    assert drawn[3, 20].tolist() == np.rint(0.75 * 240 + 0.25 * ORANGE).tolist()
    legend = drawn[30:].reshape(-1, 3).tolist()
    assert OKABE_ITO[0] in [tuple(pixel) for pixel in legend]
    assert pixels.shape[0] < drawn.shape[0]


def test_given_class_names_win(bright, here):
    """--classes replaces the names in the model, and a first class that is no background is coloured."""
    picture("a.png", [[0, 255]])
    result = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax", "--classes", "dark,light", "--json")
    assert json.loads(result.stdout)["results"][0]["areas"] == {"dark": 0.5, "light": 0.5}
    assert Image.open("m.png").getpalette()[:3] == list(OKABE_ITO[0])


def test_pixels_are_scaled_then_shifted_then_divided(here):
    """A colour image arrives as (pixel * scale - mean) / std per channel, NCHW, float32."""
    model = copy_model(here / "copy.onnx", [1, 3, "H", "W"])
    pixels = picture("a.png", RNG.integers(0, 256, (5, 7, 3)))
    words = ("--scale", "1/255", "--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225")
    assert invoke("run", model, "-i", "a.png", "-o", "y.npy", *words).exit_code == OK
    expected = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    written = np.load("y.npy")
    assert written.dtype == np.float32
    np.testing.assert_allclose(written[0], expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)


def test_single_mean_serves_all_channels(here):
    """One value of --mean holds for every channel."""
    model = copy_model(here / "copy.onnx", [1, 3, "H", "W"], TensorProto.DOUBLE)
    pixels = picture("a.png", RNG.integers(0, 256, (2, 3, 3)))
    assert invoke("run", model, "-i", "a.png", "-o", "y.npy", "--mean", "100").exit_code == OK
    np.testing.assert_array_equal(np.load("y.npy")[0], pixels.transpose(2, 0, 1) - 100.0)


def test_channels_last_model_takes_and_gives_channels_last(here):
    """--layout nhwc feeds (N, H, W, C) and writes a picture of such an output."""
    model = copy_model(here / "copy.onnx", [1, "H", "W", 3], TensorProto.UINT8)
    pixels = picture("a.png", RNG.integers(0, 256, (5, 7, 3)))
    assert invoke("run", model, "-i", "a.png", "-o", "y.png", "--layout", "nhwc").exit_code == OK
    np.testing.assert_array_equal(np.asarray(Image.open("y.png")), pixels)


def test_arrays_go_in_and_out_unchanged(bright, here):
    """A .npy goes in as it is, .npy and .npz hold the output of that array."""
    x = RNG.standard_normal((1, 1, 5, 7), np.float32) * 200
    np.save("x.npy", x)
    assert invoke("run", bright, "-i", "x.npy", "-o", "y.npy").exit_code == OK
    assert invoke("run", bright, "-i", "image=x.npy", "-o", "y.npz").exit_code == OK
    expected = np.concatenate([100.5 - x, x - 100.5], axis=1)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-6)
    with np.load("y.npz") as archive:
        np.testing.assert_array_equal(archive["logits"], np.load("y.npy"))


def test_npz_names_the_inputs(here):
    """The arrays of a .npz go to the inputs of their names, and so do NAME=PATH arguments."""
    model = sum_model(here / "sum.onnx")
    a, b = RNG.standard_normal((2, 1, 1, 2, 3), np.float32)
    np.savez("ab.npz", a=a, b=b)
    np.save("a.npy", a)
    np.save("b.npy", b)
    for inputs in (("-i", "ab.npz"), ("-i", "b=b.npy", "-i", "a=a.npy")):
        assert invoke("run", model, *inputs, "-o", "y.npy").exit_code == OK
        np.testing.assert_array_equal(np.load("y.npy"), a + b)


def test_all_outputs_go_into_npz_and_one_is_chosen_by_name(here):
    """.npz holds every output; --output-name picks the one that a .npy holds."""
    model = pool_model(here / "pool.onnx")
    x = RNG.permutation(16).reshape(1, 1, 4, 4).astype(np.float32)
    np.save("x.npy", x)
    assert invoke("run", model, "-i", "x.npy", "-o", "y.npz").exit_code == OK
    assert invoke("run", model, "-i", "x.npy", "-o", "i.npy", "--output-name", "i").exit_code == OK
    with np.load("y.npz") as both:
        np.testing.assert_array_equal(both["y"].ravel(), x.ravel()[both["i"].ravel()])
        np.testing.assert_array_equal(np.load("i.npy"), both["i"])


def test_folder_of_pictures(bright, here):
    """A folder gives one mask per picture, of the same name; other files in it are left out."""
    Path("in").mkdir()
    first = picture("in/a.png", RNG.integers(0, 256, (5, 7)))
    second = picture("in/b.png", RNG.integers(0, 256, (3, 4)))
    Path("in/notes.txt").write_text("not a picture")
    result = invoke("run", bright, "-i", "in", "-o", "out/", "--argmax")
    assert result.exit_code == OK
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.png", "b.png"]
    np.testing.assert_array_equal(np.asarray(Image.open("out/a.png")), first > 100)
    np.testing.assert_array_equal(np.asarray(Image.open("out/b.png")), second > 100)
    assert len(result.stdout.splitlines()) == 2


def test_folder_takes_another_format(bright, here):
    """--format names the kind of file that a folder gets; arrays are .npy without it."""
    picture("a.png", RNG.integers(0, 256, (5, 7)))
    picture("b.png", RNG.integers(0, 256, (5, 7)))
    for words, name in (((), "a.npy"), (("--format", "npz"), "a.npz"), (("--argmax", "--format", "tif"), "a.tif")):
        assert invoke("run", bright, "-i", "a.png", "-i", "b.png", "-o", "out/", *words).exit_code == OK
        assert (here / "out" / name).is_file()


def test_two_folders_are_matched_by_name(here):
    """Two inputs with folders run once per file name; one file for an input serves every run."""
    model = sum_model(here / "sum.onnx")
    arrays = {}
    for folder in ("a", "b"):
        Path(folder).mkdir()
        for name in ("p", "q"):
            arrays[folder, name] = RNG.standard_normal((1, 1, 2, 3), np.float32)
            np.save(f"{folder}/{name}.npy", arrays[folder, name])
    assert invoke("run", model, "-i", "a=a", "-i", "b=b", "-o", "out/").exit_code == OK
    assert invoke("run", model, "-i", "a=a", "-i", "b=b/p.npy", "-o", "same/").exit_code == OK
    np.testing.assert_array_equal(np.load("out/q.npy"), arrays["a", "q"] + arrays["b", "q"])
    np.testing.assert_array_equal(np.load("same/q.npy"), arrays["a", "q"] + arrays["b", "p"])


def test_volume_goes_through_tiff_pages(here):
    """A multi-page .tif fills (N, C, D, H, W), and such an output becomes a multi-page .tif."""
    model = copy_model(here / "copy.onnx", [1, 1, "D", "H", "W"])
    pixels = RNG.integers(0, 65536, (5, 7, 9), np.uint16)
    tifffile.imwrite("a.tif", pixels, photometric="minisblack")
    assert invoke("run", model, "-i", "a.tif", "-o", "y.tif", "--white", "255").exit_code == OK
    written = tifffile.imread("y.tif")
    assert written.dtype == np.float32
    np.testing.assert_array_equal(written, pixels)


def test_json_says_what_was_written(bright, here):
    """--json prints one document: files, shapes, types, areas and seconds."""
    picture("a.png", [[0, 0, 0, 255]])
    result = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax", "--json")
    (only,) = json.loads(result.stdout)["results"]
    assert only["seconds"] >= 0
    del only["seconds"]
    assert only == {
        "input": "a.png",
        "output": "m.png",
        "arrays": {"logits": {"shape": [1, 1, 4], "type": "uint8"}},
        "areas": {"background": 0.75, "coin": 0.25},
    }


def test_quiet_prints_nothing(bright, here):
    """-q leaves both streams empty when all is well."""
    picture("a.png", [[0, 255]])
    result = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax", "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (OK, "", "")


def test_verbose_logs_on_stderr(bright, here):
    """-v tells on stderr that an alpha channel was left out."""
    picture("a.png", np.concatenate([RNG.integers(0, 256, (2, 3, 3)), np.full((2, 3, 1), 255)], axis=-1))
    result = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax", "-v")
    assert result.stderr == "info: a.png: the alpha channel is left out\n"
    assert "alpha" not in result.stdout


def test_bfloat16_is_written_as_float32(here):
    """A bfloat16 output goes into files as float32, which loses nothing, and the result says float32."""
    model = copy_model(here / "copy.onnx", [1, 1, "H", "W"], TensorProto.BFLOAT16)
    pixels = picture("a.png", RNG.integers(0, 256, (5, 7)))
    result = invoke("run", model, "-i", "a.png", "-o", "y.npy", "-v")
    assert result.exit_code == OK, result.output
    assert "1x1x5x7 float32" in result.stdout
    np.testing.assert_array_equal(np.load("y.npy")[0, 0], pixels)


def test_unwritable_place_exits_3(bright, here):
    """A place that cannot be written is named, not its temporary neighbour."""
    picture("a.png", [[0, 255]])
    name = "long" * 64 + ".png"
    fails(UNFIT, "run", bright, "-i", "a.png", "-o", name, "--argmax", says="error: longlong")


def test_fallback_is_one_warning_line(here):
    """A model that onnxruntime refuses runs, and one line on stderr says who ran it."""
    text = "(double[1, 1, 2, 3] x) => (double[1, 1, 2, 3] y) { y = Conv (x, w) }"
    model = save_model(here / "double.onnx", text, w=np.full((1, 1, 1, 1), 2.0))
    x = RNG.standard_normal((1, 1, 2, 3))
    np.save("x.npy", x)
    done = installed("run", model, "-i", "x.npy", "-o", "y.npy")
    assert done.returncode == OK
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: onnxruntime refuses node")
    np.testing.assert_array_equal(np.load("y.npy"), 2 * x)


def test_inputs_are_never_overwritten(bright, here):
    """Writing over an input, also by another spelling of its path, or over the model is refused."""
    picture("a.png", [[0, 255]])
    for place in ("a.png", here / "." / "a.png"):
        fails(USAGE, "run", bright, "-i", "a.png", "-o", place, "--argmax", says="would be overwritten")
    fails(USAGE, "run", bright, "-i", here, "-o", here, "--argmax", says="would be overwritten")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-i", "b.png", "-o", "y.npy"), "b.png: no such file"),
        (("-i", "a.png", "-i", "x=a.png", "-o", "y.npz"), "the model has no input 'x', it has image"),
        (("-i", "broken.npy", "-o", "y.npy"), "broken.npy"),
        (("-i", "broken.npz", "-o", "y.npy"), "broken.npz"),
        (("-i", "broken.png", "-o", "y.npy"), "broken.png"),
        (("-i", "extra.npz", "-o", "y.npy"), "also holds other"),
        (("-i", "double.npy", "-o", "y.npy"), "cannot represent exactly"),
        (("-i", "flat.npy", "-o", "y.npy"), "takes 1x1x?x?, got 7"),
        (("-i", "empty", "-o", "y/"), "the folder has no files ending in .npy"),
        (("-i", "notes.txt", "-o", "y.npy"), ".txt"),
        (("-i", "a.png", "-o", "y.npy", "--output-name", "z"), "the model has outputs logits"),
        (("-i", "a.png", "-o", "y.png"), "1, 3 or 4 channels"),
        (("-i", "a.png", "-o", "nowhere/y.npy"), "no such folder"),
    ],
)
def test_what_does_not_fit_exits_3(bright, here, words, says):
    """Inputs that cannot be read or do not fit the model end with code 3 and one line."""
    picture("a.png", [[0, 255]])
    np.save("double.npy", np.full((1, 1, 5, 7), 0.1))
    np.save("flat.npy", np.zeros(7, np.float32))
    np.savez("extra.npz", image=np.zeros((1, 1, 5, 7), np.float32), other=np.zeros(3))
    Path("empty").mkdir()
    for name in ("broken.npy", "broken.npz", "broken.png", "notes.txt"):
        Path(name).write_bytes(b"no array")
    fails(UNFIT, "run", bright, *words, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-i", "a.png", "-o", "y.bmp"), "expected a name that ends in .npy, .npz, .png"),
        (("-i", "a.png", "-o", "masks"), "got no suffix. For a new folder, write masks/"),
        (("-i", "a.png", "-i", "b.png", "-o", "y.npy"), "expected a folder for 2 results"),
        (
            ("-i", "a.png", "-i", "sub/a.png", "-o", "y/"),
            "would share a result: a.png and sub/a.png. Rename",
        ),
        (("-i", "image=x.npz", "-o", "y.npy"), "names its inputs itself"),
        (("-i", "a.png", "-o", "y.npy", "--overlay"), "--overlay draws a picture"),
        (("-i", "x.npy", "-o", "y.png", "--overlay"), "the inputs are arrays"),
        (("-i", "x.npy", "-o", "y.npy", "--scale", "2"), "change images"),
        (("-i", "a.png", "-o", "y.npy", "--scale", "1/0"), "--scale: expected a number"),
        (("-i", "a.png", "-o", "y.npy", "--std", "0"), "--std: expected numbers above 0"),
        (("-i", "a.png", "-o", "y.npy", "--mean", "1,2"), "--mean: expected 1 value, got 2"),
        (("-i", "a.png", "-o", "y.npy", "--classes", "a,b"), "--classes names the classes of"),
        (("-i", "a.png", "-o", "y.png", "--argmax", "--classes", "a"), "expected 2 names, got 1"),
        (("-i", "a.png", "-o", "y.npy", "--format", "png"), "a file of another format"),
    ],
)
def test_options_that_contradict_exit_2(bright, here, words, says):
    """Options that do not suit each other or the files end with code 2 and one line."""
    Path("sub").mkdir()
    for name in ("a.png", "b.png", "sub/a.png"):
        picture(name, [[0, 255]])
    np.save("x.npy", np.zeros((1, 1, 5, 7), np.float32))
    np.savez("x.npz", image=np.zeros((1, 1, 5, 7), np.float32))
    fails(USAGE, "run", bright, *words, says=says)


MODELS = {
    "one size": lambda path: copy_model(path, [1, 1, 5, 7]),
    "any size": lambda path: copy_model(path, [1, 1, "H", "W"]),
    "bytes": lambda path: copy_model(path, [1, 1, "H", "W"], TensorProto.UINT8),
    "two inputs": sum_model,
    "two outputs": pool_model,
}


@pytest.mark.parametrize(
    ("model", "code", "words", "says"),
    [
        ("one size", UNFIT, ("-i", "a.png", "-o", "y.npy"), "takes 1x1x5x7, got 1x1x6x7"),
        ("any size", UNSUPPORTED, ("-i", "a.png", "-o", "y.png"), "got float32. Write .tif or .npy"),
        ("bytes", UNFIT, ("-i", "deep.png", "-o", "y.npy"), "cannot hold exactly"),
        ("two inputs", USAGE, ("-i", "x.npy", "-o", "y.npy"), "inputs a, b. Name one: -i a=x.npy"),
        ("two inputs", UNFIT, ("-i", "a=x.npy", "-o", "y.npy"), "nothing is given for b"),
        ("two outputs", USAGE, ("-i", "x.npy", "-o", "y.npy"), "outputs y, i. Choose one with --output-name"),
    ],
)
def test_what_a_model_does_not_take_is_not_guessed(here, model, code, words, says):
    """Nothing is resized, rounded, clipped or chosen: the error names what there is, and what to give."""
    picture("a.png", RNG.integers(0, 256, (6, 7)))
    Image.fromarray(np.array([[0, 999]], np.uint16)).save("deep.png")
    np.save("x.npy", np.zeros((1, 1, 4, 4), np.float32))
    fails(code, "run", MODELS[model](here / "m.onnx"), *words, says=says)


def test_interruption_leaves_nothing(bright, here, monkeypatch):
    """Ctrl-C in the middle of a folder removes what was staged and exits 130."""
    for name in ("a.png", "b.png"):
        picture(name, [[0, 255]])
    calls = []

    def run_once(self, names, feed, options=None):
        calls.append(feed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return [np.zeros((1, 2, 1, 2), np.float32)]

    monkeypatch.setattr("unpool.onnxruntime.session.InferenceSession.run", run_once)
    words = ("run", bright, "-i", "a.png", "-i", "b.png", "-o", "out/", "--argmax")
    fails(INTERRUPTED, *words, says="interrupted")
    assert len(calls) == 2


def test_inspect_gives_json(here):
    """The option --json of inspect gives the plan as data."""
    result = invoke("inspect", pool_model(here / "pool.onnx"), "--json")
    described = json.loads(result.stdout)
    assert described["inputs"] == [{"name": "x", "shape": [1, 1, "H", "W"], "type": "tensor(float)"}]
    assert [one["name"] for one in described["outputs"]] == ["y", "i"]
    assert described["opsets"] == {"": 17}
    (row,) = described["plan"]
    assert row["operator"] == "MaxPool"
    assert row["runner"] == "unpool"


def test_inspect_lists_every_node(here):
    """With --all also those of onnxruntime, in the order of the model."""
    onnx.save(models.segnet(), here / "segnet.onnx")
    rows, own = (
        json.loads(invoke("inspect", "segnet.onnx", *words, "--json").stdout)["plan"] for words in (["--all"], [])
    )
    assert [row["operator"] for row in rows][:4] == ["Conv", "BatchNormalization", "Relu", "MaxPool"]
    assert {row["runner"] for row in rows if row["operator"] in ("Conv", "Relu")} == {"onnxruntime"}
    assert [row for row in rows if row["runner"] == "unpool"] == [row for row in own if row["runner"] == "unpool"]


def test_demo_finds_the_coins(here):
    """It writes a mask and an overlay of the photograph; the command that it prints gives the mask again."""
    result = invoke("demo")
    assert result.exit_code == OK, result.output
    mask = Image.open("coins-mask.png")
    assert mask.size == (384, 303)
    assert set(np.unique(np.asarray(mask)).tolist()) == {0, 1}
    assert np.asarray(Image.open("coins-overlay.png")).shape[0] > 303
    name, *words = result.stdout.splitlines()[-1].partition("; ")[2].split()
    assert name == "unpool"
    assert invoke(*words).exit_code == OK
    assert np.array_equal(Image.open("mask.png"), mask)


def test_installed_command_has_no_colour_without_a_terminal(bright, here):
    """The installed script runs in its own process and writes plain text when nobody watches."""
    picture("a.png", [[0, 255]])
    done = installed("run", bright, "-i", "a.png", "-o", "m.png", "--argmax")
    assert (done.returncode, done.stderr) == (OK, "")
    assert done.stdout.startswith("m.png: 1x1x2 uint8; background 50.0 %, coin 50.0 % of the area (")
    assert "\x1b" not in done.stdout
