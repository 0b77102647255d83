"""From the name of an operator and its attributes to its spec."""

from unpool.operators import attributes, contract
from unpool.operators.attributes import Attributes, Settings
from unpool.operators.contract import OperatorVersion
from unpool.operators.registry import OPERATORS
from unpool.operators.registry import Spec as Spec


def spec(
    operator: str,
    attrs: Attributes,
    *,
    domain: str = "",
    opset: int | None = None,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
) -> Spec:
    """The checked attributes of one node or call; in `attrs`, None means not set.

    `opset` is that of the domain, None for the newest semantics. `compat` and `index_space` are those of `max_unpool`;
    `exact` allows a ConvTranspose no sums before its products.

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
    return from_version(version, attrs, Settings(opset, compat, index_space, exact))


def from_version(version: OperatorVersion, attrs: Attributes, settings: Settings) -> Spec:
    """As `spec`, for a version that is already chosen."""
    attributes.choice(version, "compat", settings.compat, attributes.COMPAT)
    return OPERATORS[version.operator].resolve(version, attrs, settings)
