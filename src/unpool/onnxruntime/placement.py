"""Which nodes of a model unpool computes inside onnxruntime, and why: chosen node by node.

| node | unpool computes it |
|---|---|
| MaxUnpool; MaxPool with Indices | always |
| ConvTranspose | where its kernel is faster, by its shapes; always in types other than float32 |
| MaxPool without Indices | unless it stands among Convs, in the blocked layout of onnxruntime |
| InstanceNormalization | in float32: its kernel is faster, and nearer to the exact result |

onnxruntime keeps float32 maps of 16, 32, ... channels between Convs in blocks of a vector, in which it pools fast. A
node of unpool there would cost two changes of the layout. Such a pool is not given away where a rule of the standard
and onnxruntime differ: pads as large as the window, windows that do not fit.

unpool computes on the CPU. With another provider, as that of CUDA, only MaxUnpool is unpool's, which these lack: each
other node would cost copies from and to the device.
"""

import logging
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cached_property
from itertools import chain, starmap
from typing import Any, NamedTuple

import numpy as np
import onnx

from unpool.display import table
from unpool.errors import UnpoolError
from unpool.execute import kernel_of
from unpool.execute.arrays import InputTypes, TypedShape
from unpool.graph import shapes
from unpool.graph.nodes import (
    attributes,
    domain,
    is_unpool_op,
    node_name,
    since_version,
    subgraphs,
    with_subgraph_nodes,
)
from unpool.graph.operators import OperatorFact, having
from unpool.graph.shape_inference import infer_by_onnx
from unpool.graph.shapes import Types
from unpool.graph.spec import spec_of
from unpool.graph.weights import strip_initializers
from unpool.onnxruntime.costs import is_faster_in_unpool
from unpool.onnxruntime.differences import is_plain_conv_transpose, pool_difference
from unpool.operators import contract, unpool_domain
from unpool.operators.attributes import Settings
from unpool.operators.contract import NHWC
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.semantics import Semantics
from unpool.operators.unpool_domain import DOMAIN, VERSION

BLOCK = 16  # channels of onnxruntime's blocks, on any processor
BLOCKED_RANK = 4
_KEEPS_BLOCKS = having(OperatorFact.BLOCKED)
_log = logging.getLogger("unpool")


class Reason(Enum):
    """Why a node runs where it does; the value is the text for people."""

    MAX_UNPOOL = "unpool computes every MaxUnpool"
    INDICES = "unpool computes every MaxPool with Indices"
    EXACT = "exact: unpool computes every MaxPool and ConvTranspose"
    TYPE = "unpool computes this type without casts"
    DIFFERS = "onnxruntime may differ from the standard"
    FASTER = "unpool's kernel is faster"
    UNKNOWN_SHAPE = "unpool's kernels are faster for most shapes"
    NOT_BLOCKED = "not in onnxruntime's blocked layout"
    BLOCKED = "in onnxruntime's blocked layout, among Convs"
    SLOWER = "onnxruntime's kernel is faster for this shape"
    REFUSED = "its attributes are not those of the standard"
    FUSED = "one pass over memory in place of several"
    PROVIDER = "left to the other provider"
    NO_KERNEL = "onnxruntime refuses it"
    TUNED = "the whole model is faster there, as tuning has measured"
    REPLACEMENT = "onnxruntime computes it faster than what was there"
    OTHER = "no operator of unpool"

    @property
    def runner(self) -> str:
        """Who computes the node: "unpool", "onnxruntime", "openvino", or "reference" for onnx's ReferenceEvaluator."""
        if self in (Reason.NO_KERNEL, Reason.TUNED):
            return "reference" if self is Reason.NO_KERNEL else "openvino"
        return "onnxruntime" if self in _OF_ONNXRUNTIME else "unpool"


_OF_ONNXRUNTIME = (
    Reason.BLOCKED, Reason.SLOWER, Reason.REFUSED, Reason.PROVIDER, Reason.REPLACEMENT, Reason.OTHER
)  # fmt: skip


class NodeCall(NamedTuple):
    """A node of unpool's domain, for inputs of known shapes and types."""

    operator: str
    attributes: Mapping[str, Any]
    settings: Settings
    inputs: InputTypes
    outputs: int

    @property
    def kernel(self) -> str:
        """The name of its kernel; empty where the shapes do not fit."""
        with suppress(UnpoolError):
            return kernel_of(
                unpool_domain.spec(self.operator, self.attributes, self.settings), self.inputs, self.outputs
            )
        return ""


class NodePlacement(NamedTuple):
    """A node of unpool's operators: who computes it, and why."""

    node: str  # its name, or `Operator->output` without one
    operator: str
    reason: Reason
    detail: str = ""  # what passes say of it
    position: int = 0  # among all nodes of the model, each before those in its sub-graphs
    domain: str = ""  # "" for ONNX
    version: int | None = None  # of the operator, as the model's opset selects it; None in other domains
    call: NodeCall | None = None  # where unpool computes it, and the model fixes all sizes

    @classmethod
    def of_node(
        cls, node: onnx.NodeProto, opsets: Mapping[str, int], reason: Reason, detail: str, position: int,
        call: NodeCall | None = None,
    ) -> "NodePlacement":  # fmt: skip
        """The row of a node; `opsets` are those of its model."""
        is_standard = domain(node) in ("", NHWC)
        opset = opsets.get(domain(node)) if is_standard else attributes(node).get("opset")
        version = None if opset is None else since_version(onnx.NodeProto(op_type=node.op_type), opset)
        return cls(node_name(node), node.op_type, reason, detail, position, domain(node), version, call)

    @property
    def runner(self) -> str:
        """Who computes the node: "unpool", "onnxruntime", "reference" or "openvino"."""
        return self.reason.runner

    @property
    def operator_version(self) -> str:
        """Such as `MaxPool-12` or `Snake (unpool)`."""
        label = self.operator if self.version is None else f"{self.operator}-{self.version}"
        is_standard = self.domain == "" or (self.domain == DOMAIN and self.version is not None)
        return label if is_standard else f"{label} ({self.domain})"

    @property
    def kernel(self) -> str:
        """The kernel of unpool that computes it, such as "tiles"; empty where the model leaves sizes open."""
        return "" if self.call is None else self.call.kernel

    @property
    def text(self) -> str:
        """The reason for people, and the kernel."""
        texts = self.reason.value, self.detail, self.kernel and f"kernel {self.kernel}"
        return "; ".join(filter(None, texts))


class SessionPlan(tuple[NodePlacement, ...]):
    """The nodes of unpool's operators in a model, in its order; `print` shows a table."""

    __slots__ = ()

    @property
    def has_own_nodes(self) -> bool:
        """True if unpool computes a node."""
        return any(row.runner == "unpool" for row in self)

    def __str__(self) -> str:
        rows = [(row.node, row.operator_version, row.runner, row.text) for row in self]
        return table(("node", "operator", "runs on", "why"), rows)


class Placement:
    """Chooses node by node, by the types of values as far as they are known."""

    def __init__(
        self,
        nodes: Iterable[onnx.NodeProto],
        constants: Iterable[onnx.TensorProto],
        opsets: Mapping[str, int],
        semantics: Semantics,
        types: Types,
    ) -> None:
        self._semantics, self._types, self._opsets = semantics, types, opsets
        self._sizes = {tensor.name: tuple(tensor.dims) for tensor in constants}
        self._nodes = list(nodes)

    @cached_property
    def _blocked(self) -> set[str]:
        return _values_in_blocks(self._nodes)

    def is_own(self, node: onnx.NodeProto) -> bool:
        """True for a node of the three operators or of unpool's domain, and for an InstanceNormalization of float32.

        That of onnxruntime also ends the process at an empty input, which it refuses to make, but unpool does not.
        """
        if _is_normalization(node):
            return shapes.dtype(self._types.get(node.input[0])) in (np.float32, None)  # in sub-graphs no type is known
        return is_unpool_op(node) or node.domain == DOMAIN

    def reason(self, node: onnx.NodeProto) -> Reason:
        """Why a node of the three operators, or of unpool's domain, runs where it does."""
        if not self.is_own(node):
            return Reason.REPLACEMENT
        if _is_normalization(node):
            return Reason.FASTER
        if node.domain == DOMAIN:
            return Reason.FASTER if node.op_type == "ConvTranspose" else Reason.FUSED
        try:
            spec = spec_of(node, self._opsets, self._semantics)
        except UnpoolError as error:
            if self._semantics.exact:
                raise
            _log.warning("%s. The node is left to onnxruntime.", str(error).rstrip("."))
            return Reason.REFUSED
        if node.op_type == "MaxUnpool" or any(node.output[1:]):
            return Reason.MAX_UNPOOL if node.op_type == "MaxUnpool" else Reason.INDICES
        if self._semantics.exact:
            return Reason.EXACT
        dtype = shapes.dtype(self._types.get(node.input[0]))
        if domain(node) == NHWC or dtype not in (np.float32, None):
            return Reason.TYPE
        if isinstance(spec, MaxPoolSpec):
            return self._reason_of_pool(node, spec)
        return self._reason_of_conv_transpose(node, spec)

    def call(self, node: onnx.NodeProto, counts_in_output: Container[str]) -> NodeCall | None:
        """The node as unpool computes it; None where a size is unknown, or given by an input."""
        dtype, inputs = shapes.dtype(self._types.get(node.input[0])), list[TypedShape | None]()
        if dtype is None or (node.op_type == "MaxUnpool" and any(node.input[2:])):
            return None
        for place, name in enumerate(node.input):
            sizes = self._known_sizes(name) if name else ()
            if sizes is None:
                return None
            is_index = node.op_type == "MaxUnpool" and place == 1
            inputs.append((sizes, np.dtype(np.int64) if is_index else dtype) if name else None)
        settings = Settings(None, self._semantics.compat, self._semantics.index_space, self._semantics.exact)
        stated = {**attributes(node), **_stated_attributes(node, self._opsets, counts_in_output)}
        return NodeCall(node.op_type, stated, settings, tuple(inputs), len(list(filter(None, node.output))))

    def _reason_of_pool(self, node: onnx.NodeProto, spec: MaxPoolSpec) -> Reason:
        known = shapes.static_dims(self._types.get(node.input[0]))
        is_whole = known is not None and len(known) == BLOCKED_RANK and (known[1] or 1) % BLOCK == 0
        if (
            not is_whole
            or node.input[0] not in self._blocked
            or attributes(node).get("auto_pad", b"NOTSET") != b"NOTSET"
        ):
            return Reason.NOT_BLOCKED
        sizes = (*known[:2], *(size or 2**20 for size in known[2:])) if known else None
        return Reason.DIFFERS if pool_difference(spec, sizes) else Reason.BLOCKED

    def _reason_of_conv_transpose(self, node: onnx.NodeProto, spec: Spec) -> Reason:
        assert isinstance(spec, ConvTransposeSpec)
        x, w = (self._known_sizes(name) for name in node.input[:2])
        if not is_plain_conv_transpose(node, self._types):
            return Reason.DIFFERS
        if x is None or w is None:
            return Reason.UNKNOWN_SHAPE
        try:
            return Reason.FASTER if is_faster_in_unpool(spec, x, w) else Reason.SLOWER
        except UnpoolError:
            return Reason.UNKNOWN_SHAPE

    def _known_sizes(self, name: str) -> tuple[int, ...] | None:
        if name in self._sizes:
            return self._sizes[name]
        known = shapes.static_dims(self._types.get(name))
        sizes = tuple(size for size in known or () if size is not None)
        return sizes if known is not None and len(sizes) == len(known) else None


def make_plan(
    model: onnx.ModelProto,
    semantics: Semantics,
    details: Mapping[str, str],
    types: Types | None = None,
    *,
    has_other_provider: bool = False,
    counts_in_output: Container[str] = (),
) -> SessionPlan:
    """The plan of a model; `details` has texts by first output, and types of None are inferred."""
    nodes, graph = list(with_subgraph_nodes(model.graph.node)), model.graph
    if not details and not any(
        is_unpool_op(node) or node.domain == DOMAIN or _is_normalization(node) for node in nodes
    ):
        return SessionPlan()
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    placement = Placement(graph.node, graph.initializer, opsets, semantics, _types(model) if types is None else types)

    def reason(node: onnx.NodeProto) -> Reason:
        found = placement.reason(node)
        is_left = has_other_provider and found not in (Reason.MAX_UNPOOL, Reason.EXACT, Reason.REFUSED)
        return Reason.PROVIDER if is_left and found is not Reason.REPLACEMENT else found

    def row(position: int, node: onnx.NodeProto) -> NodePlacement:
        found = reason(node)
        call = placement.call(node, counts_in_output) if found.runner == "unpool" else None
        return NodePlacement.of_node(node, opsets, found, details.get(node.output[0], ""), position, call)

    return SessionPlan(
        row(position, node)
        for position, node in enumerate(nodes)
        if placement.is_own(node) or any(name in details for name in node.output[:1])
    )


def place(model: onnx.ModelProto, plan: SessionPlan, counts_in_output: Container[str]) -> None:
    """Make the nodes that unpool computes, by the plan of this model, nodes of its own domain; the model is changed.

    `counts_in_output` are MaxUnpools, by output, whose indices count in the output, however the model is read.
    """
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    nodes, has_sizes = list(with_subgraph_nodes(model.graph.node)), False
    for row in plan:
        node = nodes[row.position]
        if row.runner != "unpool":
            continue
        while node.input[-1] == "":  # onnxruntime refuses it among inputs of any number
            node.input.pop()
        if is_unpool_op(node) and not (node.op_type == "MaxUnpool" and len(node.input) > 2):
            has_sizes = True  # which the library infers
        if node.domain == DOMAIN:
            continue
        given = _stated_attributes(node, opsets, counts_in_output)
        node.domain = DOMAIN
        node.attribute.extend(starmap(onnx.helper.make_attribute, given.items()))
    if DOMAIN not in opsets:
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, VERSION))
    if has_sizes:
        _drop_sizes(model.graph, nodes)


def _stated_attributes(
    node: onnx.NodeProto, opsets: Mapping[str, int], counts_in_output: Container[str]
) -> dict[str, Any]:
    """The attributes that a node of the model gets in unpool's domain; none if it is there already."""
    if node.domain == DOMAIN:
        return {}
    stated: dict[str, Any] = {"opset": opsets[domain(node)]} if is_unpool_op(node) else {}
    if domain(node) == NHWC:  # whose versions end earlier than those of the standard
        stated |= {
            "opset": contract.version_at(node.op_type, NHWC, opsets[NHWC]).since_version,
            "channels_last": 1,
        }
    if node.output[0] in counts_in_output:
        stated |= {"compat": "spec", "index_space": "output"}
    return stated


def _drop_sizes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Leave sizes to the library and to onnxruntime; those of the inputs and outputs of the model stay.

    Those that onnx's inference has written into a file may be wrong, also behind a node of unpool. Ranks stay: a Scan
    does not run without them.
    """
    inner = [subgraph for node in nodes for _, subgraph in subgraphs(node)]
    ends = chain.from_iterable(each.output for each in inner)
    for value in chain(*(each.value_info for each in (graph, *inner)), ends):
        for axis in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            axis.Clear()


def _is_normalization(node: onnx.NodeProto) -> bool:
    return node.op_type == "InstanceNormalization" and domain(node) == ""


def _types(model: onnx.ModelProto) -> Types:
    """The types of values as onnx infers them; none where it cannot."""
    try:
        graph = infer_by_onnx(strip_initializers(model)).graph
    except Exception as error:
        _log.info("model: onnx cannot infer its types: %s", error)
        return {}
    return {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}


def _values_in_blocks(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The values that onnxruntime may have in blocks: results of Convs, and of some operators behind them."""
    values: set[str] = set()
    for node in nodes:
        if domain(node) == "" and (
            node.op_type == "Conv" or (node.op_type in _KEEPS_BLOCKS and not values.isdisjoint(node.input))
        ):
            values.add(node.output[0])
    return values
