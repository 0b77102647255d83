"""onnx's C++ shape inference, strict: not a runtime, but what converters and loaders believe."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import shape_inference

from conformance.runtimes import NoMapping, Shapes

NOISE: tuple[str, ...] = (r"\[ShapeInferenceError\] (?:Inference error\(s\): )?", r"\(op_type:\w+\): ")


def version() -> str:
    """Of the installed package."""
    return str(onnx.__version__)


def answer(model: bytes, _feeds: Mapping[str, np.ndarray]) -> Shapes:
    """The shapes of the outputs that it infers from those of the inputs."""
    inferred = shape_inference.infer_shapes(onnx.load_from_string(model), strict_mode=True, data_prop=True)
    shapes = [list(value.type.tensor_type.shape.dim) for value in inferred.graph.output]
    known = all(value.type.tensor_type.HasField("shape") for value in inferred.graph.output)
    if not known or not all(size.HasField("dim_value") for shape in shapes for size in shape):
        raise NoMapping("no shape is inferred")
    return Shapes(tuple(size.dim_value for size in shape) for shape in shapes)
