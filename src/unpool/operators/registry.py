"""The three operators, each as one record: all that is particular to it, apart from its shapes and its kernels.

`execute` and `execute.gpu` have a class of prepared calls for each type of spec that a record resolves to.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from unpool.operators import contract, conv_transpose, max_pool, max_unpool
from unpool.operators.attributes import Attributes, Settings
from unpool.operators.contract import AttributeType, OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec

Spec: TypeAlias = MaxPoolSpec | MaxUnpoolSpec | ConvTransposeSpec


class Operator(NamedTuple):
    """One operator of the standard, in all its versions."""

    versions: tuple[OperatorVersion, ...]
    """Those of the standard, oldest first; each names its attributes, inputs and outputs."""
    resolve: Callable[[OperatorVersion, Attributes, Settings], Spec]
    """From attributes, None for those that are not set, to the spec of a version; an UnpoolError if one is wrong."""
    settings: Mapping[str, AttributeType]
    """Attributes of its nodes in the domain `unpool`, beside those of the standard."""

    @property
    def name(self) -> str:
        """The operator type of nodes."""
        return self.versions[0].operator

    @property
    def parameters(self) -> tuple[str, ...]:
        """The keywords of the public function that a prepared call depends on, but for OPTIONS."""
        newest = contract.newest(self.name, channels_last=False)
        values = [name for name in newest.inputs if name == contract.OUTPUT_SHAPE]
        return ("opset", *newest.attributes, *values)


OPTIONS = ("layout", "compat", "index_space")
"""The keywords of public functions that are words, and no attributes."""
_SETTINGS = {"opset": AttributeType.INT, "channels_last": AttributeType.INT, "compat": AttributeType.STRING}


def _operator(name: str, resolve: Callable[..., Spec], **settings: AttributeType) -> Operator:
    return Operator(contract.versions_of(name, ""), resolve, MappingProxyType(_SETTINGS | settings))


_TABLE = (
    _operator("MaxPool", max_pool.resolve),
    _operator("MaxUnpool", max_unpool.resolve, index_space=AttributeType.STRING),
    _operator("ConvTranspose", conv_transpose.resolve, exact=AttributeType.INT),
)
OPERATORS: Mapping[str, Operator] = MappingProxyType({each.name: each for each in _TABLE})
"""The operators by name."""
