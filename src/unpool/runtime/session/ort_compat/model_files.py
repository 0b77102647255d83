"""Model files that only onnxruntime reads and writes: its own format, and the optimized model.

The optimized model has what the passes made of the model in operators of ONNX alone: functions are inlined, and what
follows a ConvTranspose is folded into its weights. onnxruntime then folds constants, and writes the file in the format
and with the data files that the options name. A model that it cannot run is written without this.

The file keeps activations, which are fused in memory alone; a Conv, which every session converts for itself; and a
decomposed unpooling, because the indices of a MaxUnpool in its place would count in its output, which no file can say.
"""

import os
import tempfile
from pathlib import Path

import onnx
from onnx import helper

from unpool.errors import ModelError, UnsupportedError
from unpool.files import FileSet, resolve_target
from unpool.runtime.backends.ort_options import LOAD_FORMAT, Providers, clone, clone_private, config_entry, silence
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import short_message, source_name
from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph, prune
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.nodes import is_unpool_op, with_subgraph_nodes
from unpool.runtime.graph.save import LARGE, write_data
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weights import is_too_large, serialize
from unpool.runtime.passes.fuse_conv_transpose import fold
from unpool.runtime.passes.inline import shorten_domains
from unpool.runtime.passes.pipeline import to_graph
from unpool.runtime.requirements import onnxruntime

SAVE_FORMAT = "session.save_model_format"
DATA_FILE = "session.optimized_model_external_initializers_file_name"
MIN_DATA_BYTES = "session.optimized_model_external_initializers_min_size_in_bytes"

ORT_SUFFIX = ".ort"
_METADATA = ("producer_name", "producer_version", "domain", "model_version", "doc_string")


def to_onnx_format(source: ModelSource, options: onnxruntime.SessionOptions) -> ModelSource:
    """The source, or the bytes of an ONNX model where its name, its first bytes or the options tell another format."""
    if not _is_ort_source(source, options):
        return source
    own = silence(clone(options), model_format="ORT")
    own.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    own.add_session_config_entry(SAVE_FORMAT, "ONNX")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        own.optimized_model_filepath = str(path)
        try:
            content = os.fspath(source) if isinstance(source, os.PathLike) else source
            onnxruntime.InferenceSession(content, own, providers=["CPUExecutionProvider"])
            model = onnx.load_from_string(path.read_bytes())
        except Exception as error:
            raise error_class(ModelError, type(error))(
                f"{source_name(source)}: expected a model in onnxruntime's format, got: {short_message(error)}. "
                "Convert the model again."
            ) from error
    model.graph.name = model.graph.name or "graph"  # ONNX asks for a name, and the other format does not keep it
    return bytes(model.SerializeToString())


def _is_ort_source(source: ModelSource, options: onnxruntime.SessionOptions) -> bool:
    stated_format = config_entry(options, LOAD_FORMAT)
    if stated_format is not None:
        return stated_format == "ORT"
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).endswith(ORT_SUFFIX) and os.path.exists(source)
    return isinstance(source, (bytes, bytearray, memoryview)) and bytes(source[4:8]) == b"ORTM"


def save_optimized(
    model: onnx.ModelProto, options: onnxruntime.SessionOptions, semantics: Semantics, providers: Providers
) -> None:
    """Write the optimized model to the file that the options name."""
    target = Path(options.optimized_model_filepath)
    resolve_target(target)
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    if not any(map(is_unpool_op, with_subgraph_nodes(nodes))):
        _save_by_onnxruntime(model, options, providers)
        return
    optimized = _as_model(prune(fold(to_graph(shorten_domains(model), semantics))), model)
    basic_options = clone_private(options)
    basic = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    basic_options.graph_optimization_level = min(options.graph_optimization_level, basic, key=int)
    try:
        _save_by_onnxruntime(optimized, basic_options, providers)
    except Exception as error:
        stated_format = config_entry(options, SAVE_FORMAT)
        if stated_format == "ORT" or (stated_format is None and options.optimized_model_filepath.endswith(ORT_SUFFIX)):
            raise error_class(UnsupportedError, type(error))(
                f"{target}: onnxruntime writes its own format only for models that it runs, and it refuses this one: "
                f"{short_message(error)}. Name a file that ends in .onnx."
            ) from error
        _save(optimized, target, options)


def _save_by_onnxruntime(model: onnx.ModelProto, options: onnxruntime.SessionOptions, providers: Providers) -> None:
    """Have onnxruntime load the model, which writes the file."""
    own = clone_private(options)
    own.enable_profiling = False
    onnxruntime.InferenceSession(serialize(model, "the model"), own, list(providers.names), list(providers.options))


def _save(model: onnx.ModelProto, target: Path, options: onnxruntime.SessionOptions) -> None:
    data_file = config_entry(options, DATA_FILE) or (f"{target.name}.data" if is_too_large(model) else "")
    min_bytes = int(config_entry(options, MIN_DATA_BYTES) or LARGE)
    with FileSet() as files:
        if data_file:
            with files.open(target.parent / data_file) as stream:
                for tensor in model.graph.initializer:
                    if tensor.HasField("raw_data") and len(tensor.raw_data) >= min_bytes:
                        write_data(tensor, data_file, stream)
        with files.open(target) as stream:
            stream.write(serialize(model, str(target)))


def _as_model(graph: Graph, like: onnx.ModelProto) -> onnx.ModelProto:
    """A model of this graph with the metadata of another model."""
    model = onnx.ModelProto(
        ir_version=max(like.ir_version, FIRST_IR_WITH_DEFAULTS), **{name: getattr(like, name) for name in _METADATA}
    )
    model.metadata_props.extend(like.metadata_props)
    model.opset_import.extend(helper.make_opsetid(name, version) for name, version in graph.opsets.items())
    model.graph.name, model.graph.doc_string = like.graph.name, like.graph.doc_string
    model.graph.node.extend(graph.nodes)
    model.graph.input.extend(graph.inputs)
    model.graph.output.extend(graph.outputs)
    for name, tensor in {**graph.constants, **graph.defaults}.items():
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = name
    for name, sparse in graph.sparse_constants.items():
        model.graph.sparse_initializer.add().CopyFrom(sparse)
        model.graph.sparse_initializer[-1].values.name = name
    return model
