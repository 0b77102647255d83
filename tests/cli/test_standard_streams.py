"""`-` for standard input and output, places for results, the order of files, and what a terminal shows meanwhile."""

import io
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.testing import CliRunner

from tests.support.command import fails, invoke, pool_model, save_model, sum_model
from unpool.cli.app import app
from unpool.cli.errors import OK, UNFIT, USAGE

RNG = np.random.default_rng(6)
GREY = RNG.integers(0, 256, (5, 7), np.uint8)


def piped(content, *words):
    """The command with these bytes on its standard input."""
    return CliRunner().invoke(app, [str(word) for word in words], input=content)


def as_bytes(kind):
    stream = io.BytesIO()
    if kind == "npy":
        np.save(stream, GREY[None, None].astype(np.float32))
    elif kind == "tif":
        tifffile.imwrite(stream, GREY)
    else:
        Image.fromarray(GREY).save(stream, format=kind, **({"lossless": True} if kind == "webp" else {}))
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["npy", "png", "tif", "bmp", "webp"])
def test_standard_input_and_output(bright, here, kind):
    """A picture or array comes through standard input, its mask goes through standard output, words go elsewhere."""
    before = sorted(here.iterdir())
    done = piped(as_bytes(kind), "run", bright, "-i", "-", "-o", "-", "--argmax")
    assert done.exit_code == OK, done.stderr
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(done.stdout_bytes))), GREY > 100)
    assert done.stderr.startswith("standard output: 1x5x7 uint8; ")
    assert sorted(here.iterdir()) == before


def test_one_of_two_inputs_is_standard_input(here):
    """NAME=- works beside a file, arrays come out as .npy, and -q says nothing at all."""
    model = sum_model(here / "sum.onnx")
    a, b = RNG.standard_normal((2, 1, 1, 2, 3), np.float32)
    np.save("b.npy", b)
    stream = io.BytesIO()
    np.save(stream, a)
    done = piped(stream.getvalue(), "run", model, "-i", "a=-", "-i", "b=b.npy", "-o", "-", "-q")
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout_bytes)), a + b)
    assert done.stderr == ""
    fails(USAGE, "run", model, "-i", "a=-", "-i", "b=-", "-o", "y.npy", says="it is given more than once")


def test_what_standard_streams_do_not_take(bright, here):
    """Nothing, other bytes, several results and --json end with one line."""
    Image.fromarray(GREY).save("a.png")
    Image.fromarray(GREY).save("b.png")
    for content, says in ((b"", "got nothing"), (b"text", "got other bytes"), (b"\x89PNG broken", "standard input: ")):
        done = piped(content, "run", bright, "-i", "-", "-o", "y.npy")
        assert (done.exit_code, len(done.stderr.splitlines())) == (UNFIT, 1)
        assert says in done.stderr
    fails(USAGE, "run", bright, "-i", "a.png", "-i", "b.png", "-o", "-", says="expected a folder for 2 results")
    fails(USAGE, "run", bright, "-i", "a.png", "-o", "-", "--json", says="--json writes to standard output")


def test_folders_for_results(bright, here):
    """An existing folder, and a new name with a separator at its end, take files; a name without a suffix does not."""
    Image.fromarray(GREY).save("a.png")
    Path("old").mkdir()
    for folder in ("old", "new/"):
        assert invoke("run", bright, "-i", "a.png", "-o", folder, "--argmax").exit_code == OK
        assert (here / folder / "a.png").is_file()
    fails(USAGE, "run", bright, "-i", "a.png", "-o", "other", says="got no suffix. For a new folder, write other/")


def test_files_are_taken_in_natural_order(bright, here):
    """Slice 9 comes before slice 10."""
    Path("in").mkdir()
    for name in ("s10", "s9", "s1"):
        Image.fromarray(GREY).save(f"in/{name}.png")
    done = invoke("run", bright, "-i", "in", "-o", "out/", "--argmax")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["out/s1.png", "out/s9.png", "out/s10.png"]


def test_a_single_broken_file_is_left_out_too(bright, here):
    """--keep-going means the same for one input as for many."""
    Path("a.png").write_bytes(b"no picture")
    done = invoke("run", bright, "-i", "a.png", "-o", "m.png", "--argmax", "--keep-going")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "error: 1 of 1 inputs left out, 0 results written"


def test_progress_of_one_large_image(here, monkeypatch):
    """On a terminal the tiles of a single image are counted; a pipe gets no bar."""
    np.save("x.npy", np.zeros((1, 1, 16, 16), np.float32))
    words = ("run", pool_model(here / "m.onnx"), "-i", "x.npy", "-o", "y.npz", "--output-name", "y", "--tile", "8x8")
    assert invoke(*words).stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "4/4" in invoke(*words).stderr
    assert invoke(*words, "-q").stderr == ""


SKIP = """(float[1, 1, H, W] x) => (float[1, 2, h, w] y) {
    m = Identity (x)
    p = AveragePool <kernel_shape = [4, 4], strides = [4, 4]> (m)
    u = Resize <mode = "nearest"> (p, , scales)
    y = Concat <axis = 1> (x, u)
}"""
"""A quarter of the size and back again, beside the input: sizes have to be multiples of 4."""

SCALES = np.float32([1, 1, 4, 4])


BESIDE_GLOBAL = SKIP.replace("m = Identity (x)", "g = GlobalAveragePool (x) m = Mul (x, g)")
"""The geometry of which is not known, so that larger images are tried."""


@pytest.mark.parametrize(
    ("text", "shape", "says"),
    [
        (SKIP, (3, 9), "a.png: the model runs from 4x4 on, got 3x9."),
        (SKIP, (8, 10), "in steps of 4x4 above, got 8x10. Pad it to 8x12"),
        (
            BESIDE_GLOBAL,
            (7, 9),
            "runs on 8x12, got 7x9. Pad or enlarge it to that, nothing is resized here.",
        ),
    ],
)
def test_sizes_that_a_model_does_not_run(here, text, shape, says):
    """The size that is missing is said in the words of pictures, not in those of the runtime."""
    model = save_model(here / "m.onnx", text, scales=SCALES)
    Image.fromarray(RNG.integers(0, 256, shape, np.uint8)).save("a.png")
    fails(UNFIT, "run", model, "-i", "a.png", "-o", "y.npy", says=says)


def test_other_faults_keep_their_words(here):
    """A run that fails for another reason than the size says that reason."""
    text = "(float[1, 1, H, W] x, int64[1] i) => (float[1, 1, H, W] y) { y = Gather <axis = 1> (x, i) }"
    model = save_model(here / "m.onnx", text)
    np.save("x.npy", np.zeros((1, 1, 5, 5), np.float32))
    np.save("i.npy", np.array([7]))
    fails(
        UNFIT, "run", model, "-i", "x=x.npy", "-i", "i=i.npy", "-o", "y.npy", says="indices element out of data bounds"
    )
