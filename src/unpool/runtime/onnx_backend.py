"""unpool as a backend of `onnx.backend`, with the additions of `onnxruntime.backend`: unpool runs every MaxPool.

Options are keywords, as in `onnxruntime.backend`: attributes of SessionOptions and RunOptions, except those that write
files or end the run. An unknown keyword is ignored, with a warning.

>>> import numpy as np
>>> from onnx import helper
>>> node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
>>> run_node(node, [np.float32([[[1, 4, 3, 2]]])])[0].tolist()
[[[4.0, 3.0]]]
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import BackendRep, namedtupledict

from unpool.errors import UnpoolError, UnsupportedError, suggest_name, warn_caller
from unpool.graph.errors import error_class
from unpool.graph.load import ModelSource
from unpool.graph.nodes import domain, is_unpool_op
from unpool.graph.shapes import type_of
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.options import ATTRIBUTES, clone
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.session import InferenceSession

_LOG = frozenset(("log_severity_level", "log_verbosity_level", "logid"))
_FILES = {"enable_profiling", "optimized_model_filepath", "profile_file_prefix"}
SESSION_OPTIONS = frozenset(ATTRIBUTES) - _FILES | {"use_per_session_threads"}
"""Attributes of SessionOptions that `prepare` accepts, as `onnxruntime.backend` does."""

RUN_OPTIONS = _LOG | {"only_execute_path_to_fetches"}
"""Attributes of RunOptions that `run` accepts."""

_OUTPUT_NAMES = "output_names"
_SESSION_KEYWORDS = frozenset(inspect.signature(InferenceSession.__init__).parameters) - {"self", "path_or_bytes"}
_RUN_KEYWORDS = RUN_OPTIONS | {_OUTPUT_NAMES}


class PreparedModel(BackendRep):
    """A loaded model."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._output_types: dict[tuple[str, ...], Any] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in order; they have names too, as in `run(x)["y"]`.

        Args:
            inputs: arrays in the order of the model's inputs, or by name; or the array of the only input.
            kwargs: `output_names`, a list of outputs; the rest as `RUN_OPTIONS`.

        Raises:
            UnpoolError: the number of inputs is wrong; or a keyword is not permitted, then also a RuntimeError; or as
                `InferenceSession.run`.
        """
        output_names = kwargs.pop(_OUTPUT_NAMES, None)
        options = None
        if kwargs:
            options = onnxruntime.RunOptions()
            _set_options(options, kwargs, RUN_OPTIONS, [_OUTPUT_NAMES])
        values = run_session(self.session, output_names, self._feed(inputs), options)
        names = tuple(output_names or (value.name for value in self.session.get_outputs()))
        if names not in self._output_types:
            self._output_types[names] = namedtupledict("Outputs", names)
        outputs: tuple[Any, ...] = self._output_types[names](*values)
        return outputs

    def _feed(self, inputs: Any) -> dict[str, Any]:
        infos = self.session.get_inputs()
        names = [value.name for value in infos]
        if isinstance(inputs, Mapping):
            is_value = len(infos) == 1 and infos[0].type.startswith("map(") and set(inputs) != set(names)
            return {names[0]: inputs} if is_value else dict(inputs)
        values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(values) != len(names):
            raise UnpoolError(
                f"run: expected {len(names)} inputs ({', '.join(names)}), got {len(values)}. Pass one array for each."
            )
        return dict(zip(names, values, strict=True))


def prepare(
    model: ModelSource | InferenceSession | PreparedModel, device: str | None = "CPU", **kwargs: Any
) -> PreparedModel:
    """Load a model.

    Args:
        model: a path, bytes or a ModelProto; or a session or a PreparedModel, which stays as it is.
        device: "CPU"; None means the same.
        kwargs: keyword options of `unpool.InferenceSession`; `exact` is always true. The rest as `SESSION_OPTIONS`.

    Raises:
        UnsupportedError: another device.
        UnpoolError: a keyword is not permitted, then also a RuntimeError; or as `unpool.InferenceSession`.
    """
    if device is not None and not supports_device(device):
        raise error_class(UnsupportedError, RuntimeError)(
            f"prepare: expected device 'CPU', got {device!r}. Use the CPU."
        )
    if isinstance(model, PreparedModel):
        return model
    if isinstance(model, InferenceSession):
        return PreparedModel(model)
    keywords = {name: value for name, value in kwargs.items() if name in _SESSION_KEYWORDS}
    others = {name: value for name, value in kwargs.items() if name not in _SESSION_KEYWORDS}
    if others:
        options = keywords.get("sess_options")
        keywords["sess_options"] = onnxruntime.SessionOptions() if options is None else clone(options)
        _set_options(keywords["sess_options"], others, SESSION_OPTIONS, _SESSION_KEYWORDS)
    return PreparedModel(InferenceSession(model, **{**keywords, "exact": True}))


def run_model(
    model: ModelSource | InferenceSession | PreparedModel, inputs: Any, device: str | None = "CPU", **kwargs: Any
) -> tuple[Any, ...]:
    """Load a model and run it once; arguments as for `prepare` and `PreparedModel.run`."""
    model_keywords = {name: value for name, value in kwargs.items() if name in _LOG or name not in _RUN_KEYWORDS}
    run_keywords = {name: value for name, value in kwargs.items() if name in _RUN_KEYWORDS}
    return prepare(model, device, **model_keywords).run(inputs, **run_keywords)


run = run_model
"""The name that `onnxruntime.backend` has for `run_model`."""


def _set_options(options: Any, values: Mapping[str, Any], permitted: frozenset[str], others: Iterable[str]) -> None:
    """Set permitted attributes of options; warn about a name that is none of these and of the `others`."""
    for name, value in values.items():
        kind = type(options).__name__
        if name in permitted:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise error_class(UnpoolError, RuntimeError)(
                f"{kind} attribute {name!r} is not permitted via the backend API. "
                f"Set one of {', '.join(sorted(permitted))}, or make an InferenceSession."
            )
        else:
            advice = suggest_name(name, (*permitted, *others), "Remove it.")
            text = f"onnx_backend: {name!r} is neither a keyword nor an attribute of {kind}, and is ignored. {advice}"
            warn_caller(text)


def run_node(
    node: onnx.NodeProto,
    inputs: Sequence[Any],
    device: str | None = "CPU",
    outputs_info: Sequence[tuple[np.dtype[Any], Sequence[int] | None]] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run one node.

    Args:
        node: the node.
        inputs: arrays, or lists of arrays for sequences, in the order of the node; omitted inputs are None or left out.
        device: "CPU".
        outputs_info: type and shape of every output; needed where onnx cannot infer the types.
        kwargs: `opset_version` of the node's domain, by default the newest; the rest as for `prepare`.

    Raises:
        UnpoolError: the number of inputs is wrong, outputs have unknown types, or as `prepare` and `PreparedModel.run`.
    """
    opset = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
    feed = _node_feed(node, inputs)
    values = [helper.make_value_info(name, type_of(value)) for name, value in feed.items()]
    graph = helper.make_graph([node], "node", values, [])
    imports = {"": opset, domain(node): opset}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*entry) for entry in imports.items()])
    model.graph.output.extend(_outputs(model, node, feed, outputs_info))
    return run_model(model, feed, device, **kwargs)


def supports_device(device: str) -> bool:
    """True if models can run on the device: "CPU", with or without a number.

    >>> supports_device("CPU"), supports_device("CUDA")
    (True, False)
    """
    return device.upper().split(":")[0] == "CPU"


def is_compatible(model: ModelSource, device: str | None = "CPU", **kwargs: Any) -> bool:
    """True if every node of the model can run here; an invalid model raises as `prepare` does."""
    if device is not None and not supports_device(device):
        return False
    try:
        prepare(model, device, **kwargs)
    except UnsupportedError:
        return False
    return True


def _node_feed(node: onnx.NodeProto, inputs: Sequence[Any]) -> dict[str, Any]:
    names: Sequence[str] = node.input
    if len(inputs) != len(names):
        names, inputs = [name for name in names if name], [value for value in inputs if value is not None]
    if len(inputs) != len(names):
        raise UnpoolError(
            f"run_node: expected {len(names)} inputs ({', '.join(names)}), got {len(inputs)}. Pass one for each."
        )
    pairs = zip(names, inputs, strict=True)
    feed = {name: value for name, value in pairs if name and value is not None}
    return {name: value if isinstance(value, list) else np.asarray(value) for name, value in feed.items()}


def _outputs(
    model: onnx.ModelProto, node: onnx.NodeProto, feed: Mapping[str, Any], info: Any
) -> list[onnx.ValueInfoProto]:
    """The node's outputs with their types: from `info`, of the three operators, or inferred by onnx."""
    names = [name for name in node.output if name]
    if info is not None:
        types = [(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape) for dtype, shape in info]
        return [helper.make_tensor_value_info(name, *type_) for name, type_ in zip(names, types, strict=True)]
    if is_unpool_op(node) and node.input and node.input[0] in feed:
        kinds = (feed[node.input[0]].dtype, np.dtype(np.int64), *([np.dtype(np.float32)] * len(node.output)))
        known = dict(zip(node.output, kinds, strict=False))
        return [helper.make_value_info(name, type_of(np.empty(0, known[name]))) for name in names]
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    missing = [name for name in names if name not in inferred]
    if missing:
        raise UnpoolError(
            f"run_node: {node.op_type}: the type of {', '.join(missing)} cannot be inferred. Pass outputs_info."
        )
    return [inferred[name] for name in names]
