"""OpenVINO's CPU device: its properties, and the partitions that it runs.

A partition is compiled for one combination of input shapes at a time. OpenVINO would also compile it for dynamic
shapes, but then checks no sizes that have to fit together, and reads and writes beyond arrays.
"""

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate
from unpool.runtime.backends.ort_backend import OrtPartition, RefusedError
from unpool.runtime.backends.ort_options import TINY_MODEL, PartitionOptions, Providers
from unpool.runtime.backends.ort_values import array_at
from unpool.runtime.backends.step import Partition, RunOptions, Targets, Values
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import is_unpool_op, reads, writes
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import LARGEST_MESSAGE, as_input, byte_size, is_large, own_array_of, with_data_inside
from unpool.runtime.plan.openvino_fit import Ranges, UnfitError, known_values, require_fit, require_node
from unpool.runtime.plan.plan import Step, at_oldest_opset, cut
from unpool.runtime.requirements import onnxruntime

DEVICE = "CPU"
FLOAT = onnx.TensorProto.FLOAT

MAX_SHAPES = 8
"""Combinations of shapes that a partition is compiled for, in the order of their runs: each takes time and memory."""

_DEFAULTS = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",  # one run at a time on all threads
    "ENABLE_CPU_PINNING": "NO",  # threads share the cores with unpool's
    "INFERENCE_PRECISION_HINT": "f32",  # where OpenVINO itself would compute float32 as bfloat16
}

_CORE_PROPERTIES = {"CACHE_DIR"}  # properties that the device accepts and does not list
_TELEMETRY = "openvino_telemetry"
_LOCATIONS = "Exception from |Check '|While validating|FrontEnd API|-- |Summary:|To facilitate|Failed"
_MAX_MESSAGE = 200

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
OrtLoader: TypeAlias = Callable[[bytes], OrtPartition]
_LOG = logging.getLogger("unpool")


def is_installed() -> bool:
    """True if the package openvino is installed; it is not loaded for that."""
    return find_spec("openvino") is not None


@cache
def package() -> Any:
    """The package openvino, imported without its telemetry, which would report every import."""
    is_first = "openvino" not in sys.modules and _TELEMETRY not in sys.modules
    if is_first:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # how Python writes that a module cannot be imported
    try:
        return import_module("openvino")
    finally:
        if is_first:
            del sys.modules[_TELEMETRY]


@cache
def core() -> Any:
    """The one Core of this process."""
    return package().Core()


def require_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that the device does not have, and values that it does not accept."""
    if not properties:
        return
    known = core().get_property(DEVICE, "SUPPORTED_PROPERTIES")
    names = sorted({*(name for name, access in known.items() if access == "RW"), *_CORE_PROPERTIES})
    unknown = [name for name in properties if name not in names]
    if unknown:
        raise UnpoolError(
            f"provider_options of 'OpenVINO': expected properties of its CPU device, got {', '.join(unknown)}. "
            f"Choose from {', '.join(names)}."
        )
    for name, value in properties.items():
        try:
            core().compile_model(core().read_model(TINY_MODEL), DEVICE, {name: value})
        except Exception as error:
            raise UnpoolError(
                f"provider_options of 'OpenVINO': expected a value of {name} that its CPU device takes, "
                f"got {value!r}: {openvino_message(error)}. Leave {name} out for its default."
            ) from error


def openvino_message(error: Exception) -> str:
    r"""OpenVINO's error message without the locations in its own sources.

    >>> openvino_message(RuntimeError("Exception from a.cpp:9:\nCheck 'x > 0' failed at b.cpp:7:\nx is negative.\n"))
    'x is negative'
    """
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    telling = [line for line in lines if line and not re.match(_LOCATIONS, line)]
    return (" ".join(telling[:2]) or (lines or [""])[0] or type(error).__name__)[:_MAX_MESSAGE].rstrip(". ")


@contextmanager
def _unfit_errors() -> Iterator[None]:
    """OpenVINO's errors inside the block become UnfitErrors."""
    try:
        yield
    except Exception as error:
        raise UnfitError(openvino_message(error)) from error


class CompiledPartition:
    """A partition compiled for inputs of certain shapes; it runs on arrays without copies.

    A request of OpenVINO serves one run at a time. Runs at the same time get requests of their own, which are kept.
    """

    def __init__(
        self, model: Any, names: tuple[Sequence[str], Sequence[str]], properties: Mapping[str, str], where: str
    ) -> None:
        self._where = where
        with _unfit_errors():
            self._compiled = core().compile_model(model, DEVICE, dict(properties))
            self._inputs = [self._compiled.input(name) for name in names[0]]
            self._outputs = [self._compiled.output(name) for name in names[1]]
            self._output_kinds = [(tuple(port.shape), _dtype(port)) for port in self._outputs]
            self._idle = [self._compiled.create_infer_request()]

    def run(self, values: Sequence[AnyArray], targets: Targets | None) -> list[AnyArray]:
        """Outputs in order, in their targets where these have their shape and type, which OpenVINO does not check."""
        arrays: list[AnyArray] = []
        for kind, target in zip(self._output_kinds, targets or [None] * len(self._outputs), strict=True):
            fits = target is not None and (target.shape, target.dtype) == kind and target.flags.carray
            arrays.append(target if target is not None and fits else allocate(*kind, self._where))
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        for port, array in zip([*self._inputs, *self._outputs], [*values, *arrays], strict=True):
            request.set_tensor(port, _tensor(array))
        request.infer()
        self._idle.append(request)  # a request that failed is dropped
        return arrays


def _tensor(value: AnyArray) -> Any:
    """A tensor on the memory of an array; OpenVINO refuses read-only inputs, so it gets a writable view of one."""
    array = np.asarray(value, order="C")
    if not array.flags.writeable:
        array = array_at(array.ctypes.data, array.shape, array.dtype, array)
    return package().Tensor(array, shared_memory=True)


class OpenVinoPartition(Partition):
    """A loaded partition; `load_in_onnxruntime` loads it for shapes and integers that OpenVINO does not get.

    `weights` are inputs of the model that it is not fed: arrays, of which OpenVINO makes no copy until it compiles.
    UnfitError: OpenVINO refuses the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        weights: Mapping[str, AnyArray],
        where: str,
        properties: Mapping[str, str],
        ranges: Ranges,
        load_in_onnxruntime: OrtLoader,
    ) -> None:
        super().__init__(where)
        self._properties, self._load_in_onnxruntime = properties, load_in_onnxruntime
        inputs = [value.name for value in model.graph.input if value.name not in weights]
        self._names = inputs, [value.name for value in model.graph.output]
        self._ranges = {inputs.index(name): limits for name, limits in ranges.items()}
        with _unfit_errors():
            self._model = core().read_model(model.SerializeToString())
            _set_weights(self._model, weights)
            ports = [self._model.input(name) for name in inputs]
            elements = {n: helper.np_dtype_to_tensor_dtype(_dtype(self._model.output(n))) for n in self._names[1]}
            self.output_types = {name: shapes.tensor_type(element, None) for name, element in elements.items()}
        self._compiled: dict[Shapes, CompiledPartition | None] = {}
        self._ort_partition: OrtPartition | None = None
        self._lock = threading.Lock()
        is_static = all(port.partial_shape.is_static for port in ports)
        self._content = None if is_static and not ranges else (model, weights)
        del model, weights
        if is_static:
            self._compile(tuple(tuple(port.shape) for port in ports))
            self._model = None  # a run has no other shapes

    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:
        key = tuple([value.shape for value in values])
        if key not in self._compiled:
            with self._lock:
                if key not in self._compiled and len(self._compiled) < MAX_SHAPES:
                    try:
                        self._compile(key)
                    except UnfitError as error:
                        self._compiled[key] = None
                        _LOG.info("%s runs on onnxruntime for inputs of %s: %s", self._where, key, error)
        compiled = self._compiled.get(key)
        if compiled is not None and self._are_in_range(values):
            return compiled.run(values, targets)
        with self._lock:
            if self._ort_partition is None:
                assert self._content is not None, "a model of fixed sizes, with no integers to check, is compiled"
                self._ort_partition = self._load_in_onnxruntime(_with_initializers(*self._content))
                self._content = None
        return self._ort_partition.run(values, run_options, targets)

    def _are_in_range(self, values: Values) -> bool:
        """True if OpenVINO computes these integers as they are written: it does not check them."""
        for place, (least, largest) in self._ranges.items():
            if values[place].min() < least or values[place].max() > largest:
                name = self._names[0][place]
                _LOG.info("%s runs on onnxruntime: %s is not in %d to %d", self._where, name, least, largest)
                return False
        return True

    def _run_error(self, error: Exception) -> UnpoolError:
        return error_class(UnpoolError, "Fail")(
            f"{self._where}: OpenVINO cannot run it on these inputs: {openvino_message(error)}. "
            "Change the inputs or the model."
        )

    def _compile(self, key: Shapes) -> None:
        if any(0 in shape for shape in key):
            raise UnfitError("an input is empty")
        with _unfit_errors():
            model = self._model.clone()
            model.reshape(dict(zip(self._names[0], map(list, key), strict=True)))
        if model.is_dynamic():
            raise UnfitError("sizes depend on values")
        sources = (result.input_value(0).get_node() for result in model.get_results())
        if any(str(source.get_type_name()) == "Parameter" for source in sources):
            raise UnfitError("an output is an input as it is, which it would not write")
        checked = {self._names[0][place] for place in self._ranges}
        _require_valid_indices(model, checked, is_folded=False)
        _fold_constants(model)
        _require_valid_indices(model, checked, is_folded=True)
        _require_constant_pads(model)
        _require_usual_windows(model)
        self._compiled[key] = CompiledPartition(model, self._names, self._properties, self._where)


def _set_weights(model: Any, weights: Mapping[str, AnyArray]) -> None:
    """Constants on the memory of these arrays in place of inputs of OpenVINO's model."""
    from openvino.op import Constant

    for name, array in weights.items():
        parameter = model.input(name).get_node()
        parameter.output(0).replace(Constant(array, shared_memory=True).output(0))
        model.remove_parameter(parameter)


def _with_initializers(model: onnx.ModelProto, arrays: Mapping[str, AnyArray]) -> bytes:
    """A model with these arrays as initializers in place of inputs."""
    copy = deepcopy(model)
    del copy.graph.input[:]
    copy.graph.input.extend(value for value in model.graph.input if value.name not in arrays)
    copy.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return bytes(copy.SerializeToString())


def _replace_by_constants(graph: onnx.GraphProto, arrays: Mapping[str, AnyArray]) -> None:
    """Constants in place of the nodes that make these values; the values of a graph that are outputs stay."""
    kept = {value.name for value in graph.output}
    is_replaced = [arrays.keys() >= {*writes(node)} and kept.isdisjoint(node.output) for node in graph.node]
    names = {name for node, each in zip(graph.node, is_replaced, strict=True) if each for name in writes(node)}
    for position in reversed([position for position, each in enumerate(is_replaced) if each]):
        del graph.node[position]
    names &= {name for node in graph.node for name in reads(node)}
    graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in sorted(names))


def _fold_constants(model: Any) -> None:
    """Compute what is the same in every run, as the compiler would: indices that are computed can be checked then."""
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(model)


def _require_valid_indices(model: Any, checked: set[str], *, is_folded: bool) -> None:
    """Refuse constant indices that are not inside of what they count in, which OpenVINO does not check.

    Shapes are static. Before constants are folded, indices that are still to be computed are not refused, and never
    those that come from inputs which are `checked` in each run.
    """
    for operation in model.get_ops():
        kind, name = operation.get_type_name(), repr(operation.get_friendly_name())
        if kind not in _INDEXED:
            continue
        shape, indices = operation.get_input_shape(0), _constant_of(operation.input_value(1))
        if indices is None:
            is_of_size = not operation.get_output_element_type(0).is_real()
            if is_folded and not is_of_size and not _is_from(checked, operation.input_value(1)):
                raise UnfitError(f"indices of a {kind} are not checked")
            continue  # of sizes, whose indices the plan has checked
        if kind == "Gather":
            size = shape[int(operation.input_value(2).get_node().data)]
            if ((indices < -size) | (indices >= size)).any():
                raise UnfitError(f"indices of {name} are outside its axis of {size}")
            continue
        places = _places(operation, kind, indices)
        first = operation.get_attributes()["batch_dims"] if kind == "GatherND" else 0
        if ((places < 0) | (places >= list(shape)[first : first + places.shape[1]])).any():
            raise UnfitError(f"an index of {name} is negative or outside of {tuple(shape)}")
        if not kind.startswith("Gather") and len(np.unique(places, axis=0)) < len(places):
            raise UnfitError(f"{name} writes an element twice")


def _require_constant_pads(model: Any) -> None:
    """Refuse a Pad whose pads are no constants, once sizes are known and constants are folded."""
    for operation in model.get_ops():
        if operation.get_type_name() == "Pad":
            sources = [operation.input_value(number).get_node() for number in (1, 2)]
            if any(source.get_type_name() != "Constant" for source in sources):
                raise UnfitError(f"{operation.get_friendly_name()!r}: its pads are not the same in every run")


def _require_usual_windows(model: Any) -> None:
    """Refuse a pool to which ceil_mode adds a window, unless it is a MaxPool and the window begins inside its input."""
    for operation in model.get_ops():
        given = operation.get_attributes()
        kind = operation.get_type_name()
        if kind not in ("AvgPool", "MaxPool") or given["rounding_type"] == "floor":
            continue
        axes = (operation.get_input_shape(0)[2:], *(given[name] for name in _WINDOW))
        for size, window, stride, begin, end in zip(*axes, strict=True):
            begins_inside = kind == "MaxPool" and stride + end <= window
            if (size + begin + end - window) % stride and not begins_inside:
                name = repr(operation.get_friendly_name())
                raise UnfitError(f"{name} may differ there: windows are counted otherwise with ceil_mode")


_WINDOW = ("kernel", "strides", "pads_begin", "pads_end")
"""The attributes of a pool, each with a number for every axis."""


def _is_from(names: set[str], port: Any) -> bool:
    """True if an output depends on inputs of the model, and only on those with these names."""
    found, left, seen = False, [port.get_node()], set[str]()
    while left:
        node = left.pop()
        if node.get_type_name() == "Parameter":
            found = True
            if names.isdisjoint(node.output(0).get_names()):
                return False
        sources = [value.get_node() for value in node.input_values()]
        left += [source for source in sources if source.get_friendly_name() not in seen]
        seen.update(source.get_friendly_name() for source in sources)
    return found


def _constant_of(port: Any) -> AnyArray | None:
    """The array that an output is in every run; None where it depends on inputs."""
    from openvino import Model

    node = port.get_node()
    if node.get_type_name() != "Constant":
        try:
            model = Model([port], []).clone()
        except RuntimeError:  # an input of the model makes it
            return None
        _fold_constants(model)
        node = model.get_results()[0].input_value(0).get_node()
    array: AnyArray | None = node.data if node.get_type_name() == "Constant" else None
    return array


def _places(operation: Any, kind: str, indices: AnyArray) -> AnyArray:
    """The coordinates that indices name, one row for each; of GatherND and ScatterND only those that they have."""
    if kind in ("GatherND", "ScatterNDUpdate"):
        return indices.reshape(-1, indices.shape[-1])
    is_gather = kind == "GatherElements"
    axis = operation.get_attributes()["axis"] if is_gather else operation.input_value(3).get_node().data.item()
    coordinates = [each.reshape(-1) for each in np.indices(indices.shape)]
    coordinates[axis] = indices.reshape(-1)
    return np.stack(coordinates, axis=1)


_INDEXED = ("Gather", "GatherElements", "GatherND", "ScatterElementsUpdate", "ScatterNDUpdate")
"""OpenVINO's operators whose second input are indices."""


def _dtype(port: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(port.element_type.to_dtype())
    return dtype


_LOWEST = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


class OpenVinoLoader:
    """Loads partitions of one graph in OpenVINO; `unfit` has the reason for every one that was not loaded."""

    def __init__(
        self,
        graph: Graph,
        types: Types,
        properties: Mapping[str, str],
        options: PartitionOptions,
        providers: Providers,
    ) -> None:
        self._graph, self._types = graph, types
        n_threads = str(options.copy.intra_op_num_threads)
        self._properties = {**_DEFAULTS, "INFERENCE_NUM_THREADS": n_threads, **properties}
        self._options, self._providers = options, providers
        self._optimises = options.copy.graph_optimization_level != _LOWEST
        self._known = known_values(graph, types, self._evaluate)
        self.unfit: dict[Step, str] = {}

    def _evaluate(self, names: Sequence[str]) -> Mapping[str, AnyArray]:
        """The constant values of these names, computed by onnxruntime; none where it refuses."""
        needed, positions = set(names), []
        for position, node in reversed(list(enumerate(self._graph.nodes))):
            if not needed.isdisjoint(writes(node)):
                positions.append(position)
                needed.update(reads(node))
        step = Step("onnxruntime", 0, tuple(reversed(positions)), (), tuple(names))
        try:
            content = cut(self._graph, step, self._types, with_data_inside).SerializeToString()
            arrays = OrtPartition(content, "constants", self._options, self._providers).run([], None)
        except (UnpoolError, RefusedError):
            return {}
        return dict(zip(names, arrays, strict=True))

    def takes(self, position: int, types: Types) -> bool:
        """True if a node is a ConvTranspose that OpenVINO computes as it is written, as far as is known yet."""
        node = self._graph.nodes[position]
        if node.op_type != "ConvTranspose" or not is_unpool_op(node):
            return False
        try:
            require_node(node, self._graph, types, self._known)
        except UnfitError:
            return False
        return bool(self._optimises)

    def _weights(self, step: Step) -> dict[str, onnx.TensorProto]:
        """The large weights of a partition, which OpenVINO gets as arrays."""
        names = dict.fromkeys(name for position in step.nodes for name in reads(self._graph.nodes[position]))
        tensors = {name: self._graph.constants[name] for name in names if name in self._graph.constants}
        return {name: each for name, each in tensors.items() if each.data_type == FLOAT and is_large(each)}

    def load(self, step: Step, types: Types, where: str, *, has_threads: bool) -> OpenVinoPartition | None:
        """The partition; None where onnxruntime has to run it. `types` have no sizes that could be wrong."""
        try:
            if not self._optimises:
                raise UnfitError("it optimises every partition, and graph_optimization_level says not to")
            if not has_threads:
                raise UnfitError("enough other partitions have threads of their own")
            ranges = require_fit(self._graph, step, types, self._known)
            weights = self._weights(step)
            constants = {name: each for name, each in self._graph.constants.items() if name not in weights}
            graph, whole = replace(self._graph, constants=constants), replace(step, inputs=(*step.inputs, *weights))
            types = types | {name: as_input(tensor).type for name, tensor in weights.items()}
            model = at_oldest_opset(cut(graph, whole, types, with_data_inside))
            _replace_by_constants(model.graph, self._known.computed)
            if sum(map(byte_size, weights.values())) + model.ByteSize() > LARGEST_MESSAGE:
                raise UnfitError("with its weights it has more than 2 GiB, the limit of an ONNX file")
            load = partial(OrtPartition, where=where, options=self._options, providers=self._providers)
            arrays = {name: own_array_of(tensor) for name, tensor in weights.items()}
            return OpenVinoPartition(model, arrays, where, self._properties, ranges, load)
        except UnfitError as error:
            self.unfit[step] = str(error)
            _LOG.info("%s runs on onnxruntime, not on OpenVINO: %s", where, error)
            return None
