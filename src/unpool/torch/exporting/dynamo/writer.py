"""The NodeWriter of torch's default exporter, with onnxscript's opset 18, the exporter's own.

The exporter converts nodes to newer opsets, `opset_downgrade` to older ones.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnxscript import ir, opset18

from unpool.torch.exporting.attributes import pool_windows
from unpool.torch.exporting.nodes import SourcePool

op: Any = opset18
"""Any: during tracing it takes ints and lists for tensors."""

PLANES = "unpool.planes"
"""Key of a MaxPool node's meta data: elements in a plane of its output and of its input, None if dynamic."""


class ProgramWriter:
    """The `NodeWriter` of the default exporter. A dynamic size is an int64 value of shape (1,)."""

    opset = 18

    def static_sizes(self, x: Any) -> list[int | None]:
        """See `NodeWriter`."""
        return [size if isinstance(size, int) else None for size in x.shape]

    def size(self, x: Any, axis: int) -> Any:
        """See `NodeWriter`; the axis is negative."""
        size = x.shape[axis]
        return size if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1 or None)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """See `NodeWriter`."""
        return getattr(op, op_type)(*inputs, **attributes)

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """See `NodeWriter`."""
        return op.Constant(value=ir.tensor(numbers))

    def vector(self, sizes: Sequence[Any]) -> Any:
        """See `NodeWriter`."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(np.array(sizes, dtype=np.int64))
        return op.Concat(*(self.vector([size]) if isinstance(size, int) else size for size in sizes), axis=0)

    def reshape(self, x: Any, sizes: Sequence[Any]) -> Any:
        """See `NodeWriter`."""
        return op.Reshape(x, self.vector(sizes))

    def arange(self, count: Any) -> Any:
        """See `NodeWriter`."""
        return op.Range(0, count if isinstance(count, int) else op.Squeeze(count), 1)

    def add_batch(self, x: Any) -> Any:
        """See `NodeWriter`."""
        return op.Unsqueeze(x, [0])

    def remove_batch(self, x: Any) -> Any:
        """See `NodeWriter`."""
        return op.Squeeze(x, [0])

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """See `NodeWriter`; with indices the node's meta data get the sizes of its planes, for `source_pool`."""
        values, indices = op.MaxPool(x, **attributes)
        if not with_indices:
            return [values]
        large, small = sizes
        indices.producer().meta[PLANES] = None if None in small else (prod(small), prod(large))
        return [values, indices]

    def indices_in_plane(self, indices: Any, plane: Any) -> Any:
        """See `NodeWriter`."""
        return op.Mod(indices, plane)

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:  # noqa: ARG002
        """See `NodeWriter`."""
        return op.MaxUnpool(*inputs, **attributes)

    def source_pool(self, indices: Any, rank: int) -> SourcePool | None:
        """See `NodeWriter`."""
        path = _path_to_pool(indices)
        if not path:
            return None
        attributes = {name: attribute.value for name, attribute in path[-1].attributes.items()}
        is_one_mod = sum(node.op_type == "Mod" for node in path) == 1
        return SourcePool(pool_windows(attributes, rank), path[-1].meta.get(PLANES) if is_one_mod else None)

    def indices_in_tensor(self, indices: Any) -> Any:
        """See `NodeWriter`."""
        *path, pool = _path_to_pool(indices)
        value = pool.outputs[1]
        for node in reversed(path):
            if node.op_type != "Mod":
                value = getattr(op, node.op_type)(value, node.inputs[1])
        return value


def _path_to_pool(indices: Any) -> list[Any]:
    """The nodes from the one with the indices back to their MaxPool; empty without such a pool."""
    nodes = [indices.producer()]
    while nodes[-1] is not None and nodes[-1].op_type in ("Mod", "Unsqueeze", "Squeeze"):
        nodes.append(nodes[-1].inputs[0].producer())
    return nodes if nodes[-1] is not None and nodes[-1].op_type == "MaxPool" else []
