"""Finds out what a caller's SessionOptions bring to a model: initializers, and sizes of axes that it leaves open.

SessionOptions cannot be asked for them. So onnxruntime loads a small model with these options, the probe, and says what
it sees. The probe has no nodes. Its outputs are tensors named as those of the model, and its inputs have the model's
axes: what comes out, and the sizes of the inputs, are those of the options or, if the options bring none, the probe's.

External initializers have to be exactly those of the model, or onnxruntime refuses the probe. It gets the model's own
external tensors then.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import brief
from unpool.runtime.graph.fresh_names import FreshNames
from unpool.runtime.graph.nodes import bodies, domain
from unpool.runtime.graph.serialized import serialize
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import left_over, put_entry, quiet
from unpool.runtime.runners.ort_values import from_ort_value

FOLDER = "session.model_external_initializers_file_folder_path"
"""The entry that names the folder of a model's data files."""

_OPSET, _IR = 14, 8
_MARK = (1, 1, 1, 1, 1, 1, 1, 0)
"""The shape of a tensor that the options do not bring."""

_ONE = "unpool.probe"
"""A tensor that every probe has, for it needs an output."""


@dataclass(frozen=True)
class Given:
    """What options bring to a model.

    Attributes:
        tensors: in place of the model's own, by name.
        sizes: of axes, by the axis as the model writes it.
        left: the options without external initializers, which onnxruntime takes for one model only.
        has_external: whether there were any.
    """

    tensors: Mapping[str, Any]
    sizes: Mapping[bytes, int]
    left: onnxruntime.SessionOptions
    has_external: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the model stays as it is."""
        return not self.tensors and not self.sizes


def given(options: onnxruntime.SessionOptions, model: onnx.ModelProto, folder: str) -> Given:
    """What the options bring to the model.

    Args:
        options: nobody else's; they stay as they are.
        model: its external tensors need not be there.
        folder: where its data files are.

    Raises:
        UnpoolError: onnxruntime refuses the options; also the class that it raises.
    """
    tensors, axes = list(_tensors(model.graph)), _axes(model)
    made = (name for node in model.graph.node if _is_constant(node) for name in node.output)
    names = list(dict.fromkeys(name for name in (*(tensor.name for tensor in tensors), *made) if name))
    places = list(dict.fromkeys(ExternalDataInfo(one).location for one in tensors if uses_external_data(one)))
    marks = [_mark(name) for name in names]
    try:
        answers = _answers(options, marks, axes)
    except Exception as error:
        return _whole(options, model, marks, axes, folder, error)
    if any(_is_in_memory(options, place) for place in places):
        return _whole(options, model, marks, axes, folder, None)
    return _brought(answers)


def put(model: onnx.ModelProto, brought: Given) -> None:
    """Change the model as the options ask for.

    Raises:
        UnpoolError: a tensor of another type than the model's, also onnxruntime's InvalidArgument; or a ShapeError.
    """
    for tensor in _tensors(model.graph):
        if tensor.name in brought.tensors:
            _replace(tensor, np.asarray(brought.tensors[tensor.name]))
    for node in model.graph.node:
        name = next(iter(node.output), "")
        if _is_constant(node) and name in brought.tensors:
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(brought.tensors[name], name)))
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            size = brought.sizes.get(_axis(dim))
            if size is not None:
                dim.dim_value = size


def _whole(
    options: onnxruntime.SessionOptions,
    model: onnx.ModelProto,
    marks: Sequence[TensorProto],
    axes: Sequence[bytes],
    folder: str,
    refusal: Exception | None,
) -> Given:
    """What comes out of a probe with the model's own external tensors, read from `folder` unless they are brought."""
    outside = {tensor.name: tensor for tensor in model.graph.initializer if uses_external_data(tensor)}
    tensors = [outside.get(mark.name, mark) for mark in marks]
    try:
        return replace(_brought(_answers(options, tensors, axes, folder)), has_external=True)
    except Exception as error:
        cause = refusal or error
        raise also(UnsupportedError, type(cause))(
            "SessionOptions: expected what onnxruntime takes together with this model, "
            f"got its refusal: {brief(cause)}. Correct what was set or added."
        ) from cause


def _answers(
    options: onnxruntime.SessionOptions, tensors: Sequence[TensorProto], axes: Sequence[bytes], folder: str = ""
) -> Given:
    """The tensors and the sizes of axes that a probe has, whose data files are in `folder`."""
    names = [tensor.name for tensor in tensors]
    fresh = FreshNames([*names, _ONE])
    inputs = {fresh.fresh(f"{_ONE}.{number}"): axis for number, axis in enumerate(axes)}
    own = quiet(options)
    if folder:
        put_entry(own, FOLDER, folder)
    session = onnxruntime.InferenceSession(_probe(tensors, inputs), own, providers=["CPUExecutionProvider"])
    sizes = {one.name: one.shape[1] for one in session.get_inputs()}
    empty = {name: np.zeros((0, size if isinstance(size, int) else 1), np.int8) for name, size in sizes.items()}
    feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in empty.items()}
    values = session.run_with_ort_values(names or [_ONE], feed)
    return Given(
        {name: np.array(from_ort_value(value)) for name, value in zip(names, values, strict=False)},
        {inputs[name]: size for name, size in sizes.items() if isinstance(size, int) and _is_open(inputs[name])},
        left_over(session, options),
    )


def _brought(answers: Given) -> Given:
    """The answers without the tensors of the probe."""
    return replace(answers, tensors={name: one for name, one in answers.tensors.items() if one.shape != _MARK})


def _probe(tensors: Sequence[TensorProto], inputs: Mapping[str, bytes]) -> bytes:
    model = onnx.ModelProto(ir_version=_IR)
    model.opset_import.append(helper.make_opsetid("", _OPSET))
    model.graph.name = "probe"
    for name, axis in inputs.items():
        value = helper.make_tensor_value_info(name, TensorProto.INT8, [0, None])
        value.type.tensor_type.shape.dim[1].ParseFromString(axis)
        model.graph.input.append(value)
    model.graph.initializer.extend(tensors or [_mark(_ONE)])
    for tensor in model.graph.initializer:
        model.graph.output.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return serialize(model, "the tensors of the model")


def _is_in_memory(options: onnxruntime.SessionOptions, place: str) -> bool:
    """Whether the options bring the content of a data file: they do if it can be read where there are no files."""
    tensor = helper.make_tensor(_ONE, TensorProto.INT8, [1], b"0", raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", "1")):
        tensor.external_data.add(key=key, value=value)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _answers(options, [tensor], [], folder)
        except Exception:  # no such file
            return False
    return True


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph and of its bodies."""
    yield from graph.initializer
    for node in graph.node:
        for _, body in bodies(node):
            yield from _tensors(body)


def _axes(model: onnx.ModelProto) -> list[bytes]:
    """The axes of inputs that options may give a size to, each once."""
    tensors = {tensor.name for tensor in model.graph.initializer}
    values = (value for value in model.graph.input if value.name not in tensors)
    dims = (dim for value in values for dim in value.type.tensor_type.shape.dim)
    return list(dict.fromkeys(_axis(dim) for dim in dims if dim.denotation or dim.dim_param))


def _axis(dim: onnx.TensorShapeProto.Dimension) -> bytes:
    return bytes(dim.SerializeToString(deterministic=True))


def _is_open(axis: bytes) -> bool:
    return not onnx.TensorShapeProto.Dimension.FromString(axis).HasField("dim_value")


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and domain(node) == ""


def _mark(name: str) -> TensorProto:
    return helper.make_tensor(name, TensorProto.UINT8, _MARK, b"", raw=True)


def _replace(tensor: TensorProto, array: Any) -> None:
    made = numpy_helper.from_array(array, tensor.name)
    kind = TensorProto.DataType.Name
    if made.data_type != tensor.data_type:
        raise also(UnpoolError, "InvalidArgument")(
            f"initializer {tensor.name!r}: expected {kind(tensor.data_type)}, as the model has it, "
            f"got {kind(made.data_type)} from SessionOptions. Convert it."
        )
    if list(made.dims) != list(tensor.dims):
        raise also(ShapeError, "InvalidArgument")(
            f"initializer {tensor.name!r}: expected shape {list(tensor.dims)}, as the model has it, "
            f"got {list(made.dims)} from SessionOptions. Reshape it."
        )
    tensor.CopyFrom(made)
