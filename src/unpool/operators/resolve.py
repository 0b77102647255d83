"""From the name of an operator and its attributes to its spec."""

from typing import TypeAlias

from unpool.operators import attributes, contract, conv_transpose, max_pool, max_unpool
from unpool.operators.attributes import Attributes
from unpool.operators.contract import OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec

Spec: TypeAlias = MaxPoolSpec | MaxUnpoolSpec | ConvTransposeSpec


def spec(
    operator: str,
    attrs: Attributes,
    *,
    domain: str = "",
    opset: int | None = None,
    compat: str = "spec",
    index_space: str = "auto",
) -> Spec:
    """The checked attributes of one node or call; in `attrs`, None means not set.

    `opset` is that of the domain, None for the newest semantics. `compat` and `index_space` are those of `max_unpool`.

    Raises:
        UnsupportedError: no such operator, version or attribute in this version.
        UnpoolError: an attribute is missing, ill-typed or out of range.

    >>> spec("MaxPool", {"kernel_shape": [2, 2]}, opset=13).version.label
    'MaxPool-12'
    """
    if opset is None:
        version = contract.newest(operator, channels_last=domain == contract.NHWC)
    else:
        version = contract.version_at(operator, domain, opset)
    return from_row(version, attrs, compat=compat, index_space=index_space)


def from_row(version: OperatorVersion, attrs: Attributes, *, compat: str, index_space: str) -> Spec:
    """As `spec`, for a version that is already chosen."""
    attributes.choice(version, "compat", compat, attributes.COMPAT)
    if version.operator == "MaxPool":
        return max_pool.resolve(version, attrs, compat)
    if version.operator == "MaxUnpool":
        return max_unpool.resolve(version, attrs, compat, index_space)
    return conv_transpose.resolve(version, attrs, compat)
