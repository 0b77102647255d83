"""The nodes around a node, for passes that fuse several into one."""

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.graph.graph import Graph, constant_array
from unpool.graph.nodes import domain
from unpool.graph.shapes import Types


class Neighbours:
    """The graph, constants lifted, and what is fused already.

    Attributes:
        graph: the graph.
        types: of its values.
        taken: positions of nodes that are fused already.
    """

    def __init__(self, graph: Graph, types: Types) -> None:
        self.graph, self.types = graph, types
        self.taken: set[int] = set()

    def array(self, name: str) -> AnyArray | None:
        """The small array that a value is in every run; None if it is large or unknown."""
        return constant_array(self.graph, name) if name else None

    def next(self, name: str, operator: str = "") -> int | None:
        """The position of the only reader of a value, which nothing else reads; None if it is another operator."""
        readers = self.graph.readers.get(name, ()) if name in self.graph.single else ()
        if len(readers) != 1 or name not in self.graph.nodes[readers[0]].input:
            return None
        node = self.graph.nodes[readers[0]]
        is_free = domain(node) == "" and readers[0] not in self.taken
        return readers[0] if is_free and operator in ("", node.op_type) else None

    def per_channel(self, node: onnx.NodeProto, value: str, rank: int, channels: int) -> AnyArray | None:
        """The (C,) constant that a Mul or Add applies to a value; None if it is another one."""
        (other,) = [name for name in node.input if name != value] or [""]
        array = self.array(other)
        if array is None or array.dtype != np.float32 or array.ndim > rank or array.size not in (1, channels):
            return None
        shape = (1,) * (rank - array.ndim) + array.shape
        if any(size != 1 for axis, size in enumerate(shape) if axis != 1):
            return None
        return np.broadcast_to(array.reshape(-1), (channels,)).copy()
