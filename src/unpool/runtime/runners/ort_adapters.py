"""The parameters of the LoRA adapters that RunOptions activate, which only onnxruntime can read: by a small model.

onnxruntime feeds the parameters of active adapters beside the inputs of a caller, in place of those of that name, and
refuses a name that the model does not have. A piece has only some of the inputs of a model, so no piece is run with
adapters: the parameters become inputs of the whole model. RunOptions cannot be asked for them. A model that passes its
inputs on can: the probe. Inputs that no adapter has come out of it as they were marked.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import onnx
from onnx import TensorProto, helper

from unpool.errors import UnpoolError
from unpool.runtime.errors import also
from unpool.runtime.graph import type_names
from unpool.runtime.graph.fresh_names import FreshNames
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import quietened
from unpool.runtime.runners.ort_piece import short
from unpool.runtime.runners.ort_values import from_ort_value

_OPSET, _IR = 16, 8
_MARK = (1, 1, 1, 1, 1, 1, 1, 0)
"""The shape of an input that no adapter has."""

_UNKNOWN = "Invalid input name"
"""In the words of onnxruntime, an adapter has a parameter that the model lacks."""

_ATTRIBUTES = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")
_ENTRIES = (
    *("disable_synchronize_execution_providers", "gpu_graph_id", "memory.enable_memory_arena_shrinkage"),
    *("qnn.htp_perf_mode", "qnn.htp_perf_mode_post_run", "qnn.lora_config", "qnn.rpc_control_latency"),
)
"""The config entries of RunOptions that are known; others cannot be asked for."""


class Adapters:
    """Reads the parameters of active adapters for one model.

    Args:
        inputs: onnxruntime's names of the types of all inputs that are tensors, by input.
    """

    def __init__(self, inputs: Mapping[str, str]) -> None:
        self._inputs = dict(inputs)

    def parameters(self, run_options: onnxruntime.RunOptions) -> dict[str, Any]:
        """The parameters by the names of inputs; none where no adapter is active.

        Raises:
            UnpoolError: one is no input of the model, or of another type, as for onnxruntime.
        """
        if not _has_adapters(run_options):
            return {}
        outputs, session = self._probe
        try:
            values = session.run_with_ort_values(list(outputs), {}, run_options)
        except Exception as error:
            raise also(UnpoolError, type(error))(
                f"RunOptions: expected adapters whose parameters are inputs of the model, {', '.join(self._inputs)}; "
                f"got: {short(error)}. Deactivate the adapter."
            ) from error
        found = dict(zip(outputs.values(), values, strict=True))
        return {name: from_ort_value(value) for name, value in found.items() if tuple(value.shape()) != _MARK}

    @cached_property
    def _probe(self) -> tuple[dict[str, str], onnxruntime.InferenceSession]:
        """The inputs by the outputs that they become, and the session of the probe."""
        fresh = FreshNames(self._inputs)
        outputs = {fresh.fresh(name): name for name in self._inputs}
        return outputs, _session(self._inputs, outputs)


def without_adapters(run_options: onnxruntime.RunOptions) -> onnxruntime.RunOptions:
    """New options with the attributes and the known entries of others, and no adapter."""
    made = onnxruntime.RunOptions()
    for name in _ATTRIBUTES:
        setattr(made, name, getattr(run_options, name))
    for key in _ENTRIES if hasattr(run_options, "get_run_config_entry") else ():  # older releases have none
        try:
            made.add_run_config_entry(key, run_options.get_run_config_entry(key))
        except RuntimeError:  # nobody set it
            continue
    return made


def _has_adapters(run_options: onnxruntime.RunOptions) -> bool:
    """Whether an adapter is active, for a model without inputs."""
    try:
        _empty_probe().run(None, {}, run_options)
    except Exception as error:
        return _UNKNOWN in str(error)
    return False


@cache
def _empty_probe() -> onnxruntime.InferenceSession:
    return _session({}, {})


def _session(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> onnxruntime.InferenceSession:
    """A session that passes its inputs on, each of which has a value of its own."""
    graph = onnx.GraphProto(name="probe")
    for output, name in outputs.items():
        type_ = type_names.parse(inputs[name])
        assert type_ is not None, "the names are those of tensors"
        graph.input.append(helper.make_value_info(name, type_))
        graph.initializer.append(TensorProto(name=name, data_type=type_.tensor_type.elem_type, dims=_MARK))
        graph.node.append(helper.make_node("Identity", [name], [output]))
        graph.output.append(onnx.ValueInfoProto(name=output))
    if not outputs:
        graph.node.append(helper.make_node("Constant", [], ["nothing"], value_int=0))
        graph.output.append(onnx.ValueInfoProto(name="nothing"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    options = quietened(onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
