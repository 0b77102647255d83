"""Writes the optimised model into the file that SessionOptions name, for unpool and onnxruntime to load again.

It holds what the passes made of the model in operators of ONNX alone: functions are inlined, and what follows a
ConvTranspose is folded into its weights. onnxruntime then folds constants, and writes the file in the format and with
the data files that the options ask for. A model that it does not run as a whole is written without that.

Left as written are activations, which are fused in memory alone; a Conv, which every session turns for itself; and a
decomposed unpooling: a MaxUnpool in its place would count in its output, which no file can say.
"""

from pathlib import Path

import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.files import FileSet, resolve_target
from unpool.runtime.errors import also
from unpool.runtime.graph.boundary import brief
from unpool.runtime.graph.constants import lift_constants, prune
from unpool.runtime.graph.model_files import LARGE, move
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.nodes import is_ours, with_inner
from unpool.runtime.graph.record import FIRST_IR_WITH_DEFAULTS, Graph, graph_of
from unpool.runtime.graph.serialized import is_too_large, serialize
from unpool.runtime.passes.domains import shorten
from unpool.runtime.passes.fold import fold
from unpool.runtime.passes.inline import inline
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import copied_again, entry
from unpool.runtime.runners.ort_format import SAVE_FORMAT
from unpool.runtime.runners.ort_options import Providers

DATA_FILE = "session.optimized_model_external_initializers_file_name"
SMALLEST = "session.optimized_model_external_initializers_min_size_in_bytes"


def write_optimised(
    model: onnx.ModelProto, options: onnxruntime.SessionOptions, meaning: Meaning, providers: Providers
) -> None:
    """Write the file that the options name.

    Raises:
        FileError: it cannot be written there.
        UnsupportedError: onnxruntime's own format is asked for, and it does not run the model as a whole.
    """
    target = Path(options.optimized_model_filepath)
    resolve_target(target)
    if not any(map(is_ours, _all_nodes(model))):
        _write_by_onnxruntime(model, options, providers)
        return
    made = _as_model(prune(fold(lift_constants(graph_of(lift_opset(inline(shorten(model)), meaning))))), model)
    careful = copied_again(options)
    basic = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    careful.graph_optimization_level = min(options.graph_optimization_level, basic, key=int)
    try:
        _write_by_onnxruntime(made, careful, providers)
    except Exception as error:
        if _is_ort(options):
            raise also(UnsupportedError, type(error))(
                f"{target}: expected a model that onnxruntime runs as a whole, for its own format, "
                f"got: {brief(error)}. Name a file that ends in .onnx."
            ) from error
        _write(made, target, options)


def _write_by_onnxruntime(model: onnx.ModelProto, options: onnxruntime.SessionOptions, providers: Providers) -> None:
    """Have onnxruntime load the model: it writes the file."""
    quiet = copied_again(options)
    quiet.enable_profiling = False
    onnxruntime.InferenceSession(serialize(model, "the model"), quiet, list(providers.names), list(providers.options))


def _write(model: onnx.ModelProto, target: Path, options: onnxruntime.SessionOptions) -> None:
    """Write the model as it is."""
    name = entry(options, DATA_FILE) or (f"{target.name}.data" if is_too_large(model) else "")
    smallest = int(entry(options, SMALLEST) or LARGE)
    with FileSet() as files:
        if name:
            with files.open(target.parent / name) as stream:
                for tensor in model.graph.initializer:
                    if tensor.HasField("raw_data") and len(tensor.raw_data) >= smallest:
                        move(tensor, name, stream)
        with files.open(target) as stream:
            stream.write(serialize(model, str(target)))


def _is_ort(options: onnxruntime.SessionOptions) -> bool:
    """Whether onnxruntime's own format is asked for."""
    asked = entry(options, SAVE_FORMAT)
    return asked == "ORT" or (asked is None and options.optimized_model_filepath.endswith(".ort"))


def _all_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return list(with_inner([*model.graph.node, *(node for one in model.functions for node in one.node)]))


def _as_model(graph: Graph, like: onnx.ModelProto) -> onnx.ModelProto:
    """A model of this graph that says of itself what another one says."""
    made = onnx.ModelProto(
        ir_version=max(like.ir_version, FIRST_IR_WITH_DEFAULTS),
        producer_name=like.producer_name,
        producer_version=like.producer_version,
        domain=like.domain,
        model_version=like.model_version,
        doc_string=like.doc_string,
    )
    made.metadata_props.extend(like.metadata_props)
    made.opset_import.extend(helper.make_opsetid(name, version) for name, version in graph.opsets.items())
    made.graph.name, made.graph.doc_string = like.graph.name, like.graph.doc_string
    made.graph.node.extend(graph.nodes)
    made.graph.input.extend(graph.inputs)
    made.graph.output.extend(graph.outputs)
    for name, tensor in {**graph.constants, **graph.defaults}.items():
        made.graph.initializer.add().CopyFrom(tensor)
        made.graph.initializer[-1].name = name
    for name, sparse in graph.sparse_constants.items():
        made.graph.sparse_initializer.add().CopyFrom(sparse)
        made.graph.sparse_initializer[-1].values.name = name
    return made
