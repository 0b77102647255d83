"""Nodes that an object of this process computes: the operator `Engine` of the domain `unpool`.

Such an object wraps another runtime: onnx's ReferenceEvaluator for a node, OpenVINO for a whole model. onnxruntime asks
it for the outputs of its node in every run, so bindings, asynchronous runs and profiles work as with any node. The
model states the types of the outputs.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.operators.unpool_domain import DOMAIN

OPERATOR = "Engine"

Allocate: TypeAlias = Callable[[int, tuple[int, ...]], AnyArray]
"""The array of an output, by number, for a shape; once for each output."""


class Engine(Protocol):
    """Computes the outputs of a node, perhaps in several threads at the same time."""

    @property
    def output_dtypes(self) -> Sequence[np.dtype[Any]]:
        """The types of the outputs."""

    def compute(self, inputs: Sequence[AnyArray], allocate: Allocate) -> None:
        """Write the outputs for these inputs, which are onnxruntime's memory until this returns."""


_engines: WeakValueDictionary[int, Engine] = WeakValueDictionary()
_numbers = count()


def engine_node(engine: Engine, inputs: Sequence[str], outputs: Sequence[str], name: str) -> onnx.NodeProto:
    """The node that an engine computes as long as the caller keeps the engine; of this process only."""
    number = next(_numbers)
    _engines[number] = engine
    return helper.make_node(OPERATOR, inputs, outputs, name, domain=DOMAIN, engine=number)


def find_engine(number: int) -> Engine:
    """The engine of a node.

    Raises:
        UnpoolError: it is gone, with its session or its process.
    """
    try:
        return _engines[number]
    except KeyError:
        raise UnpoolError(
            f"Engine: there is no engine {number} in this process. Keep the session that the model was made for, or "
            "make it again from the model that it was made from."
        ) from None


def dtype_of(element: int) -> np.dtype[Any]:
    """The NumPy type of an element type of ONNX that an engine reads and writes.

    Raises:
        UnsupportedError: text, or a type of less than a byte.
    """
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if element == onnx.TensorProto.STRING or element in _PACKED:
        name = onnx.TensorProto.DataType.Name(element)
        raise UnsupportedError(f"Engine: expected numbers of whole bytes, got tensors of {name}.")
    return dtype


_PACKED_NAMES = ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
_PACKED = {number for name, number in onnx.TensorProto.DataType.items() if name in _PACKED_NAMES}
