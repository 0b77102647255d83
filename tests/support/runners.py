"""Ways to run a case (oracle, public function, session, onnx backend), and how outputs compare."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper

import unpool
from tests import oracle
from tests.cases.record import Case

FUNCTIONS = {"MaxPool": "max_pool", "MaxUnpool": "max_unpool", "ConvTranspose": "conv_transpose"}
INPUT_NAMES = {"MaxPool": ("X",), "MaxUnpool": ("X", "I", "output_shape"), "ConvTranspose": ("X", "W", "B")}
NHWC_DOMAIN = "com.ms.internal.nhwc"
NEWEST_OPSET = 22
Outputs = tuple[np.ndarray, ...]


def keywords(case: Case) -> dict[str, Any]:
    """The keyword arguments that the oracle and the public function share."""
    given = dict(case.attributes, layout=case.layout, compat=case.compat)
    if case.operator == "MaxUnpool":
        given["index_space"] = case.index_space
    if case.operator == "MaxPool":
        given["return_indices"] = case.outputs == 2
    return given


def as_tuple(result: Any) -> Outputs:
    """A lone output as a tuple of one."""
    return result if isinstance(result, tuple) else (result,)


def run_oracle(case: Case) -> Outputs:
    version = None if case.opset is None else oracle.row_version(case.operator, case.opset, case.layout)
    function = getattr(oracle, FUNCTIONS[case.operator])
    return as_tuple(function(*case.inputs, **keywords(case), version=version))


def run_function(case: Case, threads: int | None = None) -> Outputs:
    function = getattr(unpool, FUNCTIONS[case.operator])
    return as_tuple(function(*case.inputs, **keywords(case), opset=case.opset, threads=threads))


def attribute(name: str, value: Any) -> onnx.AttributeProto:
    """One attribute; an empty list keeps its type."""
    kind = None
    if isinstance(value, list):
        floats = name == "activation_params"
        kind = onnx.AttributeProto.FLOATS if floats else onnx.AttributeProto.INTS
    return onnx.helper.make_attribute(name, value, attr_type=kind)


def node_of(case: Case) -> onnx.NodeProto:
    """The case as one node; inputs that are left out in the middle have an empty name."""
    names = [
        name if value is not None else "" for name, value in zip(INPUT_NAMES[case.operator], case.inputs, strict=False)
    ]
    while names and not names[-1]:
        names.pop()
    domain = NHWC_DOMAIN if case.layout == "NHWC" else ""
    node = onnx.helper.make_node(case.operator, names, ["Y", "Indices"][: case.outputs], domain=domain)
    node.attribute.extend(attribute(name, value) for name, value in case.attributes.items())
    return node


def model_of(case: Case) -> onnx.ModelProto:
    """A model of the single node, shapes of the inputs fixed, shapes of the outputs left open."""
    node = node_of(case)
    feeds = feeds_of(case)
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    value_type = onnx.helper.np_dtype_to_tensor_dtype(case.inputs[0].dtype)
    types = (value_type, onnx.TensorProto.INT64)
    outputs = [
        onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in zip(node.output, types, strict=False)
    ]
    imports = [onnx.helper.make_opsetid(node.domain, case.opset or NEWEST_OPSET)]
    if node.domain:
        imports.append(onnx.helper.make_opsetid("", NEWEST_OPSET))
    graph = onnx.helper.make_graph([node], "case", inputs, outputs)
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds_of(case: Case) -> dict[str, np.ndarray]:
    """Input name to array, without the inputs left out."""
    names = INPUT_NAMES[case.operator]
    return {name: value for name, value in zip(names, case.inputs, strict=False) if value is not None}


def run_session(case: Case) -> Outputs:
    session = unpool.InferenceSession(
        model_of(case).SerializeToString(), compat=case.compat, index_space=case.index_space
    )
    return tuple(session.run(None, feeds_of(case)))


def run_backend_node(case: Case) -> Outputs:
    from unpool.runtime import onnx_backend

    inputs = list(feeds_of(case).values())
    return tuple(onnx_backend.run_node(node_of(case), inputs, opset_version=case.opset or NEWEST_OPSET))


def is_everything(case: Case) -> bool:
    return True


def is_model(case: Case) -> bool:
    """Whether a model can say the case: activations and bfloat16 belong to one domain each."""
    values = case.inputs[0]
    if case.layout == "NHWC":
        return case.opset is not None or values.dtype != ml_dtypes.bfloat16
    return "activation" not in case.attributes and "activation_params" not in case.attributes


def is_explicit_model(case: Case) -> bool:
    """Whether a model can say the case: not a default that is given to a version without the attribute."""
    since = {"storage_order": 8, "ceil_mode": 10}
    return is_model(case) and all((case.opset or NEWEST_OPSET) >= since.get(name, 1) for name in case.attributes)


def is_backend_node(case: Case) -> bool:
    """Whether run_node can say the case: it has no compat, no index_space, no domain versions."""
    return is_model(case) and case.layout == "NCHW" and case.compat == "spec" and case.index_space == "auto"


@dataclass(frozen=True)
class Runner:
    """A way to run a case, and which cases it can say."""

    name: str
    run: Callable[[Case], Outputs]
    can_express: Callable[[Case], bool]


ORACLE = Runner("oracle", run_oracle, is_everything)
FUNCTION = Runner("function", run_function, is_everything)
SESSION = Runner("session", run_session, is_model)
BACKEND = Runner("backend", run_backend_node, is_backend_node)
RUNNERS = (ORACLE, FUNCTION, SESSION, BACKEND)


def bits(array: np.ndarray) -> bytes:
    """The elements in row-major order, byte for byte."""
    return np.ascontiguousarray(array).tobytes()


def assert_output(got: np.ndarray, expected: np.ndarray, tolerance: float, exact_bits: bool, where: str) -> None:
    """Same type, shape and values: by bits, by value with NaN equal to NaN, or within a tolerance.

    The tolerance is relative to the element or to the largest finite element, whichever is larger.
    """
    assert isinstance(got, np.ndarray), f"{where}: {type(got)}"
    assert got.dtype == expected.dtype, f"{where}: {got.dtype} for {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: {got.shape} for {expected.shape}"
    if exact_bits:
        assert bits(got) == bits(expected), f"{where}:\n{got}\nfor\n{expected}"
        return
    wide, right = got.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(right[np.isfinite(right)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(wide, right, rtol=tolerance, atol=tolerance * scale, err_msg=where)


def assert_outputs(case: Case, got: Outputs, expected: Outputs) -> None:
    """Every output of the case; MaxPool and MaxUnpool without activation by bits."""
    assert len(got) == len(expected), f"{case.name}: {len(got)} outputs for {len(expected)}"
    copies = case.operator != "ConvTranspose" and "activation" not in case.attributes
    assert_output(got[0], expected[0], case.tolerance, copies, f"{case.name} output 0")
    if len(expected) == 2:
        assert_output(got[1], expected[1], 0.0, True, f"{case.name} Indices")
