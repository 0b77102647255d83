"""How the operators are read: the arguments `compat`, `index_space` and `exact` of a session."""

from dataclasses import dataclass

from unpool.errors import UnpoolError, suggest_name
from unpool.operators.attributes import COMPAT
from unpool.operators.max_unpool import INDEX_SPACES


@dataclass(frozen=True)
class Semantics:
    """Interpretation of the three operators: the session's `compat`, `index_space` and `exact`."""

    compat: str = "spec"
    index_space: str = "auto"
    exact: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (("compat", self.compat, COMPAT), ("index_space", self.index_space, INDEX_SPACES)):
            if value not in allowed:
                fact = f"expected one of {', '.join(allowed)}; got {value!r}"
                raise UnpoolError(f"{name}: {fact}. {suggest_name(value, allowed)}")


FUSED_UNPOOL = Semantics("spec", "output")
"""Of a MaxUnpool that was a ScatterND, whose indices count in its output, however the model is read."""
