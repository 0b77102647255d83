"""A whole model in OpenVINO, as the engine of one node of onnxruntime's session."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.graph.errors import is_from_signal_handler
from unpool.graph.graph import Graph, lift_constants
from unpool.graph.shape_inference import infer
from unpool.graph.weights import strip_initializers
from unpool.onnxruntime.engine import Allocate
from unpool.openvino import extensions
from unpool.openvino.fit import UnfitModelError, require_fit
from unpool.openvino.package import package
from unpool.operators.semantics import Semantics
from unpool.passes.inline import inline

DEVICE = "CPU"
_LOCATIONS = "Exception from |Check '|While validating|FrontEnd API|-- |Summary:|To facilitate|Failed"
_MAX_MESSAGE = 200
_PROPERTIES = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",  # one run at a time on all threads
    "ENABLE_CPU_PINNING": "NO",  # threads share the cores with unpool's
    "INFERENCE_PRECISION_HINT": "f32",  # where OpenVINO itself would compute float32 as bfloat16
}


class OpenVinoEngine:
    """A compiled model; it runs on onnxruntime's memory, and copies only outputs whose sizes are not known before.

    A request of OpenVINO serves one run at a time. Runs at the same time get requests of their own, which are kept.

    Args:
        model: for the checks; its large weights may be in files.
        source: what OpenVINO reads, a path or bytes.
        shapes: of the inputs, by their names, in the order of the node; a size of -1 differs from run to run.

    Raises:
        UnfitModelError: OpenVINO does not take the model, or may compute it otherwise than it is written.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        source: str | bytes,
        shapes: Mapping[str, tuple[int, ...]],
        semantics: Semantics,
        threads: int,
    ) -> None:
        graph = lift_constants(Graph.from_model(inline(strip_initializers(model))))
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = tuple(value for value in graph.inputs if value.name not in weights)
        require_fit(replace(graph, inputs=inputs), infer(graph, semantics).types)
        self.output_names = graph.output_names
        properties = _PROPERTIES | {"INFERENCE_NUM_THREADS": str(threads)}
        try:
            core = package().Core()
            core.add_extension(extensions(compat=semantics.compat, index_space=semantics.index_space, threads=threads))
            read = core.read_model(source)
            read.reshape({name: list(shape) for name, shape in shapes.items()})
            _require_computed(read)
            self._compiled = core.compile_model(read, DEVICE, properties)
            self._inputs = [self._compiled.input(name) for name in shapes]
            self._outputs = [self._compiled.output(name) for name in self.output_names]
        except Exception as error:
            if isinstance(error, UnfitModelError) or is_from_signal_handler(error):
                raise
            raise UnfitModelError(openvino_message(error)) from error
        known = (port.partial_shape for port in self._outputs)
        self._shapes = [tuple(shape.to_shape()) if shape.is_static else None for shape in known]
        self.output_dtypes = [np.dtype(port.element_type.to_dtype()) for port in self._outputs]
        self._idle = [self._compiled.create_infer_request()]

    def compute(self, inputs: Sequence[AnyArray], allocate: Allocate) -> None:
        """Run the model."""
        outputs = [None if shape is None else allocate(number, shape) for number, shape in enumerate(self._shapes)]
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        try:
            for port, array in zip([*self._inputs, *self._outputs], [*inputs, *outputs], strict=True):
                if array is not None:
                    request.set_tensor(port, _tensor(array))
            request.infer()
            for number, (port, shape) in enumerate(zip(self._outputs, self._shapes, strict=True)):
                if shape is None:
                    made = request.get_tensor(port).data
                    allocate(number, made.shape)[...] = made
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            raise UnpoolError(
                f"OpenVINO cannot run the model on these inputs: {openvino_message(error)}. Change the inputs, or make "
                "the session without tune."
            ) from error
        self._idle.append(request)  # a request that failed is dropped


def openvino_message(error: Exception) -> str:
    r"""OpenVINO's error message without the locations in its own sources.

    >>> openvino_message(RuntimeError("Exception from a.cpp:9:\nCheck 'x > 0' failed at b.cpp:7:\nx is negative.\n"))
    'x is negative'
    """
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    telling = [line for line in lines if line and not re.match(_LOCATIONS, line)]
    return (" ".join(telling[:2]) or (lines or [""])[0] or type(error).__name__)[:_MAX_MESSAGE].rstrip(". ")


def _require_computed(model: Any) -> None:
    """Raise an UnfitModelError if an output is an input, which OpenVINO does not write."""
    sources = (result.input_value(0).get_node() for result in model.get_results())
    if any(str(source.get_type_name()) == "Parameter" for source in sources):
        raise UnfitModelError("an output is an input as it is, which it would not write")


def _tensor(array: AnyArray) -> Any:
    """A tensor on the memory of an array; OpenVINO refuses read-only inputs, so it gets a writable view of one."""
    view = array.view()
    view.flags.writeable = True  # onnxruntime's memory, of which the planner gives read-only arrays
    return package().Tensor(view, shared_memory=True)
