"""Models of an input x and an output z whose values are sums of small whole numbers, which no rounding changes."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tests.support import models

HALVES = "kernel_shape = [2, 2], strides = [2, 2]"
WEIGHTS = np.float32([[1, 2], [3, 4]])


@dataclass(frozen=True)
class Net:
    """A model.

    Attributes:
        content: the bytes of the file.
        x: a value of the input, float32, (N, 1, 4, 4).
        z: what the model makes of it.
        z_shape: of the output, with the name of a free axis.
    """

    content: bytes
    x: np.ndarray
    z: np.ndarray
    z_shape: list

    @property
    def feed(self):
        """The input by its name, in an array of its own."""
        return {"x": self.x.copy()}

    def assert_right(self, session):
        """A session makes z of x."""
        np.testing.assert_array_equal(session.run(None, self.feed)[0], self.z)


def ends(values):
    """Name, shape and type of each input or output of a session."""
    return [(one.name, one.shape, one.type) for one in values]


def images(count):
    """So many images of 4x4, whose elements are positive and differ."""
    return np.float32([np.arange(16).reshape(1, 4, 4) * (5 + 3 * at) % 17 + 1 for at in range(count)])


def pools(batch=1, count=1):
    """The maxima of windows of 2x2 where they were, and zeros: MaxPool with Indices and MaxUnpool between others."""
    graph = f"""pools (float[{batch}, 1, 4, 4] x) => (float[{batch}, 1, 4, 4] z) {{
        r = Relu (x)
        y, i = MaxPool <{HALVES}> (r)
        u = MaxUnpool <{HALVES}> (y, i)
        z = Mul (u, w)
    }}"""
    x = images(count)
    peaks = np.kron(x.reshape(-1, 1, 2, 2, 2, 2).max(axis=(3, 5)), np.ones((2, 2), np.float32))
    made = models.model(graph, w=np.float32([2]))
    return Net(made.SerializeToString(), x, 2 * np.where(x == peaks, x, 0), [batch, 1, 4, 4])


def grows(batch=1, count=1):
    """Every element times a window of 2x2: ConvTranspose between others."""
    graph = f"""grows (float[{batch}, 1, 4, 4] x) => (float[{batch}, 1, 8, 8] z) {{
        r = Relu (x)
        u = ConvTranspose <strides = [2, 2]> (r, k)
        z = Mul (u, w)
    }}"""
    x = images(count)
    made = models.model(graph, w=np.float32([2]), k=WEIGHTS[None, None])
    return Net(made.SerializeToString(), x, 2 * np.kron(x, WEIGHTS), [batch, 1, 8, 8])


def plain(batch=1, count=1):
    """Every element twice: no operator of unpool."""
    graph = f"""plain (float[{batch}, 1, 4, 4] x) => (float[{batch}, 1, 4, 4] z) {{
        r = Relu (x)
        z = Mul (r, w)
    }}"""
    x = images(count)
    return Net(models.model(graph, w=np.float32([2])).SerializeToString(), x, 2 * x, [batch, 1, 4, 4])


NETS = {"pools": pools, "grows": grows, "plain": plain}


def with_words(content, **words):
    """The model with other words about itself: fields of ModelProto, `graph_doc`, and a dict `metadata`."""
    made = onnx.load_from_string(content)
    made.graph.doc_string = words.pop("graph_doc", "")
    helper.set_model_props(made, words.pop("metadata", {}))
    for field, value in words.items():
        setattr(made, field, value)
    return made.SerializeToString()
