"""What a report says, as records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from unpool.runtime.lint.finding import Findings
from unpool.runtime.measure.bench import ModelTimes
from unpool.runtime.plan.plan import Plan
from unpool.runtime.report.accuracy import StepAccuracy
from unpool.runtime.report.drawing import Settings
from unpool.runtime.report.maps import MapPair
from unpool.runtime.report.memory import Memory


@dataclass(frozen=True)
class Contents:
    """What there is to say about a model and one set of inputs.

    Attributes:
        model: the name of its file, or what it is.
        opsets: version by domain.
        inputs: type and shape of what was fed, by name.
        plan: which node runs where and why.
        times: of the whole and of each step; None where they were not wanted.
        accuracy: of each step; empty where it was not wanted.
        findings: of `unpool.check`.
        memory: what the values between steps take.
        maps: feature maps before and after poolings and unpoolings.
        left_out: how many of these there are beside.
        windows: those of the model, for the drawing.
        machine: where all this was found out.
        made: when.
        is_random: whether the inputs are random numbers.
    """

    model: str
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    plan: Plan
    times: ModelTimes | None
    accuracy: tuple[StepAccuracy, ...]
    findings: Findings
    memory: Memory
    maps: tuple[MapPair, ...]
    left_out: int
    windows: Mapping[str, Settings]
    machine: str
    made: datetime
    is_random: bool
