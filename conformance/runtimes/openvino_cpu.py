"""OpenVINO on the CPU: one thread, float32 kept as float32, telemetry off."""

import sys
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

# OpenVINO sends an event when it is imported, unless the package that sends is missing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
NOISE = (
    r"Exception from \S+: ",
    r"Check '(?:false|newNode)' failed at \S+: ",
    r" failed at \S+(?=: )",
    r"FrontEnd API failed with OpConversionFailure: Model wasn't fully converted\. ",
    r"Failed operations detailed log: -- ",
    r"Summary: -- (?:Conversion is failed for: \S+)?",
    r"\S+-\d+ with a message: ",
    r"While validating ONNX node '.*?': ",
    r"While validating node '.*?' with friendly_name '\S+': ",
    r"To facilitate the conversion .*",
    r"Run workload with environment variable .*",
)
CORE = openvino.Core()


def version() -> str:
    """Of the installed package, without its build."""
    return str(openvino.__version__).split("-", maxsplit=1)[0]


def answer(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the model."""
    compiled = CORE.compile_model(CORE.read_model(model), "CPU", CONFIG)
    request = compiled.create_infer_request()
    for name, array in feeds.items():
        request.set_tensor(name, to_tensor(array))
    request.infer()
    return [to_array(request.get_output_tensor(i)) for i in range(len(compiled.outputs))]


def to_tensor(array: np.ndarray) -> Any:
    """The array as OpenVINO's; it knows no NumPy type for bfloat16, so that its bits are handed over."""
    if array.dtype == BFLOAT16:
        return openvino.Tensor(array.view(np.uint16), list(array.shape), openvino.Type.bf16)
    return openvino.Tensor(np.ascontiguousarray(array))


def to_array(tensor: Any) -> np.ndarray:
    """The tensor's own copy as an array of its own type."""
    if tensor.get_element_type() == openvino.Type.bf16:
        return np.array(tensor.data).view(BFLOAT16)
    return np.array(tensor.data)
