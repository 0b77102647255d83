"""Float32: the largest error of a call, relative to its largest output, beside that of PyTorch's sums."""

import numpy as np
import pytest
import torch

import unpool

CASES = 1000
UNIT = 2.0**-24  # what rounding alone may cost


def draw(seed: int) -> tuple[list[np.ndarray], dict[str, object], dict[str, object]]:
    """X and W of a call over two axes, its attributes, and PyTorch's; every 20th has 512 channels, others many too."""
    rng = np.random.default_rng(seed)
    channels = 512 if seed % 20 == 0 else int(rng.choice((1, 3, 8, 16, 40, 64, 128)))
    is_large = seed % 10 < 3
    window, stride = ((4, 2), (3, 1), (3, 2), (2, 2), tuple(int(n) for n in rng.integers(1, 5, 2)))[seed % 5]
    padding, size = int(rng.integers(0, (window + 1) // 2)), 24 if is_large else int(rng.choice((4, 7, 12, 20)))
    group = int(rng.choice((1, 1, 1, 2)))
    x = rng.standard_normal((1, channels * group, size, size)).astype(np.float32)
    maps = 48 if is_large else int(rng.choice((1, 3, 16, 40)))
    w = rng.standard_normal((channels * group, maps, window, window)).astype(np.float32)
    ours = {"strides": [stride] * 2, "pads": [padding] * 4, "group": group}
    return [x, w], ours, {"stride": stride, "padding": padding, "groups": group}


def errors(seed: int) -> tuple[float, float]:
    """Ours, and PyTorch's, against float64."""
    inputs, ours, theirs = draw(seed)
    narrow = [torch.from_numpy(each.copy()) for each in inputs]
    exact = torch.nn.functional.conv_transpose2d(*(each.double() for each in narrow), **theirs).numpy()
    x, w = inputs
    y = unpool.conv_transpose(x, w, **ours) if seed % 2 else unpool.prepare_conv_transpose(w, **ours)(x)
    found = y, torch.nn.functional.conv_transpose2d(*narrow, **theirs).numpy()
    ours_off, theirs_off = (float(np.abs(y - exact).max() / np.abs(exact).max()) for y in found)
    return ours_off, theirs_off


@pytest.mark.slow
def test_errors_are_those_of_direct_sums() -> None:
    """Twice PyTorch's, or a rounding, in the median of a thousand calls, four times in all but two, and never six.

    The largest of few errors is a matter of luck: where PyTorch's is small by chance, plain sums in another order have
    been 4.3 times as far off, on one of two processors.
    """
    ours, theirs = np.array([errors(seed) for seed in range(CASES)]).T
    ratios = np.sort(ours / np.maximum(theirs, UNIT))
    assert np.median(ratios) <= 2
    assert ratios[-3] <= 4
    assert ratios[-1] <= 6
