"""An output owes its error to what its own window holds: |y - exact| <= 64 * eps * (|w| * |x|), and one rounding.

|w| * |x| is the transposed convolution of the magnitudes; what is called exact is computed in float64. Numbers below
the least normal one have fewer digits: each product may cost as much as the least one.
"""

import ml_dtypes
import numpy as np
import pytest

import unpool
from tests.cases.kernel_conv_transpose import chosen, inaccurate_tiles, problem_of
from unpool import execute
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.kernels.cpu.conv_transpose import dispatch as kernels
from unpool.kernels.cpu.conv_transpose.winograd_accuracy import accuracy_thresholds
from unpool.kernels.cpu.conv_transpose.winograd_tiling import find_tiling, tiling_of
from unpool.operators import conv_transpose as operator
from unpool.operators import resolve

EPS = 2.0**-23
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

SHAPES = {
    "winograd": [
        ((1, 64, 20, 20), (64, 32, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        ((2, 64, 12, 13), (64, 64, 3, 3), {"pads": [1] * 4}),
        ((1, 128, 16, 16), (128, 48, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
        ((1, 128, 14, 14), (128, 32, 4, 4), {"strides": [2, 2], "group": 2}),
        ((1, 64, 4, 11, 12), (64, 32, 3, 3, 3), {"pads": [1] * 6}),
        ((2, 64, 5, 6, 7), (64, 16, 2, 4, 4), {"strides": [1, 2, 2], "group": 2}),
    ],
    "phases": [
        ((1, 64, 9, 11), (64, 24, 2, 2), {"strides": [2, 2]}),
        ((1, 700, 5, 9), (700, 16, 3, 3), {"pads": [1] * 4}),
        ((1, 8, 300), (8, 16, 500), {"strides": [2]}),
        ((1, 16, 4, 5, 6), (16, 8, 3, 3, 3), {"strides": [2, 2, 2]}),
    ],
    "direct": [((2, 6, 15, 17), (6, 1, 4, 4), {"strides": [2, 2], "group": 6})],
    "gemm_1x1": [
        ((1, 1200, 1, 1), (1200, 16, 4, 4), {}),
        ((9, 600, 1, 1), (600, 8, 4, 4), {}),
        ((2, 3000, 1, 1), (3000, 1, 1, 2), {}),
    ],
    "rows": [((1, 600, 3, 4), (600, 3, 5, 40), {"strides": [1, 2]}), ((1, 4, 40), (4, 2, 300), {})],
}
CASES = [(algorithm, number) for algorithm, shapes in SHAPES.items() for number in range(len(shapes))]
SPIKES = (0.0, 1e3, 1e6, 1e9, 1e20, 1e30)


def values(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """What networks hold, and what they do not."""
    x = rng.standard_normal(shape)
    if kind == "half zero":
        x = np.maximum(x, 0)
    elif kind == "constant":
        x = np.full(shape, 0.1)
    elif kind == "a dead corner":
        x[(..., *[slice(size // 2) for size in shape[2:]])] = 0
    elif kind == "denormal":
        x *= 1e-40
    elif kind == "of all magnitudes":
        x *= np.exp(4 * rng.standard_normal((1, 1, *shape[2:])))
    return x.astype(np.float32)


KINDS = ("normal", "half zero", "constant", "a dead corner", "denormal", "of all magnitudes")


def excess(y: np.ndarray, x: np.ndarray, w: np.ndarray, b: np.ndarray, attributes: dict) -> float:
    """The largest error beyond one rounding to the type of y, over EPS * (|w| * |x|)."""
    wide = [each.astype(np.float64) for each in (x, w)]
    exact = unpool.conv_transpose(*wide, b.astype(np.float64), **attributes)
    sizes = unpool.conv_transpose(*map(np.abs, wide), **attributes)
    unit = float(ml_dtypes.finfo(y.dtype).eps)
    least = float(ml_dtypes.finfo(y.dtype).smallest_subnormal)
    terms = w[:, 0].size
    is_held = sizes + np.abs(exact) < float(ml_dtypes.finfo(y.dtype).max) / 2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(y.astype(np.float64) - exact) - unit / 2 * np.abs(exact) - least - terms * 2.0**-149
        found = np.where(error > 0, error / (EPS * sizes), 0)[is_held]
    return float(np.where(np.isnan(found), np.inf, found).max(initial=0))


def computed(algorithm: str, x: np.ndarray, w: np.ndarray, b: np.ndarray, attributes: dict) -> np.ndarray:
    """The result by one algorithm, or by its fallbacks."""
    fallbacks = {"winograd": ("phases", "rows"), "rows": ()}.get(algorithm, ("rows",))
    with chosen(algorithm, *fallbacks):
        execute.clear_cache()
        y = unpool.prepare_conv_transpose(w, **attributes)(x, b)
    execute.clear_cache()
    return y


@pytest.mark.sample(3)
@pytest.mark.parametrize(("algorithm", "number"), CASES)
def test_errors_are_those_of_the_own_window(algorithm: str, number: int) -> None:
    """Over spikes, zeros, denormals, constants and large biases, and over weights that are even or not."""
    shape, w_shape, attributes = SHAPES[algorithm][number]
    rng = np.random.default_rng([number, len(algorithm)])
    w = (rng.standard_normal(w_shape) / np.sqrt(shape[1])).astype(np.float32)
    wrong = []
    for kind in KINDS:
        weights = np.full_like(w, 0.3) if kind == "constant" else w
        for spike in SPIKES if kind in ("normal", "half zero") else SPIKES[:1]:
            x = values(kind, shape, rng)
            if spike:
                x[0, 1, *(size // 2 for size in shape[2:])] = spike
            b = rng.standard_normal(w_shape[1] * attributes.get("group", 1)).astype(np.float32)
            b *= 1e6 if kind == "normal" else 1
            found = excess(computed(algorithm, x, weights, b, attributes), x, weights, b, attributes)
            wrong += [(kind, spike, found)] if found > 64 else []
    assert not wrong


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_type_and_layout(name: str, layout: str) -> None:
    """Sums of 16-bit types are formed in float32 and rounded once; spikes are the largest that the type holds."""
    rng = np.random.default_rng(5)
    for shape, w_shape, attributes in (each for shapes in SHAPES.values() for each in shapes[:1]):
        x = values("normal", shape, rng)
        x[0, 0, *(size // 2 for size in shape[2:])] = 6e4
        w = (rng.standard_normal(w_shape) / shape[1]).astype(DTYPES[name])
        x, b = x.astype(DTYPES[name]), np.zeros(w_shape[1] * attributes.get("group", 1), DTYPES[name])
        turned = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x
        y = unpool.prepare_conv_transpose(w, **attributes, layout=layout)(turned, b)
        y = np.moveaxis(y, -1, 1) if layout == "NHWC" else y
        assert excess(y, x, w, b, attributes) <= 64


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_winograd_in_16_bits(name: str) -> None:
    """Over what networks hold and what they do not, spikes of the type's range among it, and weights of all sizes."""
    wrong, dtype, most = [], DTYPES[name], float(ml_dtypes.finfo(DTYPES[name]).max)
    for number, (shape, w_shape, attributes) in enumerate(SHAPES["winograd"][:2]):
        rng = np.random.default_rng([number, 16])
        w = rng.standard_normal(w_shape) / np.sqrt(shape[1])
        b = rng.standard_normal(w_shape[1]).astype(dtype)
        for kind, spike in [*((kind, 0.0) for kind in KINDS), *(("half zero", spike) for spike in SPIKES[1:])]:
            x = values(kind, shape, rng)
            x[0, 1, *(size // 2 for size in shape[2:])] += np.float32(spike)
            x16 = x.clip(-most, most).astype(dtype)
            for scale in (1, 1e-3):
                w16 = (w * scale).astype(dtype)
                found = excess(computed("winograd", x16, w16, b, attributes), x16, w16, b, attributes)
                wrong += [(number, kind, spike, scale, found)] if found > 64 else []
    assert not wrong


@pytest.mark.parametrize("change", ["one tap", "one weight", "zeros", "one channel"])
def test_weights_of_all_magnitudes(change: str) -> None:
    """A tap, a single weight or a channel that is far larger than others, and weights that are mostly zero."""
    rng = np.random.default_rng(6)
    for shape, w_shape, attributes in SHAPES["winograd"]:
        x, w = values("half zero", shape, rng), rng.standard_normal(w_shape).astype(np.float32)
        if change == "zeros":
            w *= rng.random(w_shape) < 0.1
        else:
            place = {"one tap": np.s_[..., 1, 1], "one weight": np.s_[2, 3, 1, 0], "one channel": np.s_[4]}
            w[place[change]] *= 1e6
        b = np.zeros(w_shape[1] * attributes.get("group", 1), np.float32)
        assert excess(computed("winograd", x, w, b, attributes), x, w, b, attributes) <= 64


def test_winograd_is_tried() -> None:
    """Winograd's tiles are chosen for their cases, and nearly all of their tiles are even."""
    for shape, w_shape, attributes in SHAPES["winograd"][:2]:
        rng = np.random.default_rng(7)
        x, w = values("normal", shape, rng), rng.standard_normal(w_shape).astype(np.float32)
        axes = operator.call(resolve.spec("ConvTranspose", attributes), shape, w_shape, None).axes
        work = problem_of(x, w, axes, 1)
        assert find_tiling(work.axes) is not None
        uneven = inaccurate_tiles(x, accuracy_thresholds(w, axes, 1), axes, 1, 1)
        assert uneven.size < 0.1 * len(x) * np.prod(tiling_of(axes).tiles)


@pytest.mark.parametrize("name", DTYPES)
def test_who_takes_winograd(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without AMX, types that are computed in float32, channels first, unless products are to be formed as written."""
    monkeypatch.setattr(kernels, "has_amx", lambda: False)
    shape, w_shape, attributes = SHAPES["winograd"][1]
    dtype, nhwc = np.dtype(DTYPES[name]), (shape[0], *shape[2:], shape[1])
    spec = resolve.spec("ConvTranspose", attributes)
    last = resolve.spec("ConvTranspose", attributes, domain="com.ms.internal.nhwc")
    calls = (spec, shape), (spec._replace(is_exact=True), shape), (last, nhwc)
    found = [PreparedConvTranspose(each, ((size, dtype), (w_shape, dtype))).kernel for each, size in calls]
    assert found == ["winograd", "phases", "phases"]


def test_threads_change_nothing() -> None:
    """Bit for bit, whatever tiles are computed apart."""
    rng = np.random.default_rng(8)
    shape, w_shape, attributes = SHAPES["winograd"][0]
    x, w = values("normal", shape, rng), rng.standard_normal(w_shape).astype(np.float32)
    x[0, 3, 5, 5] = 1e9
    conv_transpose = unpool.prepare_conv_transpose(w, **attributes)
    np.testing.assert_array_equal(conv_transpose(x, threads=1), conv_transpose(x, threads=2))
