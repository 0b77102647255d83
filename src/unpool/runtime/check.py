"""Is this a valid model? What onnx's checker says."""

import onnx

from unpool.errors import ModelError
from unpool.runtime.light import is_large, lighten

LARGEST_MESSAGE = 2**31 - 1  # bytes; protobuf's limit


def check(model: onnx.ModelProto) -> None:
    """Check the model by onnx's checker.

    Raises:
        ModelError: the model breaks a rule of the standard; the message is the checker's.
    """
    light = lighten(model)
    for value in (*light.graph.input, *light.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()  # the checker wants one, no runtime does
    try:
        onnx.checker.check_model(light)
        for tensor in model.graph.initializer:
            if is_large(tensor) and tensor.ByteSize() <= LARGEST_MESSAGE:
                onnx.checker.check_tensor(tensor)
    except Exception as error:
        raise ModelError(f"model: expected a valid ONNX model, got: {_short(error)}. Export it again.") from error


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:3]).rstrip(".") or type(error).__name__
