"""Runs every rule of `unpool check` over a model."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain

from unpool.errors import UnpoolError
from unpool.graph.dynamic_dims import DimFlow
from unpool.graph.errors import model_errors
from unpool.graph.load import ModelSource, load_for_command
from unpool.graph.nodes import node_name, with_subgraph_nodes
from unpool.graph.shape_inference import iter_subgraphs
from unpool.graph.shapes import check_size_names
from unpool.operators.semantics import Semantics
from unpool.passes.fuse_unpool import fuse_unpool_patterns
from unpool.runtime.lint.rules import FIX, Finding, Findings, index_findings, torch_findings, window_findings
from unpool.runtime.rewrite.open_model import EditableModel, open_model
from unpool.runtime.rewrite.repair_indices import unpoolings


def lint(source: ModelSource, *, sizes: Mapping[str, int] | None = None) -> Findings:
    """The nodes of a model that runtimes interpret differently, or that are probably wrong. The model is not run.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        sizes: by the name of a dynamic dimension of the inputs, its size; some rules need them.

    Returns:
        a record with a finding for each node and rule, which `print` shows.

    Raises:
        UnpoolError: the model cannot be read, violates the contract in every reading, or has no dimension of that name.

    >>> from onnx import parser
    >>> findings = lint(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, 5] x) => (float[1, 1, n] y) {
    ...         y = MaxPool <auto_pad = "VALID", ceil_mode = 1, kernel_shape = [2], strides = [2]> (x)
    ...     }'''))
    >>> [(finding.operator, finding.rule) for finding in findings]
    [('MaxPool', '3.3')]
    """
    with model_errors(source):
        model = load_for_command(source)
        if sizes:
            model = deepcopy(model)
            dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
            check_size_names(sizes, [dim.dim_param for dim in dims])
            for dim in dims:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]
        semantics = Semantics()
        try:
            editable = open_model(model, semantics)
        except UnpoolError as error:  # the standard refuses it; ONNX Runtime may not
            semantics = Semantics("ort")
            try:
                editable = open_model(model, semantics)
            except UnpoolError:
                raise error from None
        return Findings(_findings(editable, semantics))


def _findings(editable: EditableModel, semantics: Semantics) -> Iterator[Finding]:
    graph, types = editable.graph, editable.inference.types
    flow = DimFlow(graph, types)
    for node in with_subgraph_nodes(graph.nodes):
        yield from torch_findings(node)
    for unpooling in unpoolings(flow):
        yield from index_findings(flow, unpooling)
    for scope in iter_subgraphs(graph, editable.inference):
        inner = DimFlow(scope.graph, scope.types)
        for unpooling in unpoolings(inner):
            if unpooling.node.output[0] not in scope.own:
                continue
            for finding in index_findings(inner, unpooling):
                repair = f"{FIX}, once the node is moved out of its If, Loop or Scan"  # no command changes a subgraph
                yield replace(finding, repair=repair) if finding.repair == FIX else finding
    for resolved in editable.inference.resolved:
        yield from window_findings(editable, resolved)
    operators = {node_name(node): node.op_type for node in graph.nodes}
    for edit in chain.from_iterable(fuse_unpool_patterns(graph, types, semantics).rounds):
        change = edit.change
        affected = "every runtime: more nodes and memory than needed"
        affected += "; tools that look for MaxUnpool find none" if edit.fused_output else ""
        problem = f"{change.before}: this stands for {change.after}"
        yield Finding(change.node, operators[change.node], "7", problem, affected, FIX)
