"""Nodes that onnxruntime refuses, each computed by onnx's ReferenceEvaluator inside onnxruntime's session.

Each node is tried alone, as the model of a session, so that the others stay with onnxruntime. An evaluator has unpool's
operators in place of its own.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.graph.errors import is_from_signal_handler, one_line
from unpool.graph.graph import Graph
from unpool.graph.nodes import domain, node_name, reads, subgraphs, with_subgraph_nodes, writes
from unpool.graph.shape_inference import infer, infer_by_onnx
from unpool.graph.shapes import Types, without_shape
from unpool.graph.weights import is_large, restore_initializers, strip_initializers
from unpool.onnx_reference import new_ops
from unpool.onnxruntime.engine import Allocate, Engine, dtype_of, engine_node
from unpool.onnxruntime.errors import ort_message
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.placement import NodePlacement, Reason, SessionPlan, place
from unpool.onnxruntime.register import register
from unpool.onnxruntime.silence import quiet_options, quiet_session
from unpool.operators.semantics import Semantics
from unpool.operators.unpool_domain import DOMAIN, VERSION

Constants = Mapping[str, onnx.TensorProto]


class EngineModel(NamedTuple):
    """A model with engines in place of nodes: they have to be kept, and `refused` says why, by the names of nodes."""

    model: onnx.ModelProto
    plan: SessionPlan
    engines: tuple[Engine, ...]
    refused: Mapping[str, str]


class ReferenceEngine:
    """One node; it computes in one thread at a time, as the evaluator promises no more.

    Raises:
        UnsupportedError: a type that an engine does not have.
        Exception: the evaluator does not know the operator.
    """

    def __init__(
        self,
        node: onnx.NodeProto,
        types: Types,
        opsets: Mapping[str, int],
        semantics: Semantics,
        threads: int | None,
    ) -> None:
        self.output_dtypes = [dtype_of(types[name].tensor_type.elem_type) for name in writes(node)]
        self._name, self._inputs, self._lock = node_name(node), reads(node), threading.Lock()
        for name in self._inputs:
            dtype_of(types[name].tensor_type.elem_type)
        model = _model_of(node, types, {}, opsets)
        operators = new_ops(
            opsets.get("", 1), compat=semantics.compat, index_space=semantics.index_space, threads=threads
        )
        self._evaluator = ReferenceEvaluator(model, new_ops=operators)

    def compute(self, inputs: Sequence[AnyArray], allocate: Allocate) -> None:
        """Write the outputs of the node."""
        with self._lock, np.errstate(all="ignore"):
            try:
                outputs = self._evaluator.run(None, dict(zip(self._inputs, inputs, strict=True)))
            except Exception as error:
                if isinstance(error, UnpoolError) or is_from_signal_handler(error):
                    raise
                raise UnpoolError(
                    f"onnx's ReferenceEvaluator cannot run node {self._name!r} on these inputs: {one_line(error)}. "
                    "Change the inputs or replace the node."
                ) from error
        for number, (value, dtype) in enumerate(zip(outputs, self.output_dtypes, strict=True)):
            array = np.asarray(value)
            if array.dtype != dtype:
                raise UnpoolError(
                    f"node {self._name!r}: onnx's ReferenceEvaluator gives {array.dtype} in place of {dtype}. Replace "
                    "the node."
                )
            allocate(number, array.shape)[...] = array


def with_engines(
    model: onnx.ModelProto, plan: SessionPlan, semantics: Semantics, threads: int | None
) -> EngineModel | None:
    """The model, which is not changed, with the nodes of a plan, and engines for those that onnxruntime refuses.

    None if it refuses no node alone, or one that the evaluator does not run either.
    """
    skeleton = strip_initializers(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(skeleton)
    place(changed, plan, frozenset())
    opsets = {entry.domain: entry.version for entry in changed.opset_import} | {DOMAIN: VERSION}
    replacer = _Replacer(opsets, semantics, threads)
    replacer.replace((skeleton.graph, _with_types(skeleton, semantics).graph, changed.graph), {}, {})
    if not replacer.refused or replacer.is_incomplete:
        return None
    nodes = list(with_subgraph_nodes(model.graph.node))
    rows = {row.position: row for row in plan}
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for position, node in enumerate(nodes):
        if (reason := replacer.refused.get(node_name(node))) is not None:
            rows[position] = NodePlacement.of_node(node, opsets, Reason.NO_KERNEL, reason, position)
    whole = restore_initializers(changed, model)
    return EngineModel(
        whole, SessionPlan(rows[position] for position in sorted(rows)), tuple(replacer.engines), replacer.refused
    )


class _Replacer:
    """Replaces nodes of graphs that onnxruntime refuses; `is_incomplete` if the evaluator does not run one of them."""

    def __init__(self, opsets: Mapping[str, int], semantics: Semantics, threads: int | None) -> None:
        self._opsets, self._semantics, self._threads = opsets, semantics, threads
        self.engines: list[Engine] = []
        self.refused: dict[str, str] = {}
        self.is_incomplete = False

    def replace(
        self, graphs: tuple[onnx.GraphProto, onnx.GraphProto, onnx.GraphProto], types: Types, constants: Constants
    ) -> None:
        """Replace nodes in the last of three graphs: as it was, with types, and to change."""
        original, inferred, changed = graphs
        values = (*inferred.input, *inferred.output, *inferred.value_info)
        known = types | {value.name: value.type for value in values if value.type.WhichOneof("value")}
        known |= {each.name: helper.make_tensor_type_proto(each.data_type, each.dims) for each in original.initializer}
        constants = {**constants, **{each.name: each for each in original.initializer if not is_large(each)}}
        stated = {value.name for value in (*changed.value_info, *changed.output)}
        for before, typed, node in zip(original.node, inferred.node, changed.node, strict=True):
            parts = ([graph for _, graph in subgraphs(each)] for each in (before, typed, node))
            for inner in zip(*parts, strict=True):
                self.replace(inner, known, constants)
            if node.domain == DOMAIN or not known.keys() >= {*reads(node)}:
                continue
            reason = self._refusal(node, known, constants)
            if reason is None:
                continue
            self.refused[node_name(before)] = reason
            try:
                engine = ReferenceEngine(before, known, self._opsets, self._semantics, self._threads)
            except Exception as error:
                if is_from_signal_handler(error):
                    raise
                self.is_incomplete = True
                return
            self.engines.append(engine)
            node.CopyFrom(engine_node(engine, reads(before), writes(before), node_name(before)))
            changed.value_info.extend(
                onnx.ValueInfoProto(name=name, type=without_shape(known[name]))
                for name in writes(before)
                if name not in stated
            )

    def _refusal(self, node: onnx.NodeProto, types: Types, constants: Constants) -> str | None:
        """The reason for which onnxruntime refuses a node that is valid; None for any other node."""
        model = _model_of(node, types, constants, self._opsets)
        options = quiet_options(threads=1)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        register(options, domains=DOMAIN)
        try:
            quiet_session(model.SerializeToString(), options)
        except Exception as error:
            if is_from_signal_handler(error):
                raise
            is_valid = type(error).__name__ == "NotImplemented" or _is_valid(model)
            return ort_message(error) if is_valid and known_outputs(node, types) else None
        return None


def known_outputs(node: onnx.NodeProto, types: Types) -> bool:
    """True if all outputs of a node are known to be tensors."""
    return all(name in types and types[name].tensor_type.elem_type for name in writes(node))


def _with_types(model: onnx.ModelProto, semantics: Semantics) -> onnx.ModelProto:
    """A copy that states the types of values, of sub-graphs too, as far as they can be inferred."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    types = infer(Graph.from_model(model), semantics).types
    stated = {value.name for value in (*typed.graph.input, *typed.graph.output, *typed.graph.value_info)}
    typed.graph.value_info.extend(
        onnx.ValueInfoProto(name=name, type=type_) for name, type_ in types.items() if name not in stated
    )
    try:
        return infer_by_onnx(typed)
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        return typed


def _is_valid(model: onnx.ModelProto) -> bool:
    """True if onnx finds nothing wrong with a model of operators that it knows."""
    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        return False
    return all(onnx.defs.has(node.op_type, domain(node)) for node in with_subgraph_nodes(model.graph.node))


def _model_of(node: onnx.NodeProto, types: Types, constants: Constants, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """The model of a node alone, whose inputs are all that it reads."""

    def value(name: str) -> onnx.ValueInfoProto:
        return onnx.ValueInfoProto(name=name, type=None if name not in types else without_shape(types[name]))

    given = [constants[name] for name in reads(node) if name in constants]
    inputs = [value(name) for name in reads(node) if name not in constants]
    graph = helper.make_graph([node], "node", inputs, [value(name) for name in writes(node)], given)
    imports = [helper.make_opsetid(name, version) for name, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


_IR_VERSION = 10
"""Of models of one node: that of onnxruntime 1.18 and later, which has all types that onnx had in 2024."""
