"""Every example of the contract, sections 1 to 8, as a named case with its expected values typed in."""

from tests.cases import activations as cases_activations
from tests.cases import conv_transpose as cases_conv_transpose
from tests.cases import max_pool as cases_max_pool
from tests.cases import max_pool_values as cases_max_pool_values
from tests.cases import max_unpool as cases_max_unpool
from tests.cases import nhwc as cases_nhwc
from tests.cases import types as cases_types
from tests.cases.record import Case

CASES: list[Case] = [
    *cases_max_unpool.CASES,
    *cases_max_pool.CASES,
    *cases_max_pool_values.CASES,
    *cases_conv_transpose.CASES,
    *cases_types.CASES,
    *cases_nhwc.CASES,
    *cases_activations.CASES,
]
BY_NAME = {case.name: case for case in CASES}

RULES: tuple[str, ...] = (
    *(f"1.{i}" for i in range(1, 6)),
    *(f"2.{i}" for i in range(1, 8)),
    *(f"3.{i}" for i in range(1, 19)),
    *(f"4.{i}" for i in range(1, 18)),
    *(f"6.{i}" for i in range(1, 7)),
)
