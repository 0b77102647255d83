"""The same model in another form: names, sizes, places of weights, opsets' long names, and the file that it is in.

`disguise(made, rng)` changes a case; what it computes stays the same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.cases.draft import chance, pick
from tools.campaigns.onnxruntime_model_cases import ModelCase, every_node
from unpool.graph.shape_inference import infer_by_onnx

STRANGE = ("größe ", "a/b:", "0", "x_folded_W", "y_relu", ".", "unpool", "Mul_", "'q'", "名" * 3, "long" * 30)


def graphs_of(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph, and those in its nodes."""
    found = [model.graph]
    for graph in found:
        found += [each.g for node in graph.node for each in node.attribute if each.HasField("g")]
    return found


def rename(made: ModelCase, rng: np.random.Generator) -> None:
    """Strange names for values; some nodes have the same name."""
    new: dict[str, str] = {"": ""}

    def name_of(name: str) -> str:
        if name not in new:
            new[name] = f"{pick(rng, STRANGE)}{len(new)}" if chance(rng, 0.7) else name
        return new[name]

    for graph in graphs_of(made.model):
        for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            value.name = name_of(value.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = name_of(sparse.values.name)
        for node in graph.node:
            node.input[:] = list(map(name_of, node.input))
            node.output[:] = list(map(name_of, node.output))
            if chance(rng, 0.01):  # onnxruntime refuses two nodes of one name
                node.name = "the same"
    made.feeds = [{new.get(name, name): value for name, value in feed.items()} for feed in made.feeds]


def add_value_info(made: ModelCase, rng: np.random.Generator) -> None:
    """The types that onnx infers, written into the model, some without sizes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made.model)
    try:
        inferred = infer_by_onnx(copy).graph.value_info
    except Exception:
        return
    for value in inferred:
        if chance(rng, 0.3):
            value.type.tensor_type.ClearField("shape")
        elif chance(rng, 0.2):
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_value = -1
    made.model.graph.value_info.extend(inferred)


def use_long_domain(made: ModelCase, rng: np.random.Generator) -> None:
    """The domain as "ai.onnx"."""
    for node in every_node(made.model):
        if node.domain == "" and chance(rng, 0.5):
            node.domain = "ai.onnx"
    made.model.opset_import[0].domain = "ai.onnx"


def feed_weights(made: ModelCase, rng: np.random.Generator) -> None:
    """Some initializers are inputs, or may be replaced, with other values."""
    graph = made.model.graph
    known = {value.name for value in graph.input}
    for tensor in list(graph.initializer):
        if tensor.name in known or not chance(rng, 0.25):
            continue
        info = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        array = numpy_helper.to_array(tensor)
        graph.input.append(info)
        if chance(rng, 0.4):
            graph.initializer.remove(tensor)
        elif chance(rng, 0.5):
            continue
        elif array.dtype == np.float32:
            array = array[..., ::-1] if array.ndim else array
        for feed in made.feeds:
            feed[tensor.name] = np.ascontiguousarray(array).reshape(array.shape)


PLACES = ("stay", "constant", "sparse", "typed", "sparse constant", "list", "unused")


def has_list(array: np.ndarray) -> bool:
    """True if a Constant can have the elements in a list, which onnx takes for an attribute without a type if empty."""
    return array.ndim <= 1 and array.size > 0 and array.dtype in (np.float32, np.int64)


def move_weights(made: ModelCase, rng: np.random.Generator) -> None:
    """Weights as Constants, sparse, in typed fields, of a ConstantOfShape, and copies that nobody reads."""
    graph = made.model.graph
    known = {value.name for value in graph.input}
    for tensor in list(graph.initializer):
        array = numpy_helper.to_array(tensor)
        how = pick(
            rng, ("stay", "constant", "sparse", "typed", "sparse constant", "list", "unused"), (4, 2, 1, 2, 1, 1, 1)
        )
        if tensor.name in known or how == "stay":
            continue
        if how == "unused":
            graph.initializer.append(numpy_helper.from_array(array, f"{tensor.name}_unused"))
        elif how == "typed" and array.dtype in (np.float32, np.int64):
            tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, array.shape, array.ravel().tolist()))
        elif how == "constant":
            graph.initializer.remove(tensor)
            inner = TensorProto()
            inner.CopyFrom(tensor)
            inner.name = pick(rng, ("", "x", "same"))
            graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=inner))
        elif how == "list" and has_list(array) and opset_of(made) >= 12:
            graph.initializer.remove(tensor)
            word = ("value_float" if array.dtype == np.float32 else "value_int") + ("s" if array.ndim else "")
            graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], **{word: array.tolist()}))
        elif how.startswith("sparse") and array.dtype == np.float32 and array.ndim and opset_of(made) >= 11:
            graph.initializer.remove(tensor)
            sparse = sparse_of(array, tensor.name)
            if how == "sparse":
                graph.sparse_initializer.append(sparse)
            else:
                graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], sparse_value=sparse))


def sparse_of(array: np.ndarray, name: str) -> onnx.SparseTensorProto:
    flat = array.reshape(-1)
    places = np.flatnonzero(flat).astype(np.int64)
    return onnx.SparseTensorProto(
        values=numpy_helper.from_array(flat[places], name), indices=numpy_helper.from_array(places), dims=array.shape
    )


def opset_of(made: ModelCase) -> int:
    return next(each.version for each in made.model.opset_import if each.domain in ("", "ai.onnx"))


def add_ends(made: ModelCase, rng: np.random.Generator) -> None:
    """An input that nobody reads, outputs that are an input or a weight, a node and a function without readers."""
    graph = made.model.graph
    if chance(rng, 0.4):
        graph.input.append(helper.make_tensor_value_info("unread", TensorProto.INT64, ["k"]))
        for feed in made.feeds:
            feed["unread"] = np.arange(3)
    if chance(rng, 0.3):
        graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    floats = [each for each in graph.initializer if each.data_type == TensorProto.FLOAT]
    if chance(rng, 0.4) and floats:
        weight = pick(rng, range(len(floats)))
        graph.output.append(helper.make_tensor_value_info(floats[weight].name, TensorProto.FLOAT, None))
    if chance(rng, 0.3):
        graph.node.append(helper.make_node("Neg", ["x"], ["nobody"]))
    if chance(rng, 0.3):
        nodes = [helper.make_node("Missing", ["a"], ["b"], domain="missing")]
        imports = [helper.make_opsetid("missing", 3), helper.make_opsetid("", 9)]
        made.model.functions.append(helper.make_function("unread", "Unread", ["a"], ["b"], nodes, imports))
        made.model.opset_import.append(helper.make_opsetid("unread", 1))


def age(made: ModelCase, rng: np.random.Generator) -> None:
    """An older version of the format, in which weights are inputs."""
    if made.model.functions or opset_of(made) >= 15:
        made.model.ir_version = pick(rng, (8, 9, 10))
        return
    made.model.ir_version = pick(rng, (3, 4, 5, 7))
    if made.model.ir_version == 3:
        weights = {each.name for each in made.model.graph.initializer}  # which no caller may replace
        made.feeds = [{name: value for name, value in feed.items() if name not in weights} for feed in made.feeds]
        known = {value.name for value in made.model.graph.input}
        made.model.graph.input.extend(
            helper.make_tensor_value_info(each.name, each.data_type, list(each.dims))
            for each in made.model.graph.initializer
            if each.name not in known
        )


def shuffle(made: ModelCase, rng: np.random.Generator) -> None:
    """Nodes in any order, as onnxruntime takes them."""
    nodes = list(made.model.graph.node)
    del made.model.graph.node[:]
    made.model.graph.node.extend(nodes[place] for place in rng.permutation(len(nodes)))


def nest_functions(made: ModelCase, rng: np.random.Generator) -> None:
    """Functions that call functions, some of one name but for an overload."""
    wrapped = []
    has_overloads = made.model.ir_version >= 10 and chance(rng, 0.5)
    for function in made.model.functions:
        if function.attribute or function.domain == "unread":
            continue
        inner, defaults = function.name, [each.name for each in function.attribute_proto]
        call = helper.make_node(f"{inner}Inner", list(function.input), list(function.output), domain=function.domain)
        for word in defaults:
            reference = onnx.AttributeProto(name=word, ref_attr_name=word, type=onnx.AttributeProto.FLOAT)
            call.attribute.append(reference)
        outer = onnx.FunctionProto()
        outer.CopyFrom(function)
        del outer.node[:]
        outer.node.append(call)
        function.name = f"{inner}Inner"
        if has_overloads:
            function.name, function.overload = "Same", inner
            outer.node[0].op_type, outer.node[0].overload = "Same", inner
        wrapped.append(outer)
    made.model.functions.extend(wrapped)


UNCHANGED = {
    "MaxPool", "Conv", "Relu", "Neg", "Transpose", "Pad", "Clip", "Identity", "Abs", "LeakyRelu", "Concat", "Cast",
    "ConvTranspose", "Reshape", "Shape", "Constant", "Floor", "Sin", "If", "Loop", "Sum", "InstanceNormalization",
    "Slice", "Squeeze", "Unsqueeze", "HardSigmoid",
}  # fmt: skip
"""Operators that mean the same in opsets 6 and 7."""


def lower_opset(made: ModelCase, rng: np.random.Generator) -> None:
    """Opset 6, where that means the same as 7."""
    if opset_of(made) == 7 and {node.op_type for node in every_node(made.model)} <= UNCHANGED:
        made.model.opset_import[0].version = 6


def describe(made: ModelCase, rng: np.random.Generator) -> None:
    """Metadata and texts."""
    helper.set_model_props(made.model, {"key": "value", "": "empty"})
    made.model.producer_name, made.model.graph.doc_string = "pytorch", "text" * int(rng.integers(1, 9))
    made.model.model_version = -1


FORMS: tuple[tuple[Callable[[ModelCase, np.random.Generator], None], float], ...] = (
    (add_ends, 0.25),
    (feed_weights, 0.15),
    (move_weights, 0.4),
    (age, 0.2),
    (describe, 0.1),
    (lower_opset, 0.7),
    (add_value_info, 0.25),
    (nest_functions, 0.3),
    (shuffle, 0.2),
    (rename, 0.3),
    (use_long_domain, 0.1),
)
"""Changes, and how often each is made."""


def disguise(made: ModelCase, rng: np.random.Generator) -> list[str]:
    """Change the form of a model; the names of what was done."""
    done = []
    for form, share in FORMS:
        if chance(rng, share):
            before = made.model.SerializeToString()
            form(made, rng)
            done += [form.__name__] if made.model.SerializeToString() != before else []
    return done


def source_of(made: ModelCase, rng: np.random.Generator, folder: Path) -> tuple[str, Any, Any]:
    """How a model is given, the model for unpool, and the same for onnxruntime."""
    way = pick(rng, ("bytes", "proto", "str", "path", "data", "link"), (4, 3, 1, 1, 1, 1))
    content, path = made.model.SerializeToString(), folder / "model.onnx"
    if way in ("bytes", "proto"):
        return way, content if way == "bytes" else made.model, content
    if way == "data":
        onnx.save(made.model, path, save_as_external_data=True, location="model.data", size_threshold=64)
    else:
        path.write_bytes(content)
    if way == "link":
        path.rename(folder / "target.onnx")
        path.symlink_to(folder / "target.onnx")
    return way, path if way == "path" else str(path), str(path)
