"""Random models that can be tiled exactly. Weights and images are small whole numbers, and every layer is clipped, so
that sums of float32 are exact in any order, and results can be compared bit for bit.
"""

import hypothesis.strategies as st
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import unpool

CHANNELS = 2
LAYERS = (
    "conv", "same_conv", "strided_conv", "pool", "average", "grow", "unpool", "pad", "crop", "resize", "shuffle",
    "skip", "join", "indices", "branches",
)  # fmt: skip


class Builder:
    """Nodes and weights of a model that grows layer by layer."""

    def __init__(self, rank, draw):
        self.rank, self.draw = rank, draw
        self.nodes, self.weights, self.outputs = [], [], []
        self._random = np.random.default_rng(draw(st.integers(0, 999)))
        sizes = [draw(st.integers(*((40, 90), (26, 44), (18, 24))[rank - 1])) for _ in range(rank)]
        self.batch = draw(st.sampled_from([1, 1, 1, 2]))
        self.feed = {"x": self.image(sizes)}

    def image(self, sizes):
        return self._random.integers(-9, 10, (self.batch, CHANNELS, *sizes)).astype(np.float32)

    def sizes(self, x):
        session = unpool.InferenceSession(self.model({x: TensorProto.FLOAT}), index_space="output", exact=True)
        return session.run(None, self.feed)[0].shape[2:]

    def model(self, outputs):
        """What was built so far, with outputs of these types; all spatial sizes are free."""
        free, read = [None] * self.rank, [self.batch, CHANNELS]
        graph = helper.make_graph(
            self.nodes,
            "tiled",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [*read, *free]) for name in self.feed],
            [helper.make_tensor_value_info(name, kind, [None, None, *free]) for name, kind in outputs.items()],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def node(self, operator, *inputs, outputs=1, **attributes):
        """Add a node; its first output's name, or the names of all."""
        made = [f"{operator}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, values, kind=np.int64):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def axes(self, low, high):
        return [self.draw(st.integers(low, high)) for _ in range(self.rank)]

    def windows(self, most_stride, **more):
        """Attributes that place windows, with pads below the kernel."""
        kernel = self.axes(1, 3)
        pads = [self.draw(st.integers(0, size - 1)) for size in kernel * 2]
        return {"kernel_shape": kernel, "strides": self.axes(1, most_stride), "pads": pads, **more}

    def weight(self, kernel):
        return self.constant(self._random.integers(-1, 2, (CHANNELS, CHANNELS, *kernel)), np.float32)

    def clip(self, x):
        return self.node("Clip", x, self.constant(-40, np.float32), self.constant(40, np.float32))

    def convolved(self, operator, x, attributes):
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

    def join(self, x):
        if x in self.feed:
            return self.node("Neg", x)
        name = f"x{len(self.feed)}"
        self.feed[name] = self.image(self.sizes(x))
        return self.clip(self.node("Add", x, name))

    def indices(self, x):
        """A pool whose indices leave the model."""
        pooled, indices = self.node("MaxPool", x, outputs=2, **self.windows(2, ceil_mode=self.draw(st.integers(0, 1))))
        self.outputs.append(indices)
        return pooled

    def branches(self, x):
        """Down and up again beside a shorter way of another halo, both cropped to one size."""
        down = self.pool(self.convolved("Conv", x, self.windows(1)))
        strides = next(list(one.ints) for one in self.nodes[-1].attribute if one.name == "strides")
        up = self.convolved("ConvTranspose", down, {"kernel_shape": strides, "strides": strides})
        side = self.convolved("Conv", x, {"kernel_shape": [1] * self.rank, "pads": self.axes(0, 1) * 2})
        return self.joined(up, side)

    def joined(self, one, other):
        """The sum of two values, of which the larger one is cropped along each axis."""
        less = [size - smaller for size, smaller in zip(self.sizes(one), self.sizes(other), strict=True)]
        return self.clip(self.node("Add", self.cropped(one, less), self.cropped(other, [-size for size in less])))

    def cropped(self, x, less):
        """So many elements less along each axis, on both sides; none where the number is negative."""
        starts = [max(0, one) // 2 for one in less]
        ends = [first - max(0, one) or 2**31 for first, one in zip(starts, less, strict=True)]
        return self.node("Slice", x, *map(self.constant, (starts, ends, list(range(2, 2 + self.rank)))))


@st.composite
def tiled_models(draw):
    """A model of up to four layers with one output or several, and what it gets."""
    builder = Builder(draw(st.sampled_from([1, 2, 2, 2, 3])), draw)
    x = "x"
    for name in draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4)):
        x = getattr(builder, name)(x)
        if draw(st.booleans()):
            builder.outputs.append(x)
    builder.outputs.append(x)
    kinds = {name: kind_of(name) for name in builder.outputs}
    return builder.model(kinds), builder.feed


def kind_of(name):
    is_index = name.startswith("MaxPool") and name.endswith("_1")
    return TensorProto.INT64 if is_index else TensorProto.FLOAT
