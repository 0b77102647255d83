"""Transposed convolution of bfloat16 by AMX: exact on integers, and never where a subnormal number could be lost."""

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest

from tests.cases.guarded import guarded
from tests.cases.kernel_conv_transpose import ACTIVATIONS, GrowthCase, chosen, difference, drawn_axes, integer_call
from unpool import execute
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.kernels.cpu.conv_transpose import amx
from unpool.kernels.cpu.machine import host, libraries
from unpool.kernels.cpu.tuning import AMX_SIZES
from unpool.kernels.cpu.weights import own_weights
from unpool.operators import resolve

CASES = 120
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
needs_amx = pytest.mark.skipif(not host.has_amx(), reason="this processor, or this build of unpool, lacks AMX")


class AmxCase(GrowthCase):
    """A call by AMX, and by no other algorithm unless AMX cannot store its layout."""

    def algorithms(self, work: Any) -> tuple[str, ...]:
        """Only AMX, so that a call that it cannot compute leaves y unwritten."""
        return ("amx",) if work.storage.is_amx else ("rows",)


def case_of(number: int) -> AmxCase:
    """Sizes that fill and overfill tiles of 16 rows, 16 positions and 32 channels; the number seeds all."""
    rng = np.random.default_rng([number, 2])
    attributes, inputs = integer_call(rng, BFLOAT16, *drawn_axes(rng, (8, 5, 3), 5), (1, 1, 2, 3), [3, 75, 75])
    ending = ({"layout": "NHWC"} if number % 2 else {}) | ACTIVATIONS[number % 3]
    name = f"amx {number}: {[list(each.shape) for each in inputs[:2]]} {attributes} {ending}"
    return AmxCase(name, True, inputs, attributes, ending, 1 << 19, 1 << 18, int(rng.integers(0, 64)))


@pytest.mark.sample(20)
@needs_amx
@pytest.mark.parametrize("number", range(CASES))
def test_integers_are_exact(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For any rank, stride, dilation, cut, group, layout and activation, however work is cut, on 1 and 2 threads."""
    small = np.random.default_rng([number, 3]).choice((1, 1 << 14, 1 << 19), 2)
    sizes = AMX_SIZES._replace(panel=int(small[0]), results=int(small[1]), together=number % 4 + 1)
    monkeypatch.setattr(amx, "AMX_SIZES", sizes)
    amx.plan_of.cache_clear()
    try:
        case = case_of(number)
        for threads in (1, 2):
            assert difference(case, threads) is None
    finally:
        amx.plan_of.cache_clear()


@needs_amx
@pytest.mark.parametrize("at_end", [False, True])
def test_no_stray_access(at_end: bool) -> None:
    """Inputs and outputs touch protected pages, and nothing beyond them is read or written."""
    with guarded(at_end=at_end):
        for number in range(CASES, CASES + 40):
            assert difference(case_of(number), 1 + number % 2) is None


def computed(x: np.ndarray, w: np.ndarray, algorithms: tuple[str, ...], threads: int = 1, **attributes: Any) -> Any:
    """The result, NaN where none of the algorithms wrote it."""
    spec = resolve.spec("ConvTranspose", attributes)
    prepared = PreparedConvTranspose(spec, ((x.shape, x.dtype), (w.shape, w.dtype)))
    with chosen(*algorithms):
        size = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], attributes["strides"], w.shape[2:], strict=True)]
        y = np.full((x.shape[0], w.shape[1] * attributes.get("group", 1), *size), np.nan, BFLOAT16)
        prepared.run((x, own_weights(w)), (y,), threads)
    return y


def cancelling_factors() -> tuple[int, int, int, int]:
    """Four numbers of 8 bits with a * b - c * d = 1."""
    digits = range(128, 256)
    by_product = {a * b: (a, b) for a, b in product(digits, digits)}
    return next((*by_product[n + 1], *by_product[n]) for n in sorted(by_product) if n + 1 in by_product)


@needs_amx
@pytest.mark.parametrize("exponents", [(-56, -56), (-57, -56), (-56, -57), (-100, -13), (-46, -66), (-45, -67)])
@pytest.mark.parametrize("position", [0, 30, 99])
def test_least_sum(exponents: tuple[int, int], position: int) -> None:
    """The least sum of numbers of two exponents is right, and AMX forms it if it is not subnormal."""
    a, b, c, d = (number / 128 for number in cancelling_factors())
    x, w = np.zeros((1, 40, 100), BFLOAT16), np.zeros((40, 20, 1), BFLOAT16)
    x[0, 7, position], x[0, 38, position] = (number * 2.0 ** exponents[0] for number in (a, c))
    w[7], w[38] = (number * 2.0 ** exponents[1] for number in (b, -d))
    expected = np.zeros((1, 20, 100))
    expected[..., position] = 2.0 ** (sum(exponents) - 14)
    is_normal = sum(exponents) >= -112 and exponents[1] >= -66
    y = computed(x, w, ("amx", "rows"), strides=[1])
    np.testing.assert_array_equal(y.astype(np.float64), expected)
    by_amx = computed(x, w, ("amx",), strides=[1])
    assert np.isfinite(by_amx.astype(np.float64)).all() == is_normal


@needs_amx
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 32, 3, 20), (1, 33, 8, 32)])
@pytest.mark.parametrize("value", [1e-40, -1e-39, 1e-30])
def test_small_inputs_are_found(value: float, place: tuple[int, ...]) -> None:
    """One small number anywhere in x, and the call is computed in float32, on any number of threads."""
    rng = np.random.default_rng(4)
    x, w = (rng.integers(1, 4, shape).astype(BFLOAT16) for shape in ((2, 34, 9, 33), (34, 17, 3, 3)))
    w *= np.asarray(2.0**-60, BFLOAT16)
    x[place] = value
    expected = computed(x, w, ("phases",), strides=[2, 2])
    for threads in (1, 2):
        with patch.object(amx, "AMX_SIZES", AMX_SIZES._replace(jobs_per_thread=6)):
            y = computed(x, w, ("amx", "phases"), threads, strides=[2, 2])
        np.testing.assert_array_equal(y.view(np.uint16), expected.view(np.uint16))


@needs_amx
@pytest.mark.parametrize("value", [1e-40, 1e-38, np.inf, -np.inf, np.nan])
def test_special_weights_are_refused(value: float) -> None:
    """Very small, infinite and undefined weights are multiplied in float32."""
    w = np.ones((40, 8, 2, 2), BFLOAT16)
    w[39, 7, 1, 1] = value
    x = np.full((1, 40, 5, 5), 2, BFLOAT16)
    assert np.isnan(computed(x, w, ("amx",), strides=[2, 2]).astype(np.float32)).all()
    found, expected = (computed(x, w, each, strides=[2, 2]).astype(np.float32) for each in (("amx", "rows"), ("rows",)))
    np.testing.assert_array_equal(found, expected)


@needs_amx
def test_infinity_and_nan_stay_in_their_windows() -> None:
    """Special inputs reach the outputs whose windows hold them; channels and rows that fill up tiles add nothing."""
    rng = np.random.default_rng(5)
    x, w = (rng.integers(1, 4, shape).astype(BFLOAT16) for shape in ((1, 33, 20, 37), (33, 17, 3, 3)))
    x[0, 32, 5, 6], x[0, 0, 9, 9], x[0, 31, 15, 30], x[0, 7, 15, 30] = np.inf, np.nan, np.inf, -np.inf
    found, expected = (computed(x, w, (each,), strides=[2, 2]) for each in ("amx", "rows"))
    assert np.isinf(expected.astype(np.float32)).sum() == np.isnan(expected.astype(np.float32)).sum() / 2 > 0
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@needs_amx
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e4])
@pytest.mark.parametrize("tiles", [AMX_SIZES.steps // 2, AMX_SIZES.steps // 2 + 1, 145, 640])
def test_errors_of_long_sums(tiles: int, scale: float) -> None:
    """The longest sums of one run, and those of several, keep to the bound of Rule 8.1, on any number of threads."""
    rng = np.random.default_rng(6)
    channels = tiles * amx.DEPTH
    x = (rng.standard_normal((1, channels, 70)) * scale).astype(BFLOAT16)
    w = rng.standard_normal((channels, 33, 2)).astype(BFLOAT16)
    y = computed(x, w, ("amx",), strides=[1])
    wide = [each.astype(np.float64) for each in (x, w)]
    exact, sizes = (
        sum(
            np.pad(np.einsum("ncp,cm->nmp", f(wide[0]), f(wide[1])[..., tap]), [(0, 0), (0, 0), (tap, 1 - tap)])
            for tap in (0, 1)
        )
        for f in (np.array, np.abs)
    )
    error = np.abs(y.astype(np.float64) - exact) - np.abs(exact) * 2.0**-8
    assert (error <= 64 * 2.0**-23 * sizes).all()
    np.testing.assert_array_equal(computed(x, w, ("amx",), 2, strides=[1]), y)


@needs_amx
@pytest.mark.parametrize(
    ("shape", "maps", "name"),
    [((1, 64, 20, 20), 64, "amx"), ((1, 64, 20, 20), 1, ""), ((1, 5000, 5, 5), 64, "amx"), ((1, 14000, 5, 5), 64, "")],
)
def test_who_takes_amx(shape: tuple[int, ...], maps: int, name: str) -> None:
    """Constant weights of many channels, unless a sum would be too long; never float16."""
    spec = resolve.spec("ConvTranspose", {"strides": [2, 2]})
    chosen = {
        dtype: PreparedConvTranspose(spec, ((shape, np.dtype(dtype)), ((shape[1], maps, 4, 4), np.dtype(dtype))))
        for dtype in (BFLOAT16, "float16")
    }
    assert (chosen[BFLOAT16].kernel == "amx") == bool(name)
    assert "amx" not in chosen["float16"].algorithms
    assert amx.ALGORITHM not in chosen[BFLOAT16]._dispatcher.algorithms(is_cached=False)


@pytest.mark.parametrize(
    "variables",
    [{"UNPOOL_LEVEL": "x86-64-v4"}, {"UNPOOL_LEVEL": "x86-64-v3"}, {"NUMBA_CPU_NAME": "generic"},
     {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": "+avx512bw,+avx512vl"}],
)  # fmt: skip
def test_no_amx_for_other_processors(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Libraries are built without it, as is what Numba compiles for another processor than the host."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", "from unpool.kernels.cpu.machine import host; print(host.has_amx())"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert result.stdout.strip() == "False"


def test_no_amx_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler there is no kernel for it."""
    monkeypatch.setattr(libraries, "can_compile", lambda: False)
    assert not host.has_amx.__wrapped__()


@needs_amx
def test_fork_keeps_the_permission() -> None:
    """Linux's permission is that of a process, which its threads and forked children have, too."""
    code = (
        "import os, numpy as np, ml_dtypes, unpool\n"
        "w = np.ones((64, 64, 3, 3), ml_dtypes.bfloat16)\n"
        "x = np.ones((1, 64, 30, 30), ml_dtypes.bfloat16)\n"
        "call = unpool.prepare_conv_transpose(w, pads=[1] * 4)\n"
        "assert call(x)[0, 0, 9, 9] == 576\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(int(call(x)[0, 0, 9, 9] != 576))\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    execute.clear_cache()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
