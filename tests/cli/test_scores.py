"""Scores of classes become masks, overlays and probabilities; pages of a .tif are the pictures of a batch."""

import numpy as np
import onnx
import pytest
import tifffile
from PIL import Image

from tests.support import models
from tests.support.command import fails, invoke
from unpool import InferenceSession, UnpoolError, streams
from unpool.cli.errors import OK, UNFIT, USAGE
from unpool.runtime.streams.output_transform import ScoreFormat, softmax

RANDOM = np.random.default_rng(3)
GREY = RANDOM.integers(0, 256, (37, 45), np.uint8)
PAGES = RANDOM.integers(0, 256, (5, 37, 45, 3), np.uint8)
TILED = ["--tile", "16x16"]


def conv(channels, classes, batch="n", rank=2, name="m.onnx", layout="nchw"):
    """A model of one Conv, whose scores lie on both sides of zero."""
    sizes = ", ".join("dhw"[-rank:])
    weights = np.random.default_rng(7).normal(size=(classes, channels, *[3] * rank)).astype(np.float32) / 64
    pads = ", ".join(["1"] * 2 * rank)
    (given, made) = (f"float[{batch}, {count}, {sizes}]" for count in (channels, classes))
    text = f"scores ({given} x) => ({made} y) {{ y = Conv <pads = [{pads}]> (x, w) }}"
    if layout == "nhwc":
        text = (
            f"scores (float[{batch}, h, w, {channels}] x) => (float[{batch}, h, w, {classes}] y) {{"
            f" a = Transpose <perm = [0, 3, 1, 2]> (x) b = Conv <pads = [{pads}]> (a, w)"
            " y = Transpose <perm = [0, 2, 3, 1]> (b) }"
        )
    onnx.save(models.model(text, w=weights), name)
    return name


def scores(model, x):
    """What the session gives."""
    return InferenceSession(model).run(None, {"x": np.ascontiguousarray(x, np.float32)})[0]


@pytest.mark.parametrize("tiles", [[], TILED], ids=["whole", "tiles"])
@pytest.mark.parametrize("name", ["mask.png", "mask.npy", "mask.tif", "mask.npz"])
def test_a_threshold_makes_a_mask(here, name, tiles):
    """Of one channel of scores, class 1 is where they are above the threshold, in every format, whole or in tiles."""
    Image.fromarray(GREY).save("a.png")
    expected = (scores(conv(1, 1), GREY[None, None])[:, 0] > 0.25).astype(np.uint8)
    assert invoke("run", "m.onnx", "-i", "a.png", "-o", name, "--threshold", "1/4", *tiles).exit_code == OK
    made = {".png": Image.open, ".npy": np.load, ".tif": tifffile.imread, ".npz": lambda path: np.load(path)["y"]}
    np.testing.assert_array_equal(np.asarray(made[name[-4:]](name)).reshape(expected.shape), expected)
    assert 0 < expected.mean() < 1


def test_a_threshold_of_a_volume(here):
    """A volume with one channel of scores is drawn as three planes, and masked where it was."""
    voxels = RANDOM.integers(0, 256, (9, 11, 13), np.uint8)
    tifffile.imwrite("a.tif", voxels, photometric="minisblack")
    model = conv(1, 1, rank=3)
    assert invoke("run", model, "-i", "a.tif", "-o", "o.png", "--overlay", "--threshold", "0").exit_code == OK
    assert invoke("run", model, "-i", "a.tif", "-o", "m.npy", "--threshold", "0").exit_code == OK
    np.testing.assert_array_equal(np.load("m.npy"), scores(model, voxels[None, None])[:, 0] > 0)


@pytest.mark.parametrize("form", ["png", "jpg", "tif"])
def test_overlays_of_one_channel(here, form):
    """One name and one colour are those of class 1, and class 0 shows the image."""
    Image.fromarray(GREY).save("a.png")
    words = ["-i", "a.png", "--overlay", "--threshold", "0", "--classes", "lesion", "--palette", "#ff0000"]
    done = invoke("run", conv(1, 1), *words, "--alpha", "1", "-o", f"o.{form}")
    assert done.exit_code == OK
    assert "lesion" in done.stdout
    assert "background" in done.stdout
    shown = np.asarray(Image.open(f"o.{form}").convert("RGB"))[:37, :45].astype(int)
    mask = scores("m.onnx", GREY[None, None])[0, 0] > 0
    if form == "jpg":
        redness = shown[..., 0] - shown[..., 1]
        assert redness[mask].mean() > redness[~mask].mean() + 10
        return
    np.testing.assert_array_equal(shown[mask], np.broadcast_to([255, 0, 0], (mask.sum(), 3)))
    np.testing.assert_array_equal(shown[~mask], np.repeat(GREY[~mask][:, None], 3, axis=1))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("tiles", [[], TILED], ids=["whole", "tiles"])
def test_probabilities_are_the_softmax(here, layout, tiles):
    """Probabilities of a picture sum to one, are largest where scores are, and tiles give the bits of the whole."""
    Image.fromarray(PAGES[0]).save("a.png")
    model = conv(3, 5, layout=layout)
    words = ["-i", "a.png", "--softmax", "--layout", layout]
    assert invoke("run", model, *words, "-o", "p.npy", *tiles).exit_code == OK
    channel = 1 if layout == "nchw" else 3
    x = PAGES[:1].transpose(0, 3, 1, 2) if layout == "nchw" else PAGES[:1]
    found, raw = np.load("p.npy"), scores(model, x)
    powers = np.exp(raw.astype(np.float64) - raw.max(axis=channel, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(axis=channel, keepdims=True), rtol=1e-5, atol=1e-12)
    np.testing.assert_array_equal(found, softmax(raw, channel))


def test_softmax_of_a_part_is_that_of_the_whole():
    """Windows of any size, down to one element, have the bits of the whole, in every type and order of axes."""
    random = np.random.default_rng(1)
    for trial in range(300):
        channel = trial % 2 * 2 + 1
        kind = (np.float16, np.float32, np.float64)[trial % 3]
        shape = [1, *random.integers(1, 40, 3)]
        values = (random.normal(size=shape) * 30).astype(kind)
        begin = [int(random.integers(0, size)) for size in shape]
        window = [slice(at, int(random.integers(at, size)) + 1) for at, size in zip(begin, shape, strict=True)]
        window[channel] = slice(None)
        whole = softmax(values, channel)
        assert whole.dtype == kind
        np.testing.assert_array_equal(softmax(values[tuple(window)], channel), whole[tuple(window)])


def test_nan_and_infinity():
    """NaN is above no threshold; a probability beside an infinite score is NaN, without a warning."""
    values = np.float32([[[np.nan, np.inf, -np.inf, 0.5]]])
    assert ScoreFormat(threshold=0.5).apply(values, 1).tolist() == [[0, 1, 0, 0]]
    assert np.isnan(softmax(np.float32([[[np.inf], [np.inf]]]), 1)).all()


def test_a_threshold_is_compared_exactly():
    """The number is that of the command line, not its rounding to the type of the scores."""
    third = np.float32([[[1 / 3]]])
    assert float(third[0, 0, 0]) > 1 / 3
    assert ScoreFormat(threshold=1 / 3).apply(third, 1).item() == 1


BAD = {
    "overlay": (
        ["--overlay", "-o", "o.png"],
        UNFIT,
        "the best class needs scores of 2 to 65536 channels, got 1x1x37x45",
    ),
    "overlay in tiles": (["--overlay", "-o", "o.png", *TILED], UNFIT, "set a threshold: 0.5 for probabilities, 0 for"),
    "argmax": (["--argmax", "-o", "o.npy"], UNFIT, "For a mask of one channel, set a threshold"),
    "softmax": (["--softmax", "-o", "o.npy"], UNFIT, "softmax needs scores of 2 to 65536 channels"),
    "softmax in tiles": (["--softmax", "-o", "o.npy", *TILED], UNFIT, "softmax needs scores of 2 to 65536 channels"),
    "both": (["--softmax", "--argmax", "-o", "o.npy"], USAGE, "--softmax writes probabilities"),
    "softmax and threshold": (
        ["--softmax", "--threshold", "0", "-o", "o.npy"],
        USAGE,
        "--softmax writes probabilities",
    ),
    "no number": (["--threshold", "half", "-o", "o.npy"], USAGE, "--threshold: expected a number such as 0.5 or 1/255"),
    "NaN": (["--threshold", "nan", "-o", "o.npy"], USAGE, "--threshold: expected a number"),
    "jpg": (["--threshold", "0", "-o", "o.jpg"], USAGE, "o.jpg: .jpg changes numbers"),
    "argmax as jpg": (["--argmax", "-o", "-", "--format", "jpg"], USAGE, ".jpg changes numbers"),
    "pages of a .png": (["--pages", "batch", "-o", "o.npy"], USAGE, "--pages says what the pages of a .tif are"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_one_channel_cannot_be(here, name):
    """Each is one error that names the option that was given, or the one that is missing; nothing is written."""
    Image.fromarray(GREY).save("a.png")
    words, code, says = BAD[name]
    fails(code, "run", conv(1, 1), "-i", "a.png", *words, says=says)


@pytest.mark.parametrize("tiles", [[], TILED], ids=["whole", "tiles"])
def test_a_threshold_of_several_channels_is_refused(here, tiles):
    """It would not be known what the other classes are."""
    Image.fromarray(PAGES[0]).save("a.png")
    words = ["-i", "a.png", "-o", "o.npy", "--threshold", "0.5", *tiles]
    fails(UNFIT, "run", conv(3, 4), *words, says="a threshold is for one channel of scores, got 1x4x37x45")


def test_the_library_has_the_same_words(here):
    """`streams.run` and `streams.blend` take a threshold and softmax; a resume with another one is refused."""
    x, session = GREY[None, None].astype(np.float32), InferenceSession(conv(1, 1))
    whole = session.run(None, {"x": x})[0]
    streams.run(session, {"x": x}, "y.npy", (16, 16), threshold=0.5)
    np.testing.assert_array_equal(np.load("y.npy"), whole[:, 0] > 0.5)
    with pytest.raises(UnpoolError, match=r"used --threshold 0\.5\. Use that"):
        streams.run(session, {"x": x}, "y.npy", (16, 16), threshold=0.25, resume=True)
    with pytest.raises(UnpoolError, match="expected one of argmax, softmax, threshold; got argmax, threshold"):
        streams.run(session, {"x": x}, "z.npy", (16, 16), threshold=0.25, argmax=True)
    streams.blend(session, {"x": x}, "b.npy", 64, threshold=0.5)
    np.testing.assert_array_equal(np.load("b.npy"), whole[:, 0] > 0.5)


@pytest.mark.parametrize("batch", ["n", 1, 5])
@pytest.mark.parametrize("name", ["m.tif", "m.npy", "folder/"])
def test_pages_are_a_batch(here, batch, name):
    """Each page has the result that it has alone; a fixed batch of one takes them one after another."""
    tifffile.imwrite("a.tif", PAGES, photometric="rgb")
    model = conv(3, 4, batch)
    expected = scores(conv(3, 4, name="open.onnx"), PAGES.transpose(0, 3, 1, 2)).argmax(1)
    words = ["-i", "a.tif", "-o", name, "--argmax", "--pages", "batch", "--format", "tif"]
    words = words if name == "folder/" else words[:-2]
    assert invoke("run", model, *words).exit_code == OK
    found = np.load(name) if name == "m.npy" else tifffile.imread("folder/a.tif" if name == "folder/" else name)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.sample(5)
@pytest.mark.parametrize("kept", ["tiled", "strips", "deflate", "grey", "one page"])
def test_pages_in_tiles(here, kept):
    """In windows, and where the file is read whole, pages in tiles have the results of the whole."""
    pages = PAGES[..., 0] if kept == "grey" else PAGES[:1] if kept == "one page" else PAGES
    how = {"tiled": {"tile": (16, 16)}, "deflate": {"compression": "zlib", "tile": (16, 16)}}.get(kept, {})
    tifffile.imwrite("a.tif", pages, photometric="minisblack" if kept == "grey" else "rgb", **how)
    model = conv(1 if kept == "grey" else 3, 4)
    for name, more in (
        ("m.npy", ["--argmax"]),
        ("m.tif", ["--argmax"]),
        ("o.tif", ["--overlay"]),
        ("p.npy", ["--softmax"]),
    ):
        words = ["run", model, "-i", "a.tif", "--pages", "batch", *more]
        assert invoke(*words, "-o", name).exit_code == OK
        for number, tiles in enumerate((TILED, ["--max-memory", "8GiB"])):
            assert invoke(*words, "-o", f"{number}{name}", *tiles).exit_code == OK
            read = np.load if name.endswith(".npy") else tifffile.imread
            np.testing.assert_array_equal(read(f"{number}{name}"), read(name))
    assert np.load("m.npy").shape == (len(pages), 37, 45)


def test_overlays_of_pages_have_one_legend(here):
    """A page for each picture, all of one size, with the legend of the classes of all; it can be read again."""
    tifffile.imwrite("a.tif", PAGES, photometric="rgb")
    model = conv(3, 4)
    assert (
        invoke("run", model, "-i", "a.tif", "-o", "o.tif", "--overlay", "--alpha", "0", "--pages", "batch").exit_code
        == OK
    )
    with tifffile.TiffFile("o.tif") as file:
        assert len(file.pages) == 5
        assert len(file.series) == 1
    shown = tifffile.imread("o.tif")
    np.testing.assert_array_equal(shown[:, :37, :45], PAGES)
    assert (shown[:, 37:] == shown[:1, 37:]).all()
    assert invoke("run", model, "-i", "o.tif", "-o", "again.npy", "--pages", "batch").exit_code == OK


def test_two_axes_of_pages_are_a_batch_of_volumes(here):
    """For a model of volumes the first axis of pages is the batch, and the second one depth."""
    voxels = RANDOM.integers(0, 256, (2, 7, 9, 11), np.uint8)
    tifffile.imwrite("a.tif", voxels, metadata={"axes": "TZYX"}, imagej=True)
    model = conv(1, 2, rank=3)
    assert invoke("run", model, "-i", "a.tif", "-o", "y.npy", "--pages", "batch").exit_code == OK
    assert invoke("run", model, "-i", "a.tif", "-o", "t.npy", "--pages", "batch", "--tile", "4x4x4").exit_code == OK
    np.testing.assert_array_equal(np.load("y.npy"), scores(model, voxels[:, None]))
    np.testing.assert_array_equal(np.load("t.npy"), np.load("y.npy"))
    fails(UNFIT, "run", model, "-i", "a.tif", "-o", "m.tif", "--pages", "batch", "--argmax", says="holds one volume")


NO_ROOM = {
    "png": (["--argmax", "-o", "m.png"], UNFIT, "a .png holds one image, got a batch of 5. Write .tif or .npy."),
    "png in tiles": (["--argmax", "-o", "m.png", *TILED], UNFIT, "a .png holds one image, got a batch of 5."),
    "jpg": (["--overlay", "-o", "m.jpg"], UNFIT, "a .jpg holds one image, got a batch of 5."),
    "scores": (["-o", "m.tif"], UNFIT, "the pages of a .tif are pictures in grey or colour, got 5x4x37x45"),
}


@pytest.mark.parametrize("name", NO_ROOM)
def test_batches_that_a_file_does_not_hold(here, name):
    """Formats of one picture refuse a batch, with those that hold it."""
    tifffile.imwrite("a.tif", PAGES, photometric="rgb")
    words, code, says = NO_ROOM[name]
    fails(code, "run", conv(3, 4), "-i", "a.tif", "--pages", "batch", *words, says=says)


def test_pages_that_do_not_fit(here):
    """Without the option, pages are refused with it; a fixed batch that does not divide them is named."""
    tifffile.imwrite("a.tif", PAGES, photometric="rgb")
    fails(UNFIT, "run", conv(3, 4), "-i", "a.tif", "-o", "y.npy", says="Take the pages as a batch (--pages batch)")
    words = ["-i", "a.tif", "-o", "y.npy", "--pages", "batch"]
    fails(UNFIT, "run", conv(3, 4, 2), *words, says="input 'x' takes a batch of 2, got 5. Split it, or export")
    fails(UNFIT, "run", conv(3, 4, 1), *words, *TILED, says="input 'x' takes a batch of 1, got 5. Split it, or export")
    text = "sums (float[1, 3, h, w] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }"
    onnx.save(models.model(text, opset=17), "sum.onnx")
    fails(UNFIT, "run", "sum.onnx", *words, says="output 'y': has no batch")
