"""Sessions, options and values that probes ask about, on the models of the tests."""

from typing import Any

import numpy as np
import onnx
import onnxruntime

from conformance.onnxruntime_api.probe import Ask
from tests.onnxruntime_api.nets import WEIGHTS, Net, pools
from tests.support import models

CPU = "CPUExecutionProvider"
KERNEL = WEIGHTS[None, None]


def handed_on(ort: Any, name: str) -> Any:
    """A class that scripts take from the module; onnxruntime's own where the module has none."""
    return getattr(ort, name, getattr(onnxruntime, name))


def options(ort: Any, entries: dict[str, str] | None = None, **attributes: Any) -> Any:
    """SessionOptions with entries and attributes."""
    made = handed_on(ort, "SessionOptions")()
    for name, value in attributes.items():
        setattr(made, name, value)
    for key, value in (entries or {}).items():
        made.add_session_config_entry(key, value)
    return made


def run_options(ort: Any, **attributes: Any) -> Any:
    """RunOptions with attributes."""
    made = handed_on(ort, "RunOptions")()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def value_of(ort: Any, array: Any) -> Any:
    """An OrtValue of an array."""
    return handed_on(ort, "OrtValue").ortvalue_from_numpy(array)


def session_of(ort: Any, given: Any = None, net: Net | None = None, **words: Any) -> Any:
    """A session, of the model with pools unless another is named."""
    return ort.InferenceSession((net or pools()).content, given, **words)


def total(session: Any, given: Any = None) -> float:
    """The sum of the output of a session of the model with pools."""
    return float(session.run(None, pools().feed, given)[0].sum())


def loaded(content: bytes) -> Ask:
    """What comes of loading these bytes: the names of the inputs."""
    return lambda ort: [one.name for one in ort.InferenceSession(content).get_inputs()]


def of_text(graph: str, feed: dict[str, Any], opset: int = 18) -> Ask:
    """The outputs of a model in ONNX's text form."""

    def ask(ort: Any) -> Any:
        made = ort.InferenceSession(models.model(graph, opset=opset).SerializeToString()).run(None, feed)
        return [one.tolist() if isinstance(one, np.ndarray) else one for one in made]

    return ask


def types_of_text(graph: str, feed: dict[str, Any]) -> Ask:
    """The types of the OrtValues that a model in ONNX's text form gives."""

    def ask(ort: Any) -> Any:
        session = ort.InferenceSession(models.model(graph, opset=18).SerializeToString())
        values = {name: value_of(ort, array) for name, array in feed.items()}
        return [one.data_type() for one in session.run_with_ort_values(None, values)]

    return ask


def external() -> bytes:
    """A model whose weights are in a file `weights.bin`, and no path to it."""
    made = models.model("g (float[1, 1, 2, 2] x) => (float[1, 1, 3, 3] z) { z = ConvTranspose (x, k) }", k=KERNEL)
    tensor = made.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "weights.bin", 0, KERNEL.nbytes)
    tensor.ClearField("raw_data")
    return made.SerializeToString()


def total_of_external(ort: Any, given: Any) -> float:
    """The sum of the output of that model."""
    made = ort.InferenceSession(external(), given).run(None, {"x": np.ones((1, 1, 2, 2), np.float32)})
    return float(made[0].sum())


def bound(ort: Any) -> tuple[Any, Any]:
    """A session and a binding with both ends bound."""
    session = session_of(ort)
    binding = session.io_binding()
    binding.bind_cpu_input("x", pools().x)
    binding.bind_output("z")
    return session, binding


def total_bound(ort: Any, method: str, *arguments: Any) -> float:
    """The sum of the output of a run with an end bound in another way."""
    session, binding = bound(ort)
    getattr(binding, method)(*arguments)
    session.run_with_iobinding(binding)
    return float(np.sum(binding.copy_outputs_to_cpu()[0]))
