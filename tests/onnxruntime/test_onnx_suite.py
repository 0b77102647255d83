"""All 44 backend tests of onnx for the three operators, through a session of onnxruntime with the library."""

from typing import Any

import onnx
import onnxruntime
from onnx.backend.base import Backend, BackendRep

import unpool.onnxruntime
from tests.support.onnx_suite import suite_classes


class Session(BackendRep):
    """A model in onnxruntime."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        (opset,) = (each.version for each in model.opset_import if each.domain == "")
        unpool.onnxruntime.register(options, opset=opset)
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs in their order."""
        names = [each.name for each in self.session.get_inputs()]
        return tuple(self.session.run(None, dict(zip(names, inputs, strict=True))))


class Onnxruntime(Backend):
    """Its sessions as a backend of onnx."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Session:
        """The session of a model."""
        return Session(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU."""
        return device == "CPU"


globals().update(suite_classes(Onnxruntime, __name__))
