"""A model for pictures."""

import numpy as np
import pytest

from tests.support.command import save_model


@pytest.fixture
def bright(here):
    """Two classes of grey pixels: background up to 100, coin above; any height and width."""
    return save_model(
        here / "bright.onnx",
        "(float[1, 1, H, W] image) => (float[1, 2, H, W] logits) { logits = Conv (image, w, b) }",
        classes="background,coin",
        w=np.array([-1, 1], np.float32).reshape(2, 1, 1, 1),
        b=np.array([100.5, -100.5], np.float32),
    )
