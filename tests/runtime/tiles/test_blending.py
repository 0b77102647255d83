"""Blended windows are those of MONAI."""

import importlib
import warnings

import numpy as np
import pytest

from tests.support import models
from unpool import InferenceSession, tiles
from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.tiles.blending import BlendAccumulator, BlendOptions, find_windows


@pytest.fixture(scope="module")
def monai():
    """MONAI's inferers; what other packages warn of while they are loaded is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("monai.inferers")


CENTRED = """centred (float[n, 2, h, w] x) => (float[n, 2, h, w] y, float[n, 2, hh, ww] half) {
    m = GlobalAveragePool (x)
    y = Sub (x, m)
    half = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (y)
}"""
VOLUME = "centred (float[n, 1, d, h, w] x) => (float[n, 1, d, h, w] y) { m = GlobalAveragePool (x)  y = Sub (x, m) }"


@pytest.mark.parametrize(
    ("text", "shape", "options"),
    [
        (CENTRED, (2, 2, 37, 50), {"roi_size": (16, 20)}),
        (CENTRED, (1, 2, 40, 33), {"roi_size": (16, 16), "mode": "gaussian", "overlap": 0.5, "sw_batch_size": 4}),
        (CENTRED, (1, 2, 9, 40), {"roi_size": (16, -1), "padding_mode": "reflect"}),
        (CENTRED, (1, 2, 9, 12), {"roi_size": 16, "cval": 3.0}),
        (VOLUME, (1, 1, 11, 20, 13), {"roi_size": (8, 8, 8), "mode": "gaussian", "sigma_scale": (0.3, 0.125, 0.2)}),
        (VOLUME, (1, 1, 5, 6, 7), {"roi_size": (8, 8, 8), "padding_mode": "replicate", "overlap": (0.0, 0.5, 0.9)}),
    ],
    ids=str,
)
def test_blended_windows_are_those_of_monai(monai, text, shape, options):
    """Sizes below and above the window, both kinds of weights, batches, paddings, an output at half the size."""
    import torch

    session = InferenceSession(models.model(text))
    names = [value.name for value in session.get_outputs()]
    image = np.random.default_rng(shape).random(shape, np.float32)

    def predictor(part):
        return tuple(torch.from_numpy(one) for one in session.run(None, {"x": part.numpy()}))

    whole = {"sw_batch_size": 1, **options}
    expected = monai.sliding_window_inference(torch.from_numpy(image), predictor=predictor, **whole)
    made = tiles.blend(session, {"x": image}, **options)
    for name, one in zip(names, expected if len(names) > 1 else (expected,), strict=True):
        one = one[0] if isinstance(one, tuple) else one
        assert made[name].shape == tuple(one.shape)
        np.testing.assert_allclose(made[name], one.numpy(), rtol=1e-5, atol=1e-6)


def averages(windows, left):
    """By band, the averages of windows of which each gives its own numbers, if these bands are left."""
    blended, found = BlendAccumulator(windows, ["y"]), {}
    for run in windows.batches(left):
        made = [np.random.default_rng([run.band, *start]).random((2, *windows.roi), np.float32) for start in run.starts]
        parts = blended.add(run, [np.stack(made)])
        if parts is not None:
            found[run.band] = parts["y"]
    return found


def test_any_bands_can_be_left():
    """Whichever bands are wanted, these are given and no others, and each has the bits that it has among all."""
    random = np.random.default_rng(3)
    for overlap in (0.0, 0.25, 0.5, 0.8):
        windows = find_windows({"x": (2, 2, 37, 19)}, BlendOptions((10, 8), overlap=overlap, mode="gaussian"), "NCHW")
        whole = averages(windows, range(len(windows)))
        for _ in range(5):
            left = set(random.choice(len(windows), 1 + random.integers(len(windows)), replace=False).tolist())
            made = averages(windows, left)
            assert set(made) == left
            for band in left:
                np.testing.assert_array_equal(made[band], whole[band])


def test_arguments_out_of_range_are_errors():
    """The name of the argument, what it may be, and what came."""
    session = InferenceSession(models.model(CENTRED))
    feed = {"x": np.zeros((1, 2, 16, 16), np.float32)}
    for options, says in (
        ({"overlap": 1.0}, "overlap: expected 0 or more"),
        ({"mode": "linear"}, "mode: expected one of constant, gaussian"),
        ({"padding_mode": "edge"}, "padding_mode: expected one of"),
        ({"sw_batch_size": 0}, "sw_batch_size: expected 1"),
        ({"roi_size": (8, 8, 8)}, "roi_size: expected 2 sizes"),
    ):
        with pytest.raises(UnpoolError, match=says):
            tiles.blend(session, feed, **{"roi_size": 12, **options})
    indices = InferenceSession(
        models.model("p (float[1, 1, h, w] x) => (float[1, 1, a, b] y, int64[1, 1, a, b] i) "
                     "{ y, i = MaxPool <kernel_shape = [2, 2]> (x) }")
    )  # fmt: skip
    with pytest.raises(ShapeError, match="'i': expected floats"):
        tiles.blend(indices, {"x": feed["x"][:, :1]}, 8)
