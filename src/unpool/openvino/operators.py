"""MaxPool, MaxUnpool and ConvTranspose as operators of OpenVINO, which its CPU device computes by unpool.

The device passes int64 as int32, so indices are below 2**31 here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool import execute
from unpool.errors import UnpoolError
from unpool.graph.shapes import Dims, output_dims
from unpool.openvino.package import package
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

openvino = package()
MAX_INDEX = 2**31  # elements that the indices of a MaxPool may count in


@dataclass(frozen=True)
class Computation:
    """The computation of a node, and its number of threads."""

    spec: Spec
    threads: int | None


class OpenVinoNode(openvino.Op):  # type: ignore[misc,name-defined]  # openvino has no types
    """A node of one of the three operators."""

    def __init__(self, inputs: Sequence[Any] | None = None, computation: Computation | None = None) -> None:
        super().__init__(self)
        self._computation = computation
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        """Set the types and sizes of outputs, as far as attributes and inputs determine them."""
        assert self._computation is not None
        spec, kind = self._computation.spec, self.get_input_element_type(0)
        inputs = [_dims(self.get_input_partial_shape(number)) for number in range(self.get_input_size())]
        given = self._output_shape() if isinstance(spec, MaxUnpoolSpec) else None
        for number, dims in enumerate(output_dims(spec, inputs, given)):
            is_indices = isinstance(spec, MaxPoolSpec) and number == 1
            self.set_output_type(number, openvino.Type.i64 if is_indices else kind, _partial_shape(dims))

    def _output_shape(self) -> Dims | None:
        """The value of a MaxUnpool's third input: () if it is computed, None if there is none."""
        if self.get_input_size() < 3:
            return None
        source = self.input_value(2).get_node()
        return tuple(map(int, source.data)) if source.get_type_name() == "Constant" else ()

    def clone_with_new_inputs(self, inputs: Sequence[Any]) -> "OpenVinoNode":
        """The same computation of other inputs."""
        return OpenVinoNode(inputs, self._computation)

    def visit_attributes(self, _: Any) -> bool:
        """No attribute is OpenVINO's."""
        return True

    def has_evaluate(self) -> bool:
        """OpenVINO computes the node by `evaluate`."""
        return True

    def evaluate(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Compute the outputs."""
        assert self._computation is not None
        spec, arrays = self._computation.spec, [np.asarray(tensor.data) for tensor in inputs]
        if isinstance(spec, MaxUnpoolSpec):
            arrays[1:] = [array.astype(np.int64, copy=False) for array in arrays[1:]]
        prepared = execute.prepare(spec, arrays, len(outputs))
        if isinstance(spec, MaxPoolSpec) and arrays[0].size >= MAX_INDEX:
            raise UnpoolError(
                f"{spec.version.label}: OpenVINO has indices below 2**31, got X of {arrays[0].size} elements. Split X."
            )
        for tensor, output in zip(outputs, prepared.outputs, strict=True):
            if tuple(tensor.shape) != output.shape:
                tensor.shape = output.shape
        views = [np.asarray(tensor.data) for tensor in outputs]
        fits = [view.dtype == output.dtype for view, output in zip(views, prepared.outputs, strict=True)]
        out = [view if is_same else None for view, is_same in zip(views, fits, strict=True)]
        results = prepared.run(arrays, out, self._computation.threads)
        for view, result, is_same in zip(views, results, fits, strict=True):
            if not is_same:  # indices in 32 bits
                view[...] = result
        return True


def _dims(shape: Any) -> Dims | None:
    if shape.rank.is_dynamic:
        return None
    return tuple(None if size.is_dynamic else int(size.get_length()) for size in shape)


def _partial_shape(dims: Dims | None) -> Any:
    if dims is None:
        return openvino.PartialShape.dynamic()
    return openvino.PartialShape([size if isinstance(size, int) else -1 for size in dims])
