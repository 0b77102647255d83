"""Reads from SessionOptions what they do not tell: initializers, sizes of axes, and options in a model's metadata.

onnxruntime loads a small model with the options, the probe, and says what it sees. The probe has no nodes. Its outputs
are tensors named like those of the model, and its inputs have the model's axes: outputs and sizes are those of the
options or, where the options set none, the probe's own.

External initializers have to be exactly those of the model, or onnxruntime refuses the probe. Then the probe gets the
model's own external tensors.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnxruntime.capi import _pybind_state

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.runtime.backends.ort_options import (
    CONFIG_KEY,
    CONFIG_VARIABLE,
    DATA_FOLDER,
    TINY_MODEL,
    clone_private,
    config_metadata,
    set_config_entry,
    silence,
    with_attributes_of,
)
from unpool.runtime.backends.ort_values import from_ort_value
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import domain, subgraphs
from unpool.runtime.graph.weights import serialize
from unpool.runtime.requirements import onnxruntime

_OPSET, _IR = 14, 8
_UNSET_SHAPE = (1, 1, 1, 1, 1, 1, 1, 0)
"""The shape of a tensor that the options do not set."""

_OUTPUT = "unpool.probe"
"""A tensor of a probe without others: it needs an output."""


@dataclass(frozen=True)
class Overrides:
    """Parts of a model that SessionOptions replace.

    Attributes:
        tensors: in place of the model's own, by name.
        sizes: of axes, by the axis as the model writes it.
        options: the options without external initializers, which onnxruntime accepts for one model only.
        has_external: whether there were any.
    """

    tensors: Mapping[str, Any]
    sizes: Mapping[bytes, int]
    options: onnxruntime.SessionOptions
    has_external: bool = False

    @property
    def is_empty(self) -> bool:
        """True if the model stays as it is."""
        return not self.tensors and not self.sizes


def read_overrides(options: onnxruntime.SessionOptions, model: onnx.ModelProto, folder: str) -> Overrides:
    """The overrides that the options have for a model, whose data files are in `folder`.

    No other code holds `options`; the model's external tensors need not exist.
    """
    tensors, initializers = list(_tensors(model.graph)), {tensor.name for tensor in model.graph.initializer}
    values = (value for value in model.graph.input if value.name not in initializers)
    dims = (dim for value in values for dim in value.type.tensor_type.shape.dim)
    axes = list(dict.fromkeys(_axis(dim) for dim in dims if dim.denotation or dim.dim_param))
    constants = (name for node in model.graph.node if _is_constant(node) for name in node.output)
    names = list(dict.fromkeys(name for name in (*(tensor.name for tensor in tensors), *constants) if name))
    files = list(dict.fromkeys(ExternalDataInfo(tensor).location for tensor in tensors if uses_external_data(tensor)))
    tensors_unset = [_unset_tensor(name) for name in names]
    refusal: Exception | None = None
    try:
        overrides = _run_probe(options, tensors_unset, axes)
        if not any(_has_file(options, file) for file in files):
            return overrides
    except Exception as error:
        refusal = error
    external = {tensor.name: tensor for tensor in model.graph.initializer if uses_external_data(tensor)}
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
    model = onnx.ModelProto(ir_version=_IR, graph=onnx.GraphProto(name="probe"))
    model.opset_import.append(helper.make_opsetid("", _OPSET))
    model.graph.initializer.extend(tensors or [_unset_tensor(_OUTPUT)])
    for tensor in model.graph.initializer:
        model.graph.output.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    names = [tensor.name for tensor in model.graph.initializer]
    fresh = FreshNames([*names, _OUTPUT])
    inputs = {fresh.fresh(f"{_OUTPUT}.{number}"): axis for number, axis in enumerate(axes)}
    dims = {}
    for name, axis in inputs.items():
        value = helper.make_tensor_value_info(name, TensorProto.INT8, [0, None])
        dims[name] = value.type.tensor_type.shape.dim[1]
        dims[name].ParseFromString(axis)
        model.graph.input.append(value)
    own = silence(clone_private(options))
    if folder:
        set_config_entry(own, DATA_FOLDER, folder)
    content = serialize(model, "the tensors of the model")
    session = onnxruntime.InferenceSession(content, own, providers=["CPUExecutionProvider"])
    sizes = {info.name: info.shape[1] for info in session.get_inputs()}
    empty = {name: np.zeros((0, size if isinstance(size, int) else 1), np.int8) for name, size in sizes.items()}
    feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in empty.items()}
    arrays = [np.array(from_ort_value(value)) for value in session.run_with_ort_values(names, feed)]
    fixed = [name for name, size in sizes.items() if isinstance(size, int) and not dims[name].HasField("dim_value")]
    return Overrides(
        {name: array for name, array in zip(names, arrays, strict=True) if array.shape != _UNSET_SHAPE},
        {inputs[name]: sizes[name] for name in fixed},
        with_attributes_of(options, session.get_session_options()),
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


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph and of its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for _, body in subgraphs(node):
            yield from _tensors(body)


def _axis(dim: onnx.TensorShapeProto.Dimension) -> bytes:
    return bytes(dim.SerializeToString(deterministic=True))


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and domain(node) == ""


def _unset_tensor(name: str) -> TensorProto:
    return helper.make_tensor(name, TensorProto.UINT8, _UNSET_SHAPE, b"", raw=True)


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
    try:
        config, enables_profiling = _split_profiling(json.loads(text))
        content = TINY_MODEL + config_metadata(config)
        session = _pybind_state.InferenceSession(onnxruntime.SessionOptions(), content, False, True)
        options: onnxruntime.SessionOptions = session.session_options
    except Exception as error:
        raise error_class(UnpoolError, RuntimeError)(
            f"metadata {CONFIG_KEY!r}: expected options of a session in JSON, got: {short_message(error)}. "
            f"Write a JSON object of options, or unset {CONFIG_VARIABLE}."
        ) from error
    options.enable_profiling = enables_profiling
    return options


def _split_profiling(config: Any) -> tuple[Any, bool]:
    """The config without `enable_profiling`, with which onnxruntime would begin its file at once; and its value."""
    key, options = "enable_profiling", config.get("session_options") if isinstance(config, dict) else None
    if not isinstance(options, dict) or options.get(key) not in (0, 1) or options[key] is True:
        return config, False
    return config | {"session_options": {k: v for k, v in options.items() if k != key}}, bool(options[key])
