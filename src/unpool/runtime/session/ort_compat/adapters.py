"""Parameters of the LoRA adapters that RunOptions activate.

onnxruntime feeds the parameters of active adapters together with the caller's inputs, in place of those with the same
name, and refuses a name that the model does not have. A partition has only some inputs of a model, so partitions run
without adapters, and the parameters become inputs of the whole model. RunOptions do not tell the parameters. So a small
model, the probe, is run with the adapters: it returns its inputs, and those that no adapter has keep their shape.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import onnx
from onnx import TensorProto, helper

from unpool.errors import UnpoolError
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import run_config_entry, silence
from unpool.runtime.backends.ort_values import from_ort_value
from unpool.runtime.errors import error_class
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.requirements import onnxruntime

_OPSET, _IR = 16, 8
_UNSET_SHAPE = (1, 1, 1, 1, 1, 1, 1, 0)
"""The shape of an input that no adapter has."""

_UNKNOWN = "Invalid input name"
"""Onnxruntime's message where an adapter has a parameter that the model lacks."""

_ATTRIBUTES = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")
_ENTRIES = (
    *("disable_synchronize_execution_providers", "gpu_graph_id", "memory.enable_memory_arena_shrinkage"),
    *("qnn.htp_perf_mode", "qnn.htp_perf_mode_post_run", "qnn.lora_config", "qnn.rpc_control_latency"),
)
"""The config entries of RunOptions that are copied; onnxruntime cannot list those that are set."""


class Adapters:
    """Reads the parameters of active adapters for one model; `inputs` has onnxruntime's types of its tensors."""

    def __init__(self, inputs: Mapping[str, str]) -> None:
        self._inputs = dict(inputs)

    def parameters(self, run_options: onnxruntime.RunOptions) -> dict[str, Any]:
        """The parameters by the names of inputs; none where no adapter is active."""
        if not _has_adapters(run_options):
            return {}
        names = [info.name for info in self._probe.get_outputs()]
        try:
            values = self._probe.run_with_ort_values(names, {}, run_options)
        except Exception as error:
            raise error_class(UnpoolError, type(error))(
                f"RunOptions: expected adapters whose parameters are inputs of the model, {', '.join(self._inputs)}; "
                f"got: {ort_message(error)}. Deactivate the adapter."
            ) from error
        pairs = zip(self._inputs, values, strict=True)
        return {name: from_ort_value(value) for name, value in pairs if tuple(value.shape()) != _UNSET_SHAPE}

    @cached_property
    def _probe(self) -> onnxruntime.InferenceSession:
        return _session(self._inputs)


def without_adapters(run_options: onnxruntime.RunOptions) -> onnxruntime.RunOptions:
    """A copy of options with their attributes and known entries, and without adapters."""
    copy = onnxruntime.RunOptions()
    for name in _ATTRIBUTES:
        setattr(copy, name, getattr(run_options, name))
    for key in _ENTRIES:
        value = run_config_entry(run_options, key)
        if value is not None:
            copy.add_run_config_entry(key, value)
    return copy


def _has_adapters(run_options: onnxruntime.RunOptions) -> bool:
    """True if an adapter is active, for a model without inputs."""
    try:
        _empty_probe().run(None, {}, run_options)
    except Exception as error:
        return _UNKNOWN in str(error)
    return False


@cache
def _empty_probe() -> onnxruntime.InferenceSession:
    return _session({})


def _session(inputs: Mapping[str, str]) -> onnxruntime.InferenceSession:
    """A session that returns its inputs in their order, each of which has a default value."""
    graph, fresh = onnx.GraphProto(name="probe"), FreshNames(inputs)
    for name, type_name in inputs.items():
        type_ = shapes.parse_type(type_name)
        assert type_ is not None, "the names are those of tensors"
        graph.input.append(helper.make_value_info(name, type_))
        graph.initializer.append(TensorProto(name=name, data_type=type_.tensor_type.elem_type, dims=_UNSET_SHAPE))
        graph.node.append(helper.make_node("Identity", [name], [fresh.fresh(name)]))
    if not inputs:
        graph.node.append(helper.make_node("Constant", [], ["nothing"], value_int=0))
    graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in graph.node)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    options = silence(onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
