"""Every version of the three operators as models: single nodes, nodes in a graph, and `onnx_backend.run_node`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unpool
from tests.cases.record import Case
from tests.cases.versions import ROWS, Row, combinations, expected_of, name_of, over_types
from tests.support.runners import (
    INPUT_NAMES,
    NHWC_DOMAIN,
    Outputs,
    assert_outputs,
    feeds_of,
    node_of,
    run_session,
)
from unpool.runtime import onnx_backend

rows = pytest.mark.parametrize("row", ROWS, ids=name_of)

PARTS = 7
"""Of all combinations of a row; no attribute has a multiple of this number of values, so each part has them all."""


@cache
def judged(row: Row) -> tuple[tuple[Case, Outputs | None], ...]:
    """The combinations of a row with what the oracle says of each."""
    return tuple((case, expected_of(case)) for case in (*combinations(row), *over_types(row)))


def run_node(case: Case) -> Outputs:
    """onnx.backend's run_node, in either domain."""
    return tuple(onnx_backend.run_node(node_of(case), list(feeds_of(case).values()), opset_version=case.opset))


@pytest.mark.sample(17)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", [run_session, run_node], ids=["session", "run_node"])
@rows
def test_single_nodes(row, run, part):
    """Every combination of attributes that the standard has gives the oracle's outputs."""
    for case, expected in judged(row)[part::PARTS]:
        if expected is not None:
            assert_outputs(case, run(case), expected)


def test_combinations_are_admitted_and_refused():
    """Each row has combinations that run, most of them, and 21 rows there are."""
    assert len(ROWS) == 21
    for row in ROWS:
        found = Counter(expected is not None for _, expected in judged(row))
        assert found[True] > max(10 if row[0] != "MaxUnpool" else 3, found[False]), row


@pytest.mark.sample(9)
@pytest.mark.filterwarnings("ignore::unpool.onnxruntime.errors.FallbackWarning")
@rows
def test_nodes_in_a_graph(row):
    """Each combination between two other nodes of the model's opset gives what it gives alone."""
    by_type: dict[np.dtype, list[Case]] = {}
    for case, expected in judged(row):
        if expected is not None and case.opset == row[1]:
            by_type.setdefault(case.inputs[0].dtype, []).append(case)
    for cases in by_type.values():
        check_branches(cases)


def check_branches(cases: Sequence[Case]) -> None:
    """One model in which every case is a branch: other node, ours, other node."""
    other = np.array if cases[0].inputs[0].dtype.kind == "u" else np.negative
    session = unpool.InferenceSession(branches(cases), exact=True)
    made = session.run(
        None, {f"{name}{k}": value for k, case in enumerate(cases) for name, value in feeds_of(case).items()}
    )
    position = 0
    for case in cases:
        x, *rest = case.inputs
        first, *indices = expected_of(replace(case, inputs=(other(x), *rest)))
        got = made[position : position + case.outputs]
        assert_outputs(case, tuple(got), (other(first), *indices))
        position += case.outputs
    ours = [record for record in session.plan if record.runner == "unpool"]
    assert [record.version for record in ours] == [cases[0].opset] * len(cases)


def branches(cases: Sequence[Case]) -> onnx.ModelProto:
    """The model of `check_branches`; its k-th branch has k behind all names."""
    nodes, inputs, outputs = [], [], []
    around = "Identity" if cases[0].inputs[0].dtype.kind == "u" else "Neg"
    for k, case in enumerate(cases):
        node = node_of(case)
        for name, value in feeds_of(case).items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            inputs.append(helper.make_tensor_value_info(f"{name}{k}", kind, value.shape))
        node.input[:] = [f"{name}{k}" if name else "" for name in node.input]
        node.output[:] = [f"{name}{k}" for name in node.output]
        nodes.append(helper.make_node(around, [f"{INPUT_NAMES[case.operator][0]}{k}"], [f"before{k}"]))
        node.input[0] = f"before{k}"
        nodes.extend([node, helper.make_node(around, [node.output[0]], [f"after{k}"])])
        kind = helper.np_dtype_to_tensor_dtype(case.inputs[0].dtype)
        outputs.append(helper.make_tensor_value_info(f"after{k}", kind, None))
        if case.outputs == 2:
            outputs.append(helper.make_tensor_value_info(f"Indices{k}", TensorProto.INT64, None))
    imports = {"": cases[0].opset} if cases[0].layout == "NCHW" else {"": 17, NHWC_DOMAIN: cases[0].opset}
    graph = helper.make_graph(nodes, "branches", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in imports.items()], ir_version=8)
