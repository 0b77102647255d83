"""Partitions that OpenVINO runs on the CPU.

A partition is compiled for one combination of input shapes at a time. OpenVINO would also compile it for dynamic
shapes, but then checks no sizes that have to fit together, and reads and writes beyond arrays.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate
from unpool.runtime.backends.openvino_device import DEVICE, compile_properties, core, openvino_message, package
from unpool.runtime.backends.ort_backend import OrtPartition
from unpool.runtime.backends.ort_options import PartitionOptions, Providers
from unpool.runtime.backends.ort_values import array_at
from unpool.runtime.backends.step import Partition, RunOptions, Targets, Values
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import is_too_large, with_data_inside
from unpool.runtime.plan.openvino_fit import UnfitError, counts, require_fit, require_node
from unpool.runtime.plan.plan import Step, at_oldest_opset, cut
from unpool.runtime.requirements import onnxruntime

MAX_SHAPES = 8
"""Combinations of shapes that a partition is compiled for, in the order of their runs: each takes time and memory."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
_LOG = logging.getLogger("unpool")


class CompiledPartition:
    """A partition compiled for inputs of certain shapes; it runs on arrays without copies.

    A request of OpenVINO serves one run at a time. Runs at the same time get requests of their own, which are kept.

    Args:
        model: OpenVINO's, with static shapes.
        names: of its inputs and of its outputs, in the order of the partition.
        properties: OpenVINO's properties.
        where: the name of the partition in errors.

    Raises:
        UnfitError: OpenVINO does not compile it.
    """

    def __init__(
        self, model: Any, names: tuple[Sequence[str], Sequence[str]], properties: Mapping[str, str], where: str
    ) -> None:
        try:
            self._compiled = core().compile_model(model, DEVICE, dict(properties))
            self._inputs = [self._compiled.input(name) for name in names[0]]
            self._outputs = [_Output(self._compiled.output(name), where) for name in names[1]]
            self._idle = [self._compiled.create_infer_request()]
        except Exception as error:
            raise UnfitError(openvino_message(error)) from error

    def run(self, values: Sequence[AnyArray], targets: Targets | None) -> list[AnyArray]:
        """Outputs in order, in their targets where these have their shape and type."""
        pairs = zip(self._outputs, targets or [None] * len(self._outputs), strict=True)
        arrays = [output.array(target) for output, target in pairs]
        with self._request() as request:
            for port, value in zip(self._inputs, values, strict=True):
                request.set_tensor(port, _tensor(value))
            for output, array in zip(self._outputs, arrays, strict=True):
                request.set_tensor(output.port, _tensor(array))
            request.infer()
        return arrays

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """A request that serves only this run."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        yield request
        self._idle.append(request)  # a request that failed is dropped


class _Output:
    """An output of a compiled partition."""

    def __init__(self, port: Any, where: str) -> None:
        self.port = port
        self._shape, self._dtype = tuple(port.shape), np.dtype(port.element_type.to_dtype())
        self._where = where

    def array(self, target: AnyArray | None) -> AnyArray:
        """The array to write it to; OpenVINO itself does not check the shape of its target."""
        fits = target is not None and (target.shape, target.dtype) == (self._shape, self._dtype)
        if target is not None and fits and target.flags.c_contiguous and target.flags.writeable:
            return target
        return allocate(self._shape, self._dtype, self._where)


def _tensor(value: AnyArray) -> Any:
    """The array as a tensor on the same memory.

    OpenVINO refuses read-only arrays even as inputs, so it gets a writable view of one.
    """
    array = np.asarray(value, order="C")
    if not array.flags.writeable:
        array = array_at(array.ctypes.data, array.shape, array.dtype, array)
    return package().Tensor(array, shared_memory=True)


class OpenVinoPartition(Partition):
    """A loaded partition, which runs on arrays without copies. `RunOptions` are only read before a run.

    Args:
        model: of the partition, weights inside.
        where: its name in errors.
        properties: OpenVINO's properties.
        load_in_onnxruntime: loads the same partition in onnxruntime, for shapes that OpenVINO does not get.

    Raises:
        UnfitError: OpenVINO refuses it.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        where: str,
        properties: Mapping[str, str],
        load_in_onnxruntime: Callable[[bytes], OrtPartition],
    ) -> None:
        super().__init__(where)
        self._properties = properties
        self._names = [value.name for value in model.graph.input], [value.name for value in model.graph.output]
        content = bytes(model.SerializeToString())
        try:
            native = core().read_model(content)
            ports = [native.input(name) for name in self._names[0]]
            self.output_types = {name: _type(native.output(name)) for name in self._names[1]}
        except Exception as error:
            raise UnfitError(openvino_message(error)) from error
        self._model, self._content, self._load_in_onnxruntime = native, content, load_in_onnxruntime
        self._compiled: dict[Shapes, CompiledPartition | None] = {}
        self._ort_partition: OrtPartition | None = None
        self._lock = threading.Lock()
        if all(port.partial_shape.is_static for port in ports):
            self._compile(tuple(tuple(port.shape) for port in ports))
            self._model, self._content = None, b""  # a run has no other shapes

    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:
        compiled = self._compiled_for(tuple([value.shape for value in values]))
        if compiled is None:
            return self._in_onnxruntime().run(values, run_options, targets)
        return compiled.run(values, targets)

    def _run_error(self, error: Exception) -> UnpoolError:
        return error_class(UnpoolError, "Fail")(
            f"{self._where}: OpenVINO cannot run it on these inputs: {openvino_message(error)}. Correct the inputs."
        )

    def _compiled_for(self, key: Shapes) -> CompiledPartition | None:
        """The partition, compiled for inputs of these shapes; None if onnxruntime runs them."""
        if key in self._compiled:
            return self._compiled[key]
        with self._lock:
            if key not in self._compiled and len(self._compiled) < MAX_SHAPES:
                try:
                    self._compile(key)
                except UnfitError as error:
                    self._compiled[key] = None
                    _LOG.info("%s runs on onnxruntime for inputs of %s: %s", self._where, key, error)
            return self._compiled.get(key)

    def _compile(self, key: Shapes) -> None:
        """Compile it for inputs of these shapes.

        Raises:
            UnfitError: the shapes do not fit together, leave sizes dynamic, or one of them is empty.
        """
        if any(0 in shape for shape in key):
            raise UnfitError("an input is empty")
        try:
            model = self._model.clone()
            model.reshape(dict(zip(self._names[0], map(list, key), strict=True)))
        except Exception as error:
            raise UnfitError(openvino_message(error)) from error
        if model.is_dynamic():
            raise UnfitError("sizes depend on values")
        if any(_source_type(result) == "Parameter" for result in model.get_results()):
            raise UnfitError("an output is an input as it is, which it would not write")
        self._compiled[key] = CompiledPartition(model, self._names, self._properties, self._where)

    def _in_onnxruntime(self) -> OrtPartition:
        with self._lock:
            if self._ort_partition is None:
                self._ort_partition = self._load_in_onnxruntime(self._content)
            return self._ort_partition


def _source_type(result: Any) -> str:
    """The type of the node that makes an output."""
    return str(result.input_value(0).get_node().get_type_name())


def _type(port: Any) -> onnx.TypeProto:
    """The type of a port, with dynamic sizes."""
    return shapes.tensor_type(helper.np_dtype_to_tensor_dtype(np.dtype(port.element_type.to_dtype())), None)


_LOWEST = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


class OpenVinoLoader:
    """Loads partitions of one graph in OpenVINO.

    Args:
        graph: the whole graph.
        properties: OpenVINO's properties, from the caller.
        options: of onnxruntime's partitions; OpenVINO gets the same number of threads.
        providers: of onnxruntime's partitions.

    Attributes:
        unfit: for every partition that was not loaded, the reason.
    """

    def __init__(
        self, graph: Graph, properties: Mapping[str, str], options: PartitionOptions, providers: Providers
    ) -> None:
        self._graph = graph
        self._properties = compile_properties(properties, options.copy.intra_op_num_threads)
        self._options, self._providers = options, providers
        self._optimises = options.graph_optimization_level != _LOWEST
        self._counts = counts(graph)
        self.unfit: dict[Step, str] = {}

    def takes(self, position: int, types: Types) -> bool:
        """True if OpenVINO computes a node as it is written, as far as is known before the graph is partitioned."""
        try:
            require_node(self._graph.nodes[position], self._graph, types, self._counts)
        except UnfitError:
            return False
        return bool(self._optimises)

    def load(self, step: Step, types: Types, where: str, *, has_threads: bool) -> OpenVinoPartition | None:
        """The partition; None where onnxruntime has to run it.

        Args:
            step: the nodes of the partition.
            types: the types of values, without sizes that could be wrong.
            where: its name in errors.
            has_threads: whether one more partition may have threads of its own.
        """
        try:
            if not self._optimises:
                raise UnfitError("it optimises every partition, and graph_optimization_level says not to")
            if not has_threads:
                raise UnfitError("enough other partitions have threads of their own")
            require_fit(self._graph, step, types, self._counts)
            model = at_oldest_opset(cut(self._graph, step, types, with_data_inside))
            if is_too_large(model):
                raise UnfitError("with its weights it has more than 2 GiB, the limit of an ONNX file")
            load = partial(OrtPartition, where=where, options=self._options, providers=self._providers)
            return OpenVinoPartition(model, where, self._properties, load)
        except UnfitError as error:
            self.unfit[step] = str(error)
            _LOG.info("%s runs on onnxruntime, not on OpenVINO: %s", where, error)
            return None
