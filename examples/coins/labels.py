"""The coin photograph and its classical segmentation, which is what the network learns."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage import data, filters, segmentation

HELD_OUT_FROM = 288
"""First column that training never sees."""

SURELY_BACKGROUND, SURELY_COIN = 30, 150
SMALLEST_COIN = 400


def photograph() -> NDArray[np.uint8]:
    """scikit-image's `coins`: Greek coins from Pompeii, grey, shape (303, 384)."""
    return np.asarray(data.coins(), dtype=np.uint8)


def coin_mask(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True on coins: a watershed of the edge strength, grown from what is certainly coin or background.

    Holes are filled, and blobs below SMALLEST_COIN pixels are dropped.
    """
    markers = np.zeros(image.shape, dtype=np.int32)
    markers[image < SURELY_BACKGROUND] = 1
    markers[image > SURELY_COIN] = 2
    regions = segmentation.watershed(filters.sobel(image), markers)
    blobs, _ = ndimage.label(ndimage.binary_fill_holes(regions == 2))
    sizes = np.bincount(blobs.ravel())
    sizes[0] = 0
    return np.asarray(sizes[blobs] >= SMALLEST_COIN)


def intersection_over_union(found: NDArray[np.bool_], expected: NDArray[np.bool_]) -> float:
    """Pixels in both masks over pixels in either."""
    return float((found & expected).sum() / (found | expected).sum())
