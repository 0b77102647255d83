"""One element per channel: a product of matrices, of one row for one image."""

import numpy as np
import pytest

import unpool
from tests.support import models
from unpool.execute import own_weights


def expected(x, w, b):
    sums = np.einsum("nc,cmij->nmij", x[:, :, 0, 0].astype(float), w.astype(float))
    return sums + b.astype(float)[:, None, None]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 7, 8, 19])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("maps", [5, 67])
def test_every_number_of_channels(maps, batch, channels, dtype):
    """Outputs that fill no tile, or several and part of another."""
    x = models.random(batch, channels, 1, 1, dtype=dtype)
    w, b = models.random(channels, maps, 3, 2, dtype=dtype), models.random(maps, dtype=dtype)
    y = unpool.conv_transpose(x, w, b)
    assert y.shape == (batch, maps, 3, 2)
    np.testing.assert_allclose(y, expected(x, w, b), rtol=0, atol=50 * np.finfo(dtype).eps)


def test_pads_cut_and_output_padding_holds_the_bias():
    """What lies outside of the window is the bias alone."""
    x, w, b = models.random(1, 9, 1, 1), models.random(9, 5, 3, 4), models.random(5)
    y = unpool.conv_transpose(x, w, b, strides=[2, 2], pads=[1, 0, 0, 2], output_padding=[1, 0])
    whole = expected(x, w, b)
    np.testing.assert_allclose(y[:, :, :2], whole[:, :, 1:, :2], rtol=0, atol=1e-5)
    assert np.array_equal(y[:, :, 2], np.broadcast_to(b[:, None], (1, 5, 2)))


@pytest.mark.parametrize("shape", [[1, 1], [2, 3], [40, 1], [0, 2]])
def test_many_images_of_which_little_is_wanted(shape):
    """Windows are not made where y is a small part of them: the weights are cut instead, with the same result."""
    x, w, b = models.random(64, 2, 1, 1), models.random(2, 3, 31, 33), models.random(3)
    y = unpool.conv_transpose(x, w, b, output_shape=shape)
    begins = [max(0, size - wanted) - max(0, size - wanted) // 2 for size, wanted in zip((31, 33), shape, strict=True)]
    part = expected(x, w, b)[:, :, begins[0] :, begins[1] :][:, :, : shape[0], : shape[1]]
    np.testing.assert_allclose(y[:, :, :31], part, rtol=0, atol=1e-5)
    assert np.array_equal(y[:, :, 31:], np.broadcast_to(b[:, None, None], y[:, :, 31:].shape))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("pads", "more"), [([1, 1, 1, 1], [0, 0]), ([1, 0, 0, 2], [1, 0]), ([3, 0, 2, 0], [1, 1]), ([0, 0, 0, 0], [0, 0])]
)
@pytest.mark.parametrize("maps", [2, 67])
def test_weights_that_are_kept_give_what_others_do(maps, pads, more, dtype):
    """They are cut to what outputs meet: some taps, all, or none."""
    x, w, b = (models.random(*shape, dtype=dtype) for shape in ((1, 9, 1, 1), (9, maps, 4, 4), (maps,)))
    attributes = {"strides": [2, 2], "pads": pads, "output_padding": more}
    plain, own = (unpool.conv_transpose(x, each, b, **attributes) for each in (w, own_weights(w)))
    assert plain.shape == own.shape
    np.testing.assert_allclose(own, plain, rtol=0, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "params", "formula"),
    [
        ("Relu", None, lambda y: np.maximum(y, 0)),
        ("LeakyRelu", [0.25], lambda y: np.where(y < 0, y * 0.25, y)),
        ("Clip", [-0.5, 0.25], lambda y: np.clip(y, -0.5, 0.25)),
        ("Tanh", None, np.tanh),
    ],
)
@pytest.mark.parametrize(("maps", "attributes"), [(67, {}), (2, {}), (67, {"pads": [1, 1, 1, 1], "strides": [2, 2]})])
def test_activations_of_sums(maps, attributes, name, params, formula, dtype):
    """Windows that are y as a whole are activated in registers, few columns and windows that are cut afterwards."""
    x, w, b = (models.random(*shape, dtype=dtype) for shape in ((1, 9, 1, 1), (9, maps, 4, 4), (maps,)))
    x -= dtype(0.5)
    x[0, 0], w[0, 0, 1, 1] = 1, np.nan
    plain = unpool.conv_transpose(x, w, b, **attributes)
    active = unpool.conv_transpose(x, w, b, activation=name, activation_params=params, layout="NCHW", **attributes)
    assert np.isnan(active).sum() == np.isnan(plain).sum() == 1
    np.testing.assert_allclose(active, formula(plain), rtol=0, atol=4 * np.finfo(dtype).eps)
    assert (plain < 0).any()


def test_threads_do_not_change_a_bit():
    """Output channels are split over threads; no sum is."""
    x, w, b = models.random(1, 33, 1, 1), models.random(33, 67, 5, 7), models.random(67)
    alone, blocking_for_threads = (unpool.conv_transpose(x, w, b, threads=threads) for threads in (1, 2))
    assert np.array_equal(alone, blocking_for_threads)


def test_a_channel_that_is_no_number_reaches_every_output():
    """NaN and infinity are summed as they are."""
    x, w = np.ones((1, 9, 1, 1), np.float32), np.ones((9, 5, 3, 2), np.float32)
    x[0, 8] = np.inf
    assert np.all(unpool.conv_transpose(x, w) == np.inf)
    x[0, 2] = -np.inf
    assert np.all(np.isnan(unpool.conv_transpose(x, w)))
