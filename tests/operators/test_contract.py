"""The versions of the contract are those of the standard, and the channels-last versions follow from them."""

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import pytest

from unpool.operators import contract
from unpool.operators.contract import AttributeType, OperatorVersion

ONNX_VERSIONS = [version for version in contract.VERSIONS if version.domain == ""]
CHANNELS_LAST = [version for version in contract.VERSIONS if version.domain == contract.NHWC]
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


def label(version: OperatorVersion) -> str:
    return version.label


def test_onnx_has_no_version_that_we_lack() -> None:
    """A new version of one of the operators in onnx fails here, so that it is read and added."""
    assert {(version.operator, version.since_version) for version in ONNX_VERSIONS} == set(SCHEMAS)
    assert len(ONNX_VERSIONS) == 12


@pytest.mark.parametrize("version", ONNX_VERSIONS, ids=label)
def test_attributes(version: OperatorVersion) -> None:
    """Names and types are the schema's, and so is which of them are required."""
    schema = SCHEMAS[version.operator, version.since_version]
    assert dict(version.attributes) == {name: ATTRIBUTE_TYPES[a.type] for name, a in schema.attributes.items()}
    assert set(version.required) == {name for name, a in schema.attributes.items() if a.required}


@pytest.mark.parametrize("version", ONNX_VERSIONS, ids=label)
def test_inputs_and_outputs(version: OperatorVersion) -> None:
    """How many inputs and outputs there are, and at least have to be."""
    schema = SCHEMAS[version.operator, version.since_version]
    assert (version.min_inputs, version.max_inputs) == (schema.min_input, schema.max_input)
    assert (version.min_outputs, version.max_outputs) == (schema.min_output, schema.max_output)


@pytest.mark.parametrize("version", ONNX_VERSIONS, ids=label)
def test_types(version: OperatorVersion) -> None:
    """Value types are those of X; every other parameter has X's type or is int64."""
    schema = SCHEMAS[version.operator, version.since_version]
    first = schema.inputs[0].type_str
    assert sorted(version.value_types) == sorted(allowed(schema, first))
    for parameter in (*schema.inputs, *schema.outputs):
        assert parameter.type_str == first or allowed(schema, parameter.type_str) == {"int64"}


def test_nhwc_versions() -> None:
    """com.ms.internal.nhwc has nine versions, none of version 22."""
    found = {name: [r.since_version for r in CHANNELS_LAST if r.operator == name] for name in contract.OPERATORS}
    assert found == NHWC_VERSIONS
    assert len(contract.VERSIONS) == 21


@pytest.mark.parametrize("version", CHANNELS_LAST, ids=label)
def test_nhwc_versions_are_those_of_onnx_with_activations(version: OperatorVersion) -> None:
    """Everything but the two activation attributes is the ONNX version's of the same version."""
    name, since = version.operator, version.since_version
    (standard,) = [other for other in ONNX_VERSIONS if (other.operator, other.since_version) == (name, since)]
    extra = {"activation": AttributeType.STRING, "activation_params": AttributeType.FLOATS}
    assert dict(version.attributes) == {**standard.attributes, **extra}
    fields = ("required", "value_types", "min_inputs", "max_inputs", "min_outputs", "max_outputs", "switches")
    assert [getattr(version, name) for name in fields] == [getattr(standard, name) for name in fields]


@pytest.mark.parametrize("domain", contract.DOMAINS)
@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_an_opset_selects_the_newest_version_below_it(operator: str, domain: str) -> None:
    """For every opset from 1 on, the version is the newest that is not above it."""
    versions = [r.since_version for r in contract.VERSIONS if (r.operator, r.domain) == (operator, domain)]
    for opset in range(min(versions), 30):
        assert contract.version_at(operator, domain, opset).since_version == max(v for v in versions if v <= opset)


@pytest.mark.parametrize("operator", contract.OPERATORS)
def test_onnx_resolves_opsets_alike(operator: str) -> None:
    """Onnx picks the same version for each of its opsets."""
    first = min(version for name, version in SCHEMAS if name == operator)
    assert onnx.defs.onnx_opset_version() <= contract.NEWEST_OPSET
    for opset in range(first, onnx.defs.onnx_opset_version() + 1):
        schema = onnx.defs.get_schema(operator, opset, "")
        assert contract.version_at(operator, "", opset).since_version == schema.since_version
