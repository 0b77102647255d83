"""The smallest image that a model takes, by its geometry alone: it runs, and one that is smaller does not."""

from importlib.resources import as_file, files

import numpy as np
import pytest

import unpool
from tests.support import models
from unpool.runtime.tiles.tiler import SizeRange, overview

HEAD = "net (float[1, 1, h, w] x) => (float[n, c, a, b] y)"
POOL = "kernel_shape = [2, 2], strides = [2, 2]"
W3 = np.ones((1, 1, 3, 3), np.float32)
W2 = np.ones((1, 1, 2, 2), np.float32)


def valid_pools():
    """Convolutions without padding and a pool between them."""
    body = f"t = Conv (x, w)  p = MaxPool <{POOL}> (t)  y = Conv <dilations = [2, 3]> (p, w)"
    return models.model(f"{HEAD} {{ {body} }}", w=W3)


def reflected():
    """A padding that repeats five rows and four columns beside the border."""
    return models.model(f'{HEAD} {{ y = Pad <mode = "reflect"> (x, pads) }}', pads=np.int64([0, 0, 5, 4, 0, 0, 5, 0]))


def skipping():
    """A U-Net of two levels: what is grown joins what was pooled, so that only multiples of 4 are taken."""
    body = f"""
        a = MaxPool <{POOL}> (x)
        b = MaxPool <{POOL}> (a)
        c = ConvTranspose <strides = [2, 2]> (b, w)
        d = Add (a, c)
        e = ConvTranspose <strides = [2, 2]> (d, w)
        y = Add (x, e)"""
    return models.model(f"{HEAD} {{ {body} }}", w=W2)


CASES = {
    "valid_pools": (valid_pools, (SizeRange(12, 1), SizeRange(16, 1))),
    "reflected": (reflected, (SizeRange(6, 1), SizeRange(5, 1))),
    "skipping": (skipping, (SizeRange(4, 4), SizeRange(4, 4))),
}


def runs(session, sizes):
    """Whether a run gives outputs that have elements."""
    (image,) = session.get_inputs()
    outer = [size if isinstance(size, int) else 1 for size in image.shape[:2]]
    try:
        outputs = session.run(None, {image.name: np.ones((*outer, *sizes), np.float32)})
    except Exception:  # whoever runs the node that is too small
        return False
    return all(one.size for one in outputs)


@pytest.mark.parametrize("name", CASES)
def test_smallest_image_runs_and_a_smaller_one_does_not(name):
    """Along each axis alone the size that is told runs, the next one in a step too, and none between or below."""
    make, expected = CASES[name]
    session = unpool.InferenceSession(make())
    found = overview(session, {}).smallest
    least = [one.least for one in found]

    assert found == expected
    assert runs(session, least)
    for axis, one in enumerate(found):
        for size in range(max(1, one.least - one.step - 2), one.least + one.step + 1):
            sizes = [*least]
            sizes[axis] = size
            assert runs(session, sizes) == (size >= one.least and (size - one.least) % one.step == 0), sizes


def test_bundled_network_takes_eight():
    """Its three pools need 8 rows and columns, any more are taken, and 7 are too few."""
    with as_file(files("unpool") / "data" / "coins.onnx") as path:
        session = unpool.InferenceSession(path)

    assert overview(session, {}).smallest == (SizeRange(8, 1), SizeRange(8, 1))
    assert (runs(session, (8, 8)), runs(session, (8, 7))) == (True, False)


def test_fixed_sizes_are_the_only_ones():
    """What the model fixes is said with step 0; a size that it does not take gives nothing."""
    small = overview(unpool.InferenceSession(models.plain_pools()), {}).smallest
    session = unpool.InferenceSession(skipping())

    assert all(one.step == 0 for one in small)
    assert "joins shapes that do not fit, (1, 1, 3, 4), (1, 1, 2, 4)" in overview(session, {"h": 6, "w": 8}).refusal
