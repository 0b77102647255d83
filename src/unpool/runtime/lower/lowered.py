"""The records of a lowering: what was written for one MaxUnpool, where it was checked, and the whole result."""

from dataclasses import dataclass

import numpy as np
import onnx

from unpool.display import display_line
from unpool.runtime.lower.pooling import Pooling
from unpool.runtime.lower.target import Target
from unpool.runtime.passes.rewrite import NodeChange, Rewrite
from unpool.runtime.rewrite.repair_indices import NotRepaired, Unpooling


@dataclass(frozen=True)
class Part:
    """The nodes that stand in the place of one MaxUnpool.

    Attributes:
        unpooling: the MaxUnpool.
        pooling: the MaxPool whose choice they follow; None where they scatter.
        edit: the nodes and their constants.
        dtype: element type of the values.
    """

    unpooling: Unpooling
    pooling: Pooling | None
    edit: Rewrite
    dtype: np.dtype[np.generic]


@dataclass(frozen=True)
class Check:
    """What a runtime made of the lowered model.

    Attributes:
        runtime: its name and version.
        refusal: why it does not run the model; "" if it does, with the results of the first model.
    """

    runtime: str
    refusal: str = ""

    def __str__(self) -> str:
        return f"{self.runtime}: {f'not checked, {self.refusal}' if self.refusal else 'equal results'}"


@dataclass(frozen=True)
class Lowered:
    """A model for a target, what is different in it, what the target may not take, and where it was checked.

    `print` shows all of it but the model.
    """

    model: onnx.ModelProto
    target: Target
    changes: tuple[NodeChange, ...]
    left: tuple[NotRepaired, ...]
    checks: tuple[Check, ...]

    @property
    def lines(self) -> list[str]:
        """A line for each record."""
        return [display_line(str(one)) for one in (*self.changes, *self.left, *self.checks)]

    def __str__(self) -> str:
        return "\n".join(self.lines)
