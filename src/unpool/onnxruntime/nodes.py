"""Nodes of the domain `unpool` outside of a session: their schemas for onnx, and their outputs from arrays."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unpool import execute
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.operators import unpool_domain
from unpool.operators.contract import AttributeType
from unpool.operators.unpool_domain import DOMAIN, OPERATORS, VERSION, Settings

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.defs import OpSchema

_TENSORS = {"float32": "float", "float64": "double"}  # as onnx names types, where the names differ


def schemas() -> list["OpSchema"]:
    """The schemas of all operators of the domain, for `onnx.defs.register_schema`.

    With them, `onnx.checker.check_model(model, check_custom_domain=True)` checks nodes of the domain.

    >>> [schema.name for schema in schemas()]  # doctest: +ELLIPSIS
    ['MaxPool', 'MaxUnpool', 'ConvTranspose', 'Conv', 'Snake', ...]
    """
    from onnx.defs import OpSchema

    kinds = {
        AttributeType.INT: OpSchema.AttrType.INT,
        AttributeType.INTS: OpSchema.AttrType.INTS,
        AttributeType.FLOAT: OpSchema.AttrType.FLOAT,
        AttributeType.FLOATS: OpSchema.AttrType.FLOATS,
        AttributeType.STRING: OpSchema.AttrType.STRING,
    }

    def parameters(tensors: Sequence[unpool_domain.Tensor]) -> list[Any]:
        option = OpSchema.FormalParameterOption
        return [
            OpSchema.FormalParameter(
                each.name, "T" if each.type == "T" else f"tensor({each.type})", each.text,
                param_option=option.Optional if each.is_optional else option.Single,
            )
            for each in tensors
        ]  # fmt: skip

    return [
        OpSchema(
            operator.name, DOMAIN, VERSION, operator.text,
            inputs=parameters(operator.inputs), outputs=parameters(operator.outputs),
            type_constraints=[
                ("T", [f"tensor({_TENSORS.get(name, name)})" for name in operator.version.value_types], "")
            ],
            attributes=[
                OpSchema.Attribute(name, kinds[kind], "", required=name in operator.version.required)
                for name, kind in operator.attributes.items()
            ],
        )
        for operator in OPERATORS.values()
    ]  # fmt: skip


def evaluate(
    node: "NodeProto",
    inputs: Sequence[AnyArray | None],
    *,
    opset: int | None = None,
    exact: bool = False,
    compat: str = "spec",
    index_space: str = "auto",
    constant_weights: bool = True,
    threads: int | None = None,
) -> tuple[AnyArray, ...]:
    """The outputs of a node of the domain `unpool`, computed from arrays.

    A compiled node, which has plans in place of attributes, cannot be evaluated.

    Args:
        node: MaxPool, MaxUnpool, ConvTranspose, Conv, Snake or InstanceNormalization of the domain.
        inputs: arrays in the order of the node's inputs; None for an omitted input.
        opset: used if the node has no attribute of that name; so are `exact`, `compat` and `index_space`.
        exact: as in `register`.
        compat: the same.
        index_space: the same.
        constant_weights: True gives the bits of a session whose weights are initializers, for which Conv and
            ConvTranspose have more algorithms.
        threads: maximum number of threads; None for all cores.

    Returns:
        the arrays of the node's outputs, in their order.

    Raises:
        UnpoolError: the node is of another domain, or its attributes or inputs do not fit.

    >>> import numpy as np
    >>> import onnx
    >>> node = onnx.helper.make_node("Snake", ["x", "factors"], ["y"], domain="unpool")
    >>> evaluate(node, [np.float32([[0, 1]]), np.float32([[1, 1], [2, 0]])])[0].tolist()
    [[0.0, 1.0]]
    """
    import onnx

    if node.domain != DOMAIN or node.op_type not in OPERATORS:
        raise UnpoolError(
            f"evaluate: expected a node of the domain {DOMAIN!r}, one of {', '.join(OPERATORS)}; got {node.op_type} of "
            f"the domain {node.domain!r}."
        )
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    spec = unpool_domain.spec(node.op_type, given, Settings(opset, compat, index_space, exact))
    outputs = max((number for number, name in enumerate(node.output) if name), default=0) + 1
    arrays = list(inputs)
    if constant_weights and len(arrays) > 1 and arrays[1] is not None:
        spec, arrays[1] = execute.bind_weights(spec, arrays[1])
    return execute.run(spec, arrays, outputs=outputs, threads=threads)
