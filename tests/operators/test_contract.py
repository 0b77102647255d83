"""The rows of the contract are those of the standard, and the channels-last rows follow from them."""

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import pytest

from unpool.operators import contract
from unpool.operators.contract import AttributeType, Row

ONNX_ROWS = [row for row in contract.ROWS if row.domain == ""]
NHWC_ROWS = [row for row in contract.ROWS if row.domain == contract.NHWC]
NHWC_VERSIONS = {"MaxPool": [1, 8, 10, 11, 12], "MaxUnpool": [9, 11], "ConvTranspose": [1, 11]}
ATTRIBUTE_TYPES = {
    onnx.defs.OpSchema.AttrType.INT: AttributeType.INT,
    onnx.defs.OpSchema.AttrType.INTS: AttributeType.INTS,
    onnx.defs.OpSchema.AttrType.STRING: AttributeType.STRING,
    onnx.defs.OpSchema.AttrType.FLOATS: AttributeType.FLOATS,
}


def schemas() -> dict[tuple[str, int], onnx.defs.OpSchema]:
    """The schemas of the installed onnx, by operator and version."""
    return {
        (schema.name, schema.since_version): schema
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name in contract.OPERATORS
    }


SCHEMAS = schemas()


def numpy_name(tensor: str) -> str:
    """tensor(float) -> float32."""
    element = tensor.removeprefix("tensor(").removesuffix(")")
    proto = {"float": "FLOAT", "double": "DOUBLE"}.get(element, element.upper())
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(proto))).name


def allowed(schema: onnx.defs.OpSchema, type_string: str) -> set[str]:
    """NumPy names behind a formal parameter's type."""
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return {numpy_name(tensor) for tensor in constraints.get(type_string, [type_string])}


def label(row: Row) -> str:
    return row.label


def test_onnx_has_no_version_that_we_lack() -> None:
    """A new version of one of the operators in onnx fails here, so that it is read and added."""
    assert {(row.operator, row.since_version) for row in ONNX_ROWS} == set(SCHEMAS)
    assert len(ONNX_ROWS) == 12


@pytest.mark.parametrize("row", ONNX_ROWS, ids=label)
def test_attributes(row: Row) -> None:
    """Names and types are the schema's, and so is which of them are required."""
    schema = SCHEMAS[row.operator, row.since_version]
    assert dict(row.attributes) == {name: ATTRIBUTE_TYPES[a.type] for name, a in schema.attributes.items()}
    assert set(row.required) == {name for name, a in schema.attributes.items() if a.required}


@pytest.mark.parametrize("row", ONNX_ROWS, ids=label)
def test_inputs_and_outputs(row: Row) -> None:
    """How many inputs and outputs there are, and at least have to be."""
    schema = SCHEMAS[row.operator, row.since_version]
    assert (row.min_inputs, row.max_inputs) == (schema.min_input, schema.max_input)
    assert (row.min_outputs, row.max_outputs) == (schema.min_output, schema.max_output)


@pytest.mark.parametrize("row", ONNX_ROWS, ids=label)
def test_types(row: Row) -> None:
    """Value types are those of X; every other parameter has X's type or is int64."""
    schema = SCHEMAS[row.operator, row.since_version]
    first = schema.inputs[0].type_str
    assert sorted(row.value_types) == sorted(allowed(schema, first))
    for parameter in (*schema.inputs, *schema.outputs):
        assert parameter.type_str == first or allowed(schema, parameter.type_str) == {"int64"}


def test_nhwc_versions() -> None:
    """com.ms.internal.nhwc has nine rows, none of version 22."""
    found = {name: [r.since_version for r in NHWC_ROWS if r.operator == name] for name in contract.OPERATORS}
    assert found == NHWC_VERSIONS
    assert len(contract.ROWS) == 21


@pytest.mark.parametrize("row", NHWC_ROWS, ids=label)
def test_nhwc_rows_are_the_onnx_rows_with_activations(row: Row) -> None:
    """Everything but the two activation attributes is the ONNX row's of the same version."""
    (onnx_row,) = [r for r in ONNX_ROWS if (r.operator, r.since_version) == (row.operator, row.since_version)]
    extra = {"activation": AttributeType.STRING, "activation_params": AttributeType.FLOATS}
    assert dict(row.attributes) == {**onnx_row.attributes, **extra}
    fields = ("required", "value_types", "min_inputs", "max_inputs", "min_outputs", "max_outputs", "switches")
    assert [getattr(row, name) for name in fields] == [getattr(onnx_row, name) for name in fields]


@pytest.mark.parametrize("domain", contract.DOMAINS)
@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_an_opset_selects_the_newest_version_below_it(operator: str, domain: str) -> None:
    """For every opset from 1 on, the row is the newest that is not above it."""
    versions = [r.since_version for r in contract.ROWS if (r.operator, r.domain) == (operator, domain)]
    for opset in range(min(versions), 30):
        assert contract.row(operator, domain, opset).since_version == max(v for v in versions if v <= opset)


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_onnx_resolves_opsets_alike(operator: str) -> None:
    """Onnx picks the same version for each of its opsets."""
    first = min(version for name, version in SCHEMAS if name == operator)
    assert onnx.defs.onnx_opset_version() <= contract.NEWEST_OPSET
    for opset in range(first, onnx.defs.onnx_opset_version() + 1):
        schema = onnx.defs.get_schema(operator, opset, "")
        assert contract.row(operator, "", opset).since_version == schema.since_version
