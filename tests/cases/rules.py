"""Which rules of the contract a case exercises, derived from the case and the oracle's answer alone.

A rule counts only when it decides something in the case: ceil_mode where a remainder is left, the odd side of a total
that is odd, duplicates that hold different values. A refused case counts only for the rules that refuse it.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.cases.record import Case
from tests.cases.rules_conv_transpose import conv_transpose_rules
from tests.cases.rules_max_pool import max_pool_rules
from tests.cases.rules_max_unpool import max_unpool_rules
from tests.oracle.activation import check_activation
from tests.oracle.rows import Refused

Answer = tuple[np.ndarray, ...] | None
RULES_OF: dict[str, Callable[[Case, Answer], Iterator[tuple[str, bool]]]] = {
    "MaxPool": max_pool_rules,
    "MaxUnpool": max_unpool_rules,
    "ConvTranspose": conv_transpose_rules,
}


def rules(case: Case, answer: Answer) -> frozenset[str]:
    """Numbers of the rules, such as {"3.1", "3.14", "6.6"}."""
    found = {rule for rule, applies in RULES_OF[case.operator](case, answer) if applies}
    return frozenset(found | {rule for rule, applies in nhwc_rules(case, answer, found) if applies})


def nhwc_rules(case: Case, answer: Answer, found: set[str]) -> Iterator[tuple[str, bool]]:
    """Section 6."""
    last = case.layout == "NHWC"
    active = "activation" in case.attributes or "activation_params" in case.attributes
    x = case.inputs[0]
    if answer is None:
        yield "6.5", last and active and not is_activation(case)
        yield "6.2", last and active and not is_activation(case)
        return
    channels = x.shape[-1] if last else x.shape[1]
    mixes = last and channels > 1 and x.size > channels * x.shape[0] > 0
    indexed = case.operator == "MaxUnpool" or case.outputs == 2
    yield "6.1", last and case.opset is not None
    yield "6.2", last and active
    yield "6.3", mixes
    yield "6.4", mixes and indexed
    yield "6.5", active
    yield "6.6", last and any(rule.split(".")[0] in "134" for rule in found)


def is_activation(case: Case) -> bool:
    """Whether the activation and its parameters are ones of the table."""
    params: Sequence[float] | None = case.attributes.get("activation_params")
    try:
        check_activation(case.attributes.get("activation"), params, case.inputs[0].dtype)
    except Refused:
        return False
    return True
