"""Activations of whole arrays, in place: as the formulas say, of any size and type, whatever the threads."""

import ml_dtypes
import numpy as np
import pytest

from tests.oracle.activation import activate as formula
from unpool.kernels.cpu.activation import activate

FORMS = (
    ("Relu", ()), ("LeakyRelu", (0.1,)), ("LeakyRelu", (np.nan,)), ("Clip", (-0.5, 1.5)), ("Clip", (3.0, 1.0)),
    ("Clip", (np.nan, 1.0)), ("Clip", (0.0, np.nan)), ("HardSigmoid", (0.2, 0.5)), ("HardSwish", ()), ("Tanh", ()),
    ("Sigmoid", ()),
)  # fmt: skip
TOLERANCES = {np.float32: 3e-7, np.float64: 1e-14, np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}


def drawn(dtype, size: int) -> np.ndarray:
    """Numbers of all magnitudes, and special ones."""
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size) * rng.choice([1e-3, 1, 10, 60], size)
    x[:5] = [np.nan, np.inf, -np.inf, -0.0, 0.0][:size]
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("name", "params"), FORMS)
@pytest.mark.parametrize("size", [1, 7, 67, 1001])
def test_floats(dtype, name: str, params: tuple[float, ...], size: int) -> None:
    """Every value is that of the formula; NaN stays NaN."""
    x = drawn(dtype, size)
    expected = formula(x, name, params, np.dtype(dtype)).astype(np.float64)
    y = activate(x, name, params)
    assert y is x
    close = TOLERANCES[dtype]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("name", "params"), [("Relu", ()), ("Clip", (-1000.0, 2.0)), ("Clip", (-2.6, 2.6))])
def test_integers(dtype, name: str, params: tuple[float, ...]) -> None:
    """Bounds are rounded, and saturate."""
    x = np.arange(256).astype(np.uint8).view(dtype)
    expected = formula(x, name, params, np.dtype(dtype))
    np.testing.assert_array_equal(activate(x, name, params), expected)


@pytest.mark.parametrize("name", ["Tanh", "Sigmoid"])
def test_small_results_keep_their_digits(name: str) -> None:
    """Near 0, tanh is as precise as its argument; far below 0, the sigmoid is down to the least numbers."""
    x = np.array([1e-300, -1e-9, 1e-5, 0.2]) if name == "Tanh" else np.array([-700.0, -740.0, -745.0])
    expected = np.tanh(x) if name == "Tanh" else np.exp(x)
    np.testing.assert_allclose(activate(x.copy(), name, ()), expected, rtol=1e-15, atol=5e-324)


def test_threads_change_nothing() -> None:
    """Chunks of a long array are computed alike in any number of threads, and nothing around it is touched."""
    x = drawn(np.float32, (1 << 18) + 5)
    whole, part = x.copy(), x.copy()
    activate(whole, "Tanh", (), threads=2)
    activate(part[3:-2], "Tanh", (), threads=1)
    assert whole[3:-2].tobytes() == part[3:-2].tobytes()
    assert part[:3].tobytes() == x[:3].tobytes()
    assert part[-2:].tobytes() == x[-2:].tobytes()
