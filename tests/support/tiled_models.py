"""Random models that can be tiled exactly. Weights and images are small whole numbers, and every layer is clipped, so
that sums of float32 are exact in any order, and results can be compared bit for bit.
"""

import hypothesis.strategies as st
import numpy as np
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 2
LAYERS = (
    "conv", "same_conv", "strided_conv", "pool", "average", "grow", "unpool", "pad", "crop", "resize", "shuffle",
    "skip",
)  # fmt: skip


class Builder:
    """Nodes and weights of a model that grows layer by layer."""

    def __init__(self, rank, draw):
        self.rank, self.draw = rank, draw
        self.nodes, self.weights, self.outputs = [], [], []
        self._random = np.random.default_rng(draw(st.integers(0, 999)))

    def node(self, operator, *inputs, outputs=1, **attributes):
        """Add a node; its first output's name, or the names of all."""
        made = [f"{operator}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, values, kind=np.int64):
        """Add a constant; its name."""
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def axes(self, low, high):
        """A number for every spatial axis."""
        return [self.draw(st.integers(low, high)) for _ in range(self.rank)]

    def windows(self, most_stride, **more):
        """Attributes that place windows, with pads below the kernel."""
        kernel = self.axes(1, 3)
        pads = [self.draw(st.integers(0, size - 1)) for size in kernel * 2]
        return {"kernel_shape": kernel, "strides": self.axes(1, most_stride), "pads": pads, **more}

    def weight(self, kernel):
        """Weights from -1 to 1."""
        return self.constant(self._random.integers(-1, 2, (CHANNELS, CHANNELS, *kernel)), np.float32)

    def clip(self, x):
        """The value, kept small."""
        return self.node("Clip", x, self.constant(-40, np.float32), self.constant(40, np.float32))

    def convolved(self, operator, x, attributes):
        """A Conv or ConvTranspose."""
        return self.clip(self.node(operator, x, self.weight(attributes["kernel_shape"]), **attributes))

    def conv(self, x):
        return self.convolved("Conv", x, self.windows(1, dilations=self.axes(1, 2)))

    def strided_conv(self, x):
        return self.convolved("Conv", x, self.windows(3))

    def same_conv(self, x):
        same = self.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
        kernel, strides = self.axes(2, 4), self.axes(1, 2)
        return self.convolved("Conv", x, {"kernel_shape": kernel, "strides": strides, "auto_pad": same})

    def pool(self, x):
        return self.node("MaxPool", x, **self.windows(3, ceil_mode=self.draw(st.integers(0, 1))))

    def average(self, x):
        """Of four elements or less by a power of two, which is exact where what follows rounds."""
        made = self.node("AveragePool", x, kernel_shape=[2] * self.rank, strides=self.axes(1, 2))
        return self.node("Floor", made)

    def grow(self, x):
        strides = self.axes(1, 2)
        extra = [self.draw(st.integers(0, stride - 1)) for stride in strides]
        kernel = [stride + self.draw(st.integers(0, 2)) for stride in strides]
        attributes = {"kernel_shape": kernel, "strides": strides, "output_padding": extra}
        return self.convolved("ConvTranspose", x, attributes)

    def unpool(self, x):
        """A pool with indices, something on the way, the unpool, and a skip around all that."""
        attributes = self.windows(2, ceil_mode=self.draw(st.integers(0, 1)))
        pooled, indices = self.node("MaxPool", x, outputs=2, **attributes)
        if self.draw(st.booleans()):
            pooled = self.node("Relu", self.convolved("Conv", pooled, self.keeping()))
        del attributes["ceil_mode"]
        made = self.node("MaxUnpool", pooled, indices, self.node("Shape", x), **attributes)
        return self.node("Add", made, x)

    def keeping(self):
        """Attributes of a Conv that keeps the size."""
        return {"kernel_shape": [3] * self.rank, "pads": [1] * (2 * self.rank)}

    def pad(self, x):
        """With something behind it: onnxruntime makes Pad part of a pool, and then refuses the pool's pads."""
        mode = self.draw(st.sampled_from(["constant", "edge", "reflect"]))
        made = self.node("Pad", x, self.constant([0, 0, *self.axes(0, 2)] * 2), mode=mode)
        return self.node("Neg", made)

    def crop(self, x):
        starts, ends = self.axes(0, 1), [-1] * self.rank
        steps = self.axes(1, 2)
        axes = list(range(2, 2 + self.rank))
        return self.node("Slice", x, *map(self.constant, (starts, ends, axes, steps)))

    def resize(self, x):
        scales = self.constant([1, 1, *[2] * self.rank], np.float32)
        placing = self.draw(st.sampled_from(["asymmetric", "half_pixel"]))
        words = {"mode": "nearest", "coordinate_transformation_mode": placing, "nearest_mode": "floor"}
        return self.node("Resize", x, "", scales, **words)

    def shuffle(self, x):
        """Blocks to channels and back in two dimensions; else Transpose there and back."""
        if self.rank == 2:
            crowded = self.node("Concat", x, x, axis=1)
            return self.node("DepthToSpace", self.node("Concat", crowded, crowded, axis=1), blocksize=2)
        order = [0, *range(2, 2 + self.rank), 1]
        back = [0, 1 + self.rank, *range(1, 1 + self.rank)]
        return self.node("Transpose", self.node("Neg", self.node("Transpose", x, perm=order)), perm=back)

    def skip(self, x):
        joined = self.node("Concat", x, self.convolved("Conv", x, self.keeping()), axis=1)
        parts = self.node("Split", joined, outputs=2, axis=1)
        return self.clip(self.node("Sub", *parts))


@st.composite
def tiled_models(draw):
    """A model of up to four layers with one or two outputs, and an image for it."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    builder = Builder(rank, draw)
    x = "x"
    for name in draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4)):
        x = getattr(builder, name)(x)
        if draw(st.booleans()):
            builder.outputs.append(x)
    builder.outputs.append(x)
    free = [None] * (rank + 2)
    outputs = dict.fromkeys(builder.outputs)
    graph = helper.make_graph(
        builder.nodes,
        "tiled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, *free[2:]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, free) for name in outputs],
        builder.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sizes = [draw(st.integers(*((40, 90), (26, 44), (18, 24))[rank - 1])) for _ in range(rank)]
    image = np.random.default_rng(draw(st.integers(0, 999))).integers(-9, 10, (1, CHANNELS, *sizes))
    return model, image.astype(np.float32)
