"""Our nodes with their contract: every attribute, input and output is checked when the model loads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.errors import ModelError, UnpoolError, UnsupportedError
from unpool.operators import contract, resolve, tensors
from unpool.operators.contract import Row
from unpool.operators.resolve import Spec
from unpool.runtime import shapes
from unpool.runtime.nodes import attributes, domain, inner_nodes, is_foreign_nhwc, is_ours, label
from unpool.runtime.shapes import Types


@dataclass(frozen=True)
class Meaning:
    """How the three operators are read: the session's `compat` and `index_space`."""

    compat: str = "spec"
    index_space: str = "auto"


def bind(node: onnx.NodeProto, opsets: Mapping[str, int], meaning: Meaning) -> Spec:
    """The spec of one of our nodes.

    Raises:
        ModelError: the model does not import the node's domain, or the node has too few or too many inputs or outputs.
        UnsupportedError: this version has no such operator, attribute or output.
        UnpoolError: an attribute breaks the contract.
    """
    where = domain(node)
    if where not in opsets:
        raise ModelError(
            f"node {label(node)!r}: expected the model to import domain {where or 'ai.onnx'!r}, "
            f"got imports of {', '.join(map(repr, opsets)) or 'none'}. Add an opset_import."
        )
    row = named(node, lambda: contract.row(node.op_type, where, opsets[where]))
    _check_arity(node, row)
    return named(
        node,
        lambda: resolve.from_row(
            row, attributes(node), compat=meaning.compat, index_space=meaning.index_space
        ),
    )
