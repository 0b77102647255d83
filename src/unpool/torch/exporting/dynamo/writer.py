"""Writes nodes for torch's default exporter, with onnxscript's opset 18, the exporter's own.

The exporter converts them to newer opsets; `older_opset` to older ones.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnxscript import ir, opset18

from unpool.torch.exporting.attributes import pool_windows
from unpool.torch.exporting.nodes import PoolBehind

op: Any = opset18
"""Typed loosely, for while it is traced it takes ints and lists where its annotations name tensors."""

PLANES = "unpool.planes"
"""Key of a MaxPool node's meta data: elements in a plane of its output and of its input, None if dynamic."""


class ProgramWriter:
    """The `Writer` of the default exporter. A dynamic size is an int64 value of shape (1,)."""

    opset = 18

    def known_sizes(self, x: Any) -> list[int | None]:
        """See `Writer`."""
        return [size if isinstance(size, int) else None for size in x.shape]

    def size(self, x: Any, axis: int) -> Any:
        """See `Writer`; the axis is negative."""
        size = x.shape[axis]
        return size if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1 or None)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """See `Writer`."""
        return getattr(op, op_type)(*inputs, **attributes)

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """See `Writer`."""
        return op.Constant(value=ir.tensor(numbers))

    def vector(self, sizes: Sequence[Any]) -> Any:
        """See `Writer`."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(np.array(sizes, dtype=np.int64))
        return op.Concat(*(self.vector([size]) if isinstance(size, int) else size for size in sizes), axis=0)

    def reshaped(self, x: Any, sizes: Sequence[Any]) -> Any:
        """See `Writer`."""
        return op.Reshape(x, self.vector(sizes))

    def numbers_below(self, count: Any) -> Any:
        """See `Writer`."""
        return op.Range(0, count if isinstance(count, int) else op.Squeeze(count), 1)

    def with_batch(self, x: Any) -> Any:
        """See `Writer`."""
        return op.Unsqueeze(x, [0])

    def without_batch(self, x: Any) -> Any:
        """See `Writer`."""
        return op.Squeeze(x, [0])

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """See `Writer`; with indices the node remembers how large its planes are, for `pool_behind`."""
        values, indices = op.MaxPool(x, **attributes)
        if not with_indices:
            return [values]
        large, small = sizes
        indices.producer().meta[PLANES] = None if None in small else (prod(small), prod(large))
        return [values, indices]

    def in_plane(self, indices: Any, plane: Any) -> Any:
        """See `Writer`."""
        return op.Mod(indices, plane)

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:  # noqa: ARG002
        """See `Writer`."""
        return op.MaxUnpool(*inputs, **attributes)

    def pool_behind(self, indices: Any, rank: int) -> PoolBehind | None:
        """See `Writer`."""
        path = _path_to_pool(indices)
        if not path:
            return None
        attributes = {name: attribute.value for name, attribute in path[-1].attributes.items()}
        is_one_mod = sum(node.op_type == "Mod" for node in path) == 1
        return PoolBehind(pool_windows(attributes, rank), path[-1].meta.get(PLANES) if is_one_mod else None)

    def as_pooled(self, indices: Any) -> Any:
        """See `Writer`."""
        *path, pool = _path_to_pool(indices)
        value = pool.outputs[1]
        for node in reversed(path):
            if node.op_type != "Mod":
                value = getattr(op, node.op_type)(value, node.inputs[1])
        return value


def _path_to_pool(indices: Any) -> list[Any]:
    """The nodes from the one that gives the indices back to the MaxPool that found them; empty without such a pool."""
    nodes = [indices.producer()]
    while nodes[-1] is not None and nodes[-1].op_type in ("Mod", "Unsqueeze", "Squeeze"):
        nodes.append(nodes[-1].inputs[0].producer())
    return nodes if nodes[-1] is not None and nodes[-1].op_type == "MaxPool" else []
