"""Options in a model's metadata, which count where the environment says so: in place of all that a caller set.

onnxruntime reads the environment whenever a session is made, that of a piece too. So pieces say in their metadata what
they are to be made with.
"""

import json
import os
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnxruntime.capi import _pybind_state

from unpool.errors import UnpoolError
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import brief
from unpool.runtime.requirements import onnxruntime

VARIABLE = "ORT_LOAD_CONFIG_FROM_MODEL"
"""The environment variable that asks for it, with 1."""

KEY = "ort_config"
"""The entry of the metadata: JSON with an object `session_options`."""

ATTRIBUTES = ("intra_op_num_threads", "inter_op_num_threads", "execution_mode", "graph_optimization_level")
"""What the metadata may say, and nothing else."""

_PROFILING = "enable_profiling"
"""They may say that too; it is read here, for onnxruntime would begin with its file at once."""


def is_asked_for() -> bool:
    """Whether options are read from models."""
    return os.environ.get(VARIABLE) == "1"


def configured(model: onnx.ModelProto) -> onnxruntime.SessionOptions:
    """The options of a model; what it does not say is as in new options.

    Raises:
        UnpoolError: onnxruntime cannot read them; also a RuntimeError.
    """
    text = next((one.value for one in model.metadata_props if one.key == KEY), "{}")
    try:
        config, profiles = _without_profiling(json.loads(text))
        bearer = tiny().SerializeToString() + _metadata(json.dumps(config))
        session = _pybind_state.InferenceSession(onnxruntime.SessionOptions(), bearer, False, True)
        made: onnxruntime.SessionOptions = session.session_options
    except Exception as error:
        raise also(UnpoolError, RuntimeError)(
            f"metadata {KEY!r}: expected options of a session in JSON, got: {brief(error)}. "
            f"Write a JSON object of options, or unset {VARIABLE}."
        ) from error
    made.enable_profiling = profiles
    return made


def saying(model: bytes, options: onnxruntime.SessionOptions) -> bytes:
    """The model of a piece with the options in its metadata, where they are read from there."""
    if not is_asked_for():
        return model
    return model + _metadata(
        json.dumps({"session_options": {name: int(getattr(options, name)) for name in ATTRIBUTES}})
    )


def tiny() -> onnx.ModelProto:
    """A model that does next to nothing."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "tiny", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def _metadata(text: str) -> bytes:
    """The bytes to be put behind those of a model: fields of a message may come one by one."""
    bearer = onnx.ModelProto()
    bearer.metadata_props.add(key=KEY, value=text)
    return bytes(bearer.SerializeToString())


def _without_profiling(config: Any) -> tuple[Any, bool]:
    """The words of a model without those on profiling, and what these say."""
    options = config.get("session_options") if isinstance(config, dict) else None
    if not isinstance(options, dict) or options.get(_PROFILING) not in (0, 1) or options[_PROFILING] is True:
        return config, False
    kept = {key: value for key, value in options.items() if key != _PROFILING}
    return config | {"session_options": kept}, bool(options[_PROFILING])
