"""The runtimes that are asked, each a module with `version()` and `answer(model, feeds)`.

`answer` takes a serialized model of one node and arrays by input name, and gives the outputs in order, or their shapes
as `Shapes`. Any exception counts as a refusal, except `NoMapping`: the runtime has no words for the call.

A module may have two more names: `REFUSAL`, the only exception that is a refusal, so that any other one is a crash; and
`NOISE`, patterns of what its messages say about its own source files.
"""

from dataclasses import dataclass


class NoMapping(Exception):  # noqa: N818
    """The runtime cannot be asked: it has no such attribute, rank or version."""


class Shapes(tuple[tuple[int, ...], ...]):
    """The shapes of the outputs, from a runtime that computes nothing else."""


@dataclass(frozen=True)
class Runtime:
    """A runtime under its short name.

    Attributes:
        name: as it is written on the command line.
        title: as it is written in the report.
        module: imported by the worker process only.
        how: how it is asked.
    """

    name: str
    title: str
    module: str
    how: str


RUNTIMES = (
    Runtime("unpool", "unpool", "conformance.runtimes.unpool_session", "`InferenceSession`"),
    Runtime(
        "onnxruntime",
        "onnxruntime",
        "conformance.runtimes.onnxruntime_cpu",
        "`InferenceSession`, `CPUExecutionProvider`, one thread",
    ),
    Runtime(
        "reference",
        "onnx ReferenceEvaluator",
        "conformance.runtimes.onnx_reference",
        "`onnx.reference.ReferenceEvaluator`, nothing replaced",
    ),
    Runtime(
        "openvino",
        "OpenVINO",
        "conformance.runtimes.openvino_cpu",
        "`CPU`, one thread, `INFERENCE_PRECISION_HINT` f32",
    ),
    Runtime(
        "pytorch",
        "PyTorch",
        "conformance.runtimes.pytorch",
        "`torch.nn.functional` on the CPU, newest opset only; indices carried over between plane and whole tensor",
    ),
    Runtime(
        "inference",
        "onnx shape inference",
        "conformance.runtimes.onnx_inference",
        "`onnx.shape_inference`, strict; only shapes are compared, and only where it infers them",
    ),
)
BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}
