"""Initializers that a caller gave to onnxruntime's SessionOptions, which do not tell: a session of a probe does.

The probe has an empty tensor for every name; one whose shape is another when it runs comes from the options.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx
import onnxruntime
from onnx import TensorProto, helper

from unpool.errors import UnsupportedError

_OPSET, _IR = 14, 8
_PLAIN = {
    "enable_profiling": False,
    "optimized_model_filepath": "",
    "intra_op_num_threads": 1,
    "log_severity_level": 4,
}
_lock = threading.Lock()


def require_none(options: onnxruntime.SessionOptions, names: Sequence[str]) -> None:
    """Refuse options that bring initializers: the passes of a session read those of the model.

    Args:
        options: of the caller.
        names: of the model's initializers.

    Raises:
        UnsupportedError: the options bring a tensor for one of the names, or tensors in place of external ones.
    """
    model = _probe(names).SerializeToString()
    with _lock, _plain(options):
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            shapes = session.run(None, {})
        except Exception as error:
            found = "others, which onnxruntime says in its own words"
            raise _refusal("add_external_initializers", found) from error
    given = [name for name, one in zip(names, shapes, strict=True) if one.shape != (0,)]
    if given:
        raise _refusal("add_initializer", ", ".join(map(repr, given)))


def _probe(names: Sequence[str]) -> onnx.ModelProto:
    tensors = [helper.make_tensor(name, TensorProto.INT8, [0], b"", raw=True) for name in names]
    outputs = [f"unpool.probe.{number}" for number in range(len(names))]
    nodes = [
        helper.make_node("RandomUniformLike", [name], [output], dtype=TensorProto.FLOAT)  # no optimiser folds it
        for name, output in zip(names, outputs, strict=True)
    ]
    ends = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
    graph = helper.make_graph(nodes, "probe", [], ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)


@contextmanager
def _plain(options: onnxruntime.SessionOptions) -> Iterator[None]:
    """The options without what writes files or starts threads; they cannot be copied."""
    before = {name: getattr(options, name) for name in _PLAIN}
    try:
        for name, value in _PLAIN.items():
            setattr(options, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def _refusal(method: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"SessionOptions.{method}: expected all initializers in the model, got {found}. Put them into the model."
    )
