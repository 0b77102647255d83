"""unpool as a backend of `onnx.backend`: every MaxPool is unpool's.

>>> import numpy as np
>>> from onnx import helper
>>> node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
>>> run_node(node, [np.float32([[[1, 4, 3, 2]]])])[0].tolist()
[[[4.0, 3.0]]]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import BackendRep

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.session import InferenceSession


class PreparedModel(BackendRep):
    """A loaded model."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in order.

        Args:
            inputs: arrays in the order of the model's inputs, or by name.
            kwargs: `output_names`, a list, to choose outputs.
        """
        names = [value.name for value in self.session.get_inputs()]
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            if len(inputs) != len(names):
                raise UnpoolError(f"run: expected {len(names)} inputs ({', '.join(names)}), got {len(inputs)}.")
            feed = dict(zip(names, inputs, strict=True))
        return tuple(self.session.run(kwargs.get("output_names"), feed))


def prepare(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
    """Load a model.

    Args:
        model: to be loaded.
        device: "CPU".
        kwargs: keyword options of `unpool.InferenceSession`; `exact` is always true.

    Raises:
        UnsupportedError: another device.
    """
    if not supports_device(device):
        raise UnsupportedError(f"prepare: expected device 'CPU', got {device!r}. Use the CPU.")
    return PreparedModel(InferenceSession(model, **{**kwargs, "exact": True}))


def run_model(model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Load a model and run it once; arguments as for `prepare` and `PreparedModel.run`."""
    return prepare(model, device, **kwargs).run(inputs)


def run_node(
    node: onnx.NodeProto,
    inputs: Sequence[Any],
    device: str = "CPU",
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run one node.

    Args:
        node: whose non-empty inputs are fed in order.
        inputs: arrays.
        device: "CPU".
        outputs_info: type and shape of every output, where they are known.
        kwargs: `opset_version`, the newest by default; the rest as for `prepare`.
    """
    opset = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
    names = [name for name in node.input if name]
    arrays = [np.asarray(value) for value in inputs]
    feeds = [_value(name, array.dtype) for name, array in zip(names, arrays, strict=True)]
    graph = helper.make_graph([node], "node", feeds, [])
    imports = {"": opset} if not node.domain else {"": opset, node.domain: opset}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in imports.items()])
    graph.output.extend(_outputs(model, node, arrays, outputs_info))
    model.graph.CopyFrom(graph)
    return run_model(model, arrays, device, **kwargs)


def supports_device(device: str) -> bool:
    """Whether models can run on the device: "CPU", with or without a number.

    >>> supports_device("CPU"), supports_device("CUDA")
    (True, False)
    """
    return device.upper().split(":")[0] == "CPU"


def is_compatible(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """Whether every node of the model can run here; an invalid model raises as `prepare` does."""
    if not supports_device(device):
        return False
    try:
        prepare(model, device, **kwargs)
    except UnsupportedError:
        return False
    return True


def _outputs(
    model: onnx.ModelProto, node: onnx.NodeProto, arrays: Sequence[Any], info: Any
) -> list[onnx.ValueInfoProto]:
    """The node's outputs with their types: told, inferred by onnx, or those of the three operators."""
    names = [name for name in node.output if name]
    if info is not None:
        return [_value(name, dtype) for name, (dtype, _) in zip(names, info, strict=True)]
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    found = {value.name: value for value in inferred}
    ours = dict(zip(node.output, [arrays[0].dtype, np.dtype(np.int64)], strict=False)) if arrays else {}
    return [found[name] if name in found else _value(name, ours[name]) for name in names]


def _value(name: str, dtype: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
