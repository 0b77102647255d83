"""Sessions of onnxruntime with the library of operators, and models of a few nodes for them."""

import onnx
import onnxruntime
from onnx import helper, numpy_helper

import unpool.onnxruntime
from unpool.onnxruntime import library


def plain_options():
    """SessionOptions without the library, which log nothing: a refusal is logged, too."""
    made = onnxruntime.SessionOptions()
    made.log_severity_level = 4
    return made


def session_options(**given):
    """SessionOptions with the library, which log nothing; the arguments are those of `register`."""
    made = plain_options()
    unpool.onnxruntime.register(made, **given)
    return made


def register_alone(options, **entries):
    """Register the library as a program in C does, with these entries: no planner in Python is attached."""
    for name, value in entries.items():
        options.add_session_config_entry(f"unpool.{name}", str(value))
    options.register_custom_ops_library(str(library.PATH))


def plain_session(model):
    """A session of onnxruntime alone, of a ModelProto."""
    return onnxruntime.InferenceSession(model.SerializeToString(), plain_options())


def session_of(model, **given):
    """A session, with the library, of a ModelProto, its bytes or its path."""
    content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(content, session_options(**given))


def node_model(nodes, inputs, constants=(), outputs=("y",), sizes=None, opset=22):
    """A model of nodes whose inputs and constants are arrays by name.

    Outputs have the type and the rank of the first input; "i" has int64. `sizes` are those of all inputs, where the
    model does not state the sizes of the arrays.
    """
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    first, versions = next(iter(inputs)), {"unpool": 1}
    made = {name: onnx.TensorProto.INT64 if name == "i" else kinds[first] for name in outputs}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kinds[name], sizes or x.shape) for name, x in inputs.items()],
        [helper.make_tensor_value_info(name, kind, [None] * inputs[first].ndim) for name, kind in made.items()],
        [numpy_helper.from_array(constants[name], name) for name in constants],
    )
    imports = [helper.make_opsetid(name, versions.get(name, opset)) for name in {"", *(node.domain for node in nodes)}]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)
