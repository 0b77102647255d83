"""`--tile` and `--max-memory` of the command, and what `inspect` says about tiles."""

import json

import numpy as np
import onnx
import pytest
from PIL import Image

import unpool
from tests.support import models
from tests.support.command import invoke


@pytest.fixture
def here(here):
    """An empty folder with a model and an image, as the current one."""
    onnx.save(models.halves(), "m.onnx")
    np.save("x.npy", np.random.default_rng(0).random((1, 1, 30, 41), np.float32))
    return here


@pytest.mark.parametrize("words", [("--tile", "8x12"), ("--tile", "auto"), ("--max-memory", "100GiB")])
def test_tiles_give_the_same_file(here, words):
    """Whatever the tiles, the file is that of the untiled run."""
    assert invoke("run", "m.onnx", "-i", "x.npy", "-o", "whole.npy").exit_code == 0
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "tiled.npy", *words)
    assert done.exit_code == 0, done.output
    assert (here / "tiled.npy").read_bytes() == (here / "whole.npy").read_bytes()


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (2, ("-o", "y.png", "--resume"), "--resume: works for"),
        (2, ("--blend", "constant"), "Add it, such as --tile 512"),
        (2, ("--overlap", "0.5"), "--overlap needs --blend"),
        (2, ("--tile", "8x8", "--blend", "constant", "--overlap", "1.5"), "below 1, got 1.5"),
        (2, ("-o", "y.zarr", "--overlay"), "--overlay draws a picture"),
        (2, ("--tile", "8by8"), "expected auto, or sizes"),
        (2, ("--tile", "0"), "expected auto, or sizes"),
        (2, ("--max-memory", "much"), "such as 2GiB"),
        (2, ("--tile", "8x8", "--max-memory", "1GiB"), "Leave one of them out"),
        (2, ("--tile", "8x8x8"), "Write --tile 8x8."),
        (3, ("--max-memory", "1MiB"), "--max-memory 1MiB is too small: this run needs at least about"),
        (3, ("--max-memory", "1"), "--max-memory 1 byte is too small: this run needs at least about"),
    ],
)
def test_options_that_do_not_fit(here, code, words, says):
    """Words that mean nothing exit with 2, sizes that do not fit the model or the memory with 3."""
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", *words)
    assert (done.exit_code, sorted(path.name for path in here.iterdir())) == (code, ["m.onnx", "x.npy"])
    assert says in done.output + done.stderr


def test_one_number_is_the_size_along_every_axis(here):
    """`--tile 8` is `--tile 8x8`, also to resume a run and with `--blend`; in Python, 8 is [8, 8]."""
    whole = invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--tile", "8x8", "--json")
    assert json.loads(whole.stdout)["results"][0]["tiles"]["tiles"] == 24
    assert "already complete" in invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--tile", "8", "--resume").stdout
    for number, size in enumerate(("8", "8x8")):
        done = invoke("run", "m.onnx", "-i", "x.npy", "-o", f"{number}.npy", "--tile", size, "--blend", "constant")
        assert done.exit_code == 0, done.stderr
    assert (here / "0.npy").read_bytes() == (here / "1.npy").read_bytes()
    session, image = unpool.InferenceSession("m.onnx"), {"x": np.load("x.npy")}
    assert unpool.streams.run(session, image, "z.npy", 8).progress.tiles == 24
    assert len(unpool.tiles.Tiler(session).tiling({"x": (1, 1, 30, 41)}, 8)) == 24
    np.testing.assert_array_equal(unpool.tiles.run(session, image, 8)["y"], np.load("y.npy"))


SCORES = "scores (float[1, 1, {axes}] x) => (float[1, 2, {axes}] y) {{ a = Neg (x)  y = Concat <axis = 1> (x, a) }}"


@pytest.mark.parametrize("suffix", ["npy", "tif", "zarr", "npz", "png"])
def test_tiled_runs_print_the_shares_of_the_whole_image(here, suffix):
    """The share of every class, by its name, is that of the untiled run, and that of a resumed one."""
    onnx.save(models.model(SCORES.format(axes="h, w")), "m.onnx")
    np.save("x.npy", np.random.default_rng(0).random((1, 1, 30, 41), np.float32) - np.float32(0.3))
    words = ("run", "m.onnx", "-i", "x.npy", "-o", f"y.{suffix}", "--argmax", "--classes", "up,down", "--json")
    expected = json.loads(invoke(*words[:4], "-o", "whole.npy", *words[6:]).stdout)["results"][0]["areas"]
    assert set(expected) == {"up", "down"}
    assert json.loads(invoke(*words, "--tile", "8").stdout)["results"][0]["areas"] == expected


def test_shares_of_a_volume_are_of_its_volume(here):
    """Class numbers along three axes have no area."""
    onnx.save(models.model(SCORES.format(axes="d, h, w")), "m.onnx")
    np.save("x.npy", np.ones((1, 1, 4, 5, 6), np.float32))
    for words in ((), ("--tile", "3")):
        assert (
            "class 0 100.0 % of the volume"
            in invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.npy", "--argmax", *words).stdout
        )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "y.png", "--argmax", "--classes", "a,b,c"), "--classes: expected 2 names, got 3 (a, b, c)"),
        (("-o", "y.npy", "--argmax", "--tile", "8", "--classes", "a"), "--classes: expected 2 names, got 1 (a)"),
        (("-o", "y.png", "--argmax", "--palette", "#000000,#111111,#222222"), "expected at most 2 colours, got 3"),
        (("-o", "y.png"), "output 'y' has 2 channels, a .png holds 1, 3 or 4 channels. For classes, add --argmax"),
        (
            ("-o", "y.jpg", "--tile", "8"),
            "a .jpg holds 1 or 3 channels. For classes, add --argmax (a mask) or --overlay",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit_the_channels(here, words, says):
    """Names, colours and pictures that do not fit the scores are refused before anything is computed."""
    onnx.save(models.model(SCORES.format(axes="h, w")), "m.onnx")
    done = invoke("run", "m.onnx", "-i", "x.npy", *words)
    assert (done.exit_code, says in done.stderr) == (3 if "holds" in says else 2, True), done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["m.onnx", "x.npy"]


def test_more_names_than_numbers_that_occur(here):
    """A model that gives class numbers may know classes that this image does not have."""
    onnx.save(models.model("numbers (uint8[1, 1, h, w] x) => (uint8[1, 1, h, w] y) { y = Identity (x) }"), "m.onnx")
    np.save("x.npy", np.array([[[[0, 1]]]], np.uint8))
    done = invoke("run", "m.onnx", "-i", "x.npy", "-o", "y.png", "--argmax", "--classes", "a,b,c")
    assert (done.exit_code, "a 50.0 %, b 50.0 % of the area" in done.stdout) == (0, True), done.stderr


def test_inspect_says_how_far_outputs_see(here):
    """Total stride, receptive field, halo, and a forecast of memory for a size; or the node that forbids tiles."""
    done = invoke("inspect", "m.onnx", "--size", "height=64", "--size", "width=128", "--json")
    found = json.loads(done.stdout)["tiles"]
    axis = {"step": "2", "field": 3, "before": 1, "after": 0}
    assert (found["stride"], found["outputs"], found["refusal"]) == ([2, 2], {"y": [axis, axis]}, None)
    assert found["bytes"] > 32 * 64 * 4
    onnx.save(models.model("pool (float[1, 1, h, w] x) => (float[1, 1, 1, 1] y) { y = GlobalMaxPool (x) }"), "g.onnx")
    assert "pools the whole image" in invoke("inspect", "g.onnx").stdout


SMALL = {
    "whole": ("y.npy",),
    "tiles": ("y.npy", "--tile", "8x8"),
    "memory": ("y.npy", "--max-memory", "100GiB"),
    "windows": ("y.zarr",),
    "picture": ("y.png", "--argmax"),
    "picture in tiles": ("y.png", "--argmax", "--tile", "8x8"),
    "overlay": ("y.tif", "--overlay"),
    "standard output": ("-",),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SMALL)
def test_images_below_the_smallest_input_are_refused(here, name):
    """Whatever the way to the output, the size that is needed stands in the error, and nothing is written."""
    onnx.save(models.segnet(size="height, width", classes=3), "deep.onnx")
    smallest = json.loads(invoke("inspect", "deep.onnx", "--json").stdout)["tiles"]["smallest"]
    least = [axis["least"] for axis in smallest]
    assert min(least) > 3
    before = sorted(here.iterdir())
    for height, width in ((3, 3), (least[0] - 1, 40), (40, least[1] - 1)):
        Image.fromarray(np.zeros((height, width, 3), np.uint8)).save("a.png")
        done = invoke("run", "deep.onnx", "-i", "a.png", "-o", *SMALL[name])
        assert done.exit_code == 3
        assert f"a.png: the model runs from {least[0]}x{least[1]} on, got {height}x{width}." in done.stderr
        (here / "a.png").unlink()
        assert sorted(here.iterdir()) == before
    Image.fromarray(np.zeros((*least, 3), np.uint8)).save("a.png")
    assert invoke("run", "deep.onnx", "-i", "a.png", "-o", *SMALL[name]).exit_code == 0


def test_small_images_run_on_request(here):
    """--allow-empty gives what the session gives; with --keep-going a small image is left out of many."""
    pool = "kernel_shape = [2, 2], strides = [2, 2]"
    text = f"""deep (float[1, 3, h, w] image) => (float[1, 3, h, w] y) {{
        p, i = MaxPool <{pool}> (image)  q, j = MaxPool <{pool}> (p)
        large = Shape (image)  small = Shape (p)
        r = MaxUnpool <{pool}> (q, j, small)  y = MaxUnpool <{pool}> (r, i, large) }}"""
    onnx.save(models.model(text), "deep.onnx")
    (here / "in").mkdir()
    for name, size in (("small", 3), ("large", 40)):
        Image.fromarray(np.full((size, size, 3), 7, np.uint8)).save(f"in/{name}.png")
    assert invoke("run", "deep.onnx", "-i", "in/small.png", "-o", "y.npy", "--allow-empty").exit_code == 0
    (expected,) = unpool.InferenceSession("deep.onnx").run(None, {"image": np.full((1, 3, 3, 3), 7, np.float32)})
    np.testing.assert_array_equal(np.load("y.npy"), expected)
    done = invoke("run", "deep.onnx", "-i", "in", "-o", "out/", "--keep-going")
    assert done.exit_code == 1
    assert [path.name for path in (here / "out").iterdir()] == ["large.npy"]
