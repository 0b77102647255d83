"""Turns a model in onnxruntime's own format into one in the format of ONNX: onnxruntime reads and writes it."""

import os
import tempfile
from pathlib import Path

import onnx

from unpool.errors import ModelError
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import brief, place
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import LOAD_FORMAT, copied, entry, quietened

SAVE_FORMAT = "session.save_model_format"
_MARK = slice(4, 8), b"ORTM"
_SUFFIX = ".ort"


def in_onnx(source: ModelSource, options: onnxruntime.SessionOptions) -> ModelSource:
    """The source, or the bytes of an ONNX model, if it has onnxruntime's format, by its name, its mark or the options.

    Raises:
        ModelError: onnxruntime cannot read it; also the class that it raises.
    """
    if not _is_ort(source, options):
        return source
    own = quietened(copied(options), format_="ORT")
    own.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    own.add_session_config_entry(SAVE_FORMAT, "ONNX")
    given = os.fspath(source) if isinstance(source, os.PathLike) else source
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        own.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(given, own, providers=["CPUExecutionProvider"])
            return _named(path.read_bytes())
        except Exception as error:
            raise also(ModelError, type(error))(
                f"{place(source)}: expected a model in onnxruntime's format, got: {brief(error)}. Make it again."
            ) from error


def _named(content: bytes) -> bytes:
    """The model with a name of its graph, which ONNX asks for and the other format does not keep."""
    model = onnx.load_from_string(content)
    model.graph.name = model.graph.name or "graph"
    return bytes(model.SerializeToString())


def _is_ort(source: ModelSource, options: onnxruntime.SessionOptions) -> bool:
    asked = entry(options, LOAD_FORMAT)
    if asked is not None:
        return asked == "ORT"
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).endswith(_SUFFIX) and os.path.exists(source)
    where, mark = _MARK
    return isinstance(source, (bytes, bytearray, memoryview)) and bytes(source[where]) == mark
