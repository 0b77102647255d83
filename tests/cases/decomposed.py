"""Models whose unpoolings are decomposed: as torch's own exporter writes them, and by hand with one thing changed."""

import numpy as np
import torch

from tests.cases import exports
from tests.support import models, networks


class RoundTrip(exports.RoundTrip):
    """With a ReLU before MaxUnpool."""

    def forward(self, x):
        values, indices = self.pool(x)
        size = x.shape[-self.rank :] if self.sized else None
        return self.unpool(torch.relu(values), indices, output_size=size)


def export(network, x, dynamic=None):
    """The network as torch's exporter writes it, without the translations of unpool."""
    shapes = None if dynamic is None else ({axis: f"d{axis}" for axis in dynamic},)
    return networks.export(network, x, dynamic_shapes=shapes, is_translated=False)


def by_hand(
    *,
    fill="",
    scatter="ScatterND",
    begin="first = Slice (ones, zeros2, ones2, axes)",
    other="MaxPool <kernel_shape = [1, 1]>",
    end="y = Reshape (s, shape)",
    pool="kernel_shape = [2, 2], strides = [2, 2]",
    offsets=None,
    size=(2, 3, 4, 6),
    outputs="float[2, 3, 4, 6] y",
    opset=17,
):
    """A pool, a second one for the offsets, and an unpooling by ScatterND: what torch writes, part by part."""
    n, c, h, w = size
    planes = np.arange(n * c).reshape(n, c, 1, 1) * (h * w)
    return models.model(
        f"""by_hand (float[{n}, {c}, {h}, {w}] x) => ({outputs}) {{
            p, whole = MaxPool <{pool}> (x)
            _, ones = {other} (x)
            {begin}
            plane = Sub (whole, first)
            i = Add (plane, offsets)
            flat_i = Reshape (i, minus)
            places = Unsqueeze (flat_i, minus)
            flat_p = Reshape (p, minus)
            empty = ConstantOfShape {fill} (shape)
            data = Reshape (empty, minus)
            s = {scatter} (data, places, flat_p)
            {end}
        }}""",
        opset=opset,
        minus=np.int64([-1]),
        zeros2=np.int64([0, 0]),
        ones2=np.int64([1, 1]),
        axes=np.int64([2, 3]),
        shape=np.int64(size),
        offsets=planes if offsets is None else offsets,
    )
