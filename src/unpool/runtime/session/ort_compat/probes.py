"""Reads from options of onnxruntime what they do not tell, by running a small model with them, the probe.

SessionOptions: initializers, sizes of axes, and options in a model's metadata. The outputs of the probe are tensors
named like those of the model, and its inputs have the model's axes: outputs and sizes are those of the options or,
where the options set none, the probe's own. External initializers have to be exactly those of the model, or onnxruntime
refuses the probe. Then the probe gets the model's own external tensors.

RunOptions: parameters of active LoRA adapters, which onnxruntime feeds together with the caller's inputs, in place of
those with the same name; it refuses a name that the model does not have. A partition has only some inputs of a model,
so partitions run without adapters, and the parameters become inputs of the whole model. The probe returns its inputs;
those that no adapter has keep their shape.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnxruntime.capi import _pybind_state

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.runtime.backends import ort_options
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import CONFIG_KEY, CONFIG_VARIABLE, TINY_MODEL, silence
from unpool.runtime.backends.ort_values import from_ort_value
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import domain, subgraphs
from unpool.runtime.graph.weights import is_in_model_file, serialize
from unpool.runtime.requirements import onnxruntime

_OPSET, _IR = 16, 8
_UNSET_SHAPE = (1, 1, 1, 1, 1, 1, 1, 0)  # the shape of a tensor that the options do not set
_OUTPUT = "unpool.probe"  # a tensor of a probe without others: it needs an output
_UNKNOWN = "Invalid input name"  # onnxruntime's message where an adapter has a parameter that the model lacks
_RUN_ATTRIBUTES = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")
_RUN_ENTRIES = (
    *("disable_synchronize_execution_providers", "gpu_graph_id", "memory.enable_memory_arena_shrinkage"),
    *("qnn.htp_perf_mode", "qnn.htp_perf_mode_post_run", "qnn.lora_config", "qnn.rpc_control_latency"),
)
"""The config entries of RunOptions that are copied; onnxruntime cannot list those that are set."""


@dataclass(frozen=True)
class Overrides:
    """Parts of a model that SessionOptions replace."""

    tensors: Mapping[str, Any]  # by name
    sizes: Mapping[bytes, int]  # by the axis as the model writes it
    options: onnxruntime.SessionOptions  # without external initializers, which onnxruntime accepts for one model only
    has_external: bool = False  # whether there were any

    @property
    def is_empty(self) -> bool:
        """True if the model stays as it is."""
        return not self.tensors and not self.sizes


def read_overrides(options: onnxruntime.SessionOptions, model: onnx.ModelProto, folder: str) -> Overrides:
    """The overrides for a model, whose data files are in `folder`, of options that no other code holds."""
    tensors, initializers = list(_tensors(model.graph)), {tensor.name for tensor in model.graph.initializer}
    values = (value for value in model.graph.input if value.name not in initializers)
    dims = (dim for value in values for dim in value.type.tensor_type.shape.dim)
    axes = list(dict.fromkeys(_axis(dim) for dim in dims if dim.denotation or dim.dim_param))
    constants = (name for node in model.graph.node if _is_constant(node) for name in node.output)
    names = list(dict.fromkeys(name for name in (*(tensor.name for tensor in tensors), *constants) if name))
    files = list(dict.fromkeys(ExternalDataInfo(tensor).location for tensor in tensors if _is_external(tensor)))
    tensors_unset = [helper.make_tensor(name, TensorProto.UINT8, _UNSET_SHAPE, b"", raw=True) for name in names]
    refusal: Exception | None = None
    try:
        overrides = _run_probe(options, tensors_unset, axes)
        if not any(_has_file(options, file) for file in files):
            return overrides
    except Exception as error:
        refusal = error
    external = {tensor.name: tensor for tensor in model.graph.initializer if _is_external(tensor)}
    try:
        own_tensors = [external.get(tensor.name, tensor) for tensor in tensors_unset]
        return replace(_run_probe(options, own_tensors, axes, folder), has_external=True)
    except Exception as error:
        cause = refusal or error
        raise error_class(UnsupportedError, type(cause))(
            f"SessionOptions: onnxruntime refuses them for this model: {short_message(cause)}. "
            "Change or remove the option or the initializers."
        ) from cause


def apply_overrides(model: onnx.ModelProto, overrides: Overrides) -> None:
    """Change the model in place; tensors of another type or shape are refused."""
    for tensor in _tensors(model.graph):
        if tensor.name in overrides.tensors:
            _replace(tensor, np.asarray(overrides.tensors[tensor.name]))
    for node in model.graph.node:
        name = next(iter(node.output), "")
        if _is_constant(node) and name in overrides.tensors:
            del node.attribute[:]
            value = numpy_helper.from_array(overrides.tensors[name], name)
            node.attribute.append(helper.make_attribute("value", value))
    for graph_input in model.graph.input:
        for dim in graph_input.type.tensor_type.shape.dim:
            size = overrides.sizes.get(_axis(dim))
            if size is not None:
                dim.dim_value = size


def _run_probe(
    options: onnxruntime.SessionOptions, tensors: Sequence[TensorProto], axes: Sequence[bytes], folder: str = ""
) -> Overrides:
    """The tensors and sizes of a probe with these options; its data files are in `folder`."""
    tensors = tensors or [helper.make_tensor(_OUTPUT, TensorProto.UINT8, _UNSET_SHAPE, b"", raw=True)]
    outputs = [helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in tensors]
    names = [tensor.name for tensor in tensors]
    fresh = FreshNames([*names, _OUTPUT])
    inputs = {fresh.fresh(f"{_OUTPUT}.{number}"): axis for number, axis in enumerate(axes)}
    values = [helper.make_tensor_value_info(name, TensorProto.INT8, [0, None]) for name in inputs]
    dims = {value.name: value.type.tensor_type.shape.dim[1] for value in values}
    for name, axis in inputs.items():
        dims[name].ParseFromString(axis)
    own = silence(ort_options.clone_private(options))
    if folder:
        ort_options.set_config_entry(own, ort_options.DATA_FOLDER, folder)
    graph = helper.make_graph([], "probe", values, outputs, tensors)
    content = serialize(_model(graph), "the tensors of the model")
    session = onnxruntime.InferenceSession(content, own, providers=["CPUExecutionProvider"])
    sizes = {info.name: info.shape[1] for info in session.get_inputs()}
    empty = {name: np.zeros((0, size if isinstance(size, int) else 1), np.int8) for name, size in sizes.items()}
    feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in empty.items()}
    arrays = [np.array(from_ort_value(value)) for value in session.run_with_ort_values(names, feed)]
    fixed = [name for name, size in sizes.items() if isinstance(size, int) and not dims[name].HasField("dim_value")]
    return Overrides(
        {name: array for name, array in zip(names, arrays, strict=True) if array.shape != _UNSET_SHAPE},
        {inputs[name]: sizes[name] for name in fixed},
        ort_options.with_attributes_of(options, session.get_session_options()),
    )


def _has_file(options: onnxruntime.SessionOptions, file: str) -> bool:
    """True if the options hold the content of a data file: onnxruntime then reads it in an empty folder."""
    tensor = helper.make_tensor(_OUTPUT, TensorProto.INT8, [1], b"0", raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", "0"), ("length", "1")):
        tensor.external_data.add(key=key, value=value)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run_probe(options, [tensor], [], folder)
        except Exception:  # no such file
            return False
    return True


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph and of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for _, body in subgraphs(node):
            yield from _tensors(body)


def _is_external(tensor: TensorProto) -> bool:
    return uses_external_data(tensor) and not is_in_model_file(tensor)


def _axis(dim: onnx.TensorShapeProto.Dimension) -> bytes:
    return bytes(dim.SerializeToString(deterministic=True))


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and domain(node) == ""


def _replace(tensor: TensorProto, array: Any) -> None:
    override = numpy_helper.from_array(array, tensor.name)
    kind = TensorProto.DataType.Name
    if override.data_type != tensor.data_type:
        raise error_class(UnpoolError, "InvalidArgument")(
            f"initializer {tensor.name!r}: expected {kind(tensor.data_type)}, as the model has it, "
            f"got {kind(override.data_type)} from SessionOptions. Add it in the model's type."
        )
    if list(override.dims) != list(tensor.dims):
        raise error_class(ShapeError, "InvalidArgument")(
            f"initializer {tensor.name!r}: expected shape {list(tensor.dims)}, as the model has it, "
            f"got {list(override.dims)} from SessionOptions. Add it in the model's shape."
        )
    tensor.CopyFrom(override)


def options_in_metadata(model: onnx.ModelProto) -> onnxruntime.SessionOptions:
    """The options in a model's metadata; those that it does not set are as in new options."""
    text = next((entry.value for entry in model.metadata_props if entry.key == CONFIG_KEY), "{}")
    key, enables_profiling = "enable_profiling", False
    try:
        config = json.loads(text)
        entries = config.get("session_options") if isinstance(config, dict) else None
        if isinstance(entries, dict) and entries.get(key) in (0, 1) and entries[key] is not True:
            enables_profiling = bool(entries.pop(key))  # with it, onnxruntime would begin its file at once
        content = TINY_MODEL + ort_options.config_metadata(config)
        session = _pybind_state.InferenceSession(onnxruntime.SessionOptions(), content, False, True)
        options: onnxruntime.SessionOptions = session.session_options
    except Exception as error:
        raise error_class(UnpoolError, RuntimeError)(
            f"metadata {CONFIG_KEY!r}: expected options of a session in JSON, got: {short_message(error)}. "
            f"Write a JSON object of options, or unset {CONFIG_VARIABLE}."
        ) from error
    options.enable_profiling = enables_profiling
    return options


def adapter_parameters(infos: Iterable[Any], run_options: onnxruntime.RunOptions) -> dict[str, Any]:
    """The parameters of active adapters, by the names of the model's inputs, which `infos` are."""
    try:
        _parameter_probe(()).run(None, {}, run_options)
        return {}
    except Exception as error:
        if _UNKNOWN not in str(error):
            return {}
    inputs = {info.name: info.type for info in infos if info.type.startswith("tensor(")}
    probe = _parameter_probe(tuple(inputs.items()))
    try:
        values = probe.run_with_ort_values([info.name for info in probe.get_outputs()], {}, run_options)
    except Exception as error:
        raise error_class(UnpoolError, type(error))(
            f"RunOptions: expected adapters whose parameters are inputs of the model, {', '.join(inputs)}; "
            f"got: {ort_message(error)}. Deactivate the adapter."
        ) from error
    pairs = zip(inputs, values, strict=True)
    return {name: from_ort_value(value) for name, value in pairs if tuple(value.shape()) != _UNSET_SHAPE}


def without_adapters(run_options: onnxruntime.RunOptions) -> onnxruntime.RunOptions:
    """A copy of options with their attributes and known entries, and without adapters."""
    copy = onnxruntime.RunOptions()
    for name in _RUN_ATTRIBUTES:
        setattr(copy, name, getattr(run_options, name))
    for key in _RUN_ENTRIES:
        value = ort_options.run_config_entry(run_options, key)
        if value is not None:
            copy.add_run_config_entry(key, value)
    return copy


@lru_cache(8)
def _parameter_probe(inputs: tuple[tuple[str, str], ...]) -> onnxruntime.InferenceSession:
    """A session that returns its inputs, given by name and type, in their order; each has a default value."""
    graph, fresh = onnx.GraphProto(name="probe"), FreshNames(name for name, _ in inputs)
    for name, type_name in inputs:
        type_ = shapes.parse_type(type_name)
        assert type_ is not None, "the names are those of tensors"
        graph.input.append(helper.make_value_info(name, type_))
        graph.initializer.append(TensorProto(name=name, data_type=type_.tensor_type.elem_type, dims=_UNSET_SHAPE))
        graph.node.append(helper.make_node("Identity", [name], [fresh.fresh(name)]))
    if not inputs:
        graph.node.append(helper.make_node("Constant", [], ["nothing"], value_int=0))
    graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in graph.node)
    options = silence(onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(_model(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
