"""Both kernels of transposed convolution, chosen by force, on sizes around their tiles, blocks and chunks."""

import itertools

import numpy as np

from tests import oracle
from tests.cases import kernel_conv_transpose as conv_transpose_cases
from tests.cases.kernel_conv_transpose import TYPES
from tests.cases.kernel_paths import PATHS

CASES = PATHS["phases and rows"].cases()


def test_reference_is_the_oracle() -> None:
    """On the smaller cases the fast reference of these tests gives what the oracle gives."""
    small = [case for case in CASES if case.inputs[0].size * case.inputs[1].size < 9000]
    small = [case for case in small if "activation" not in case.ending]
    assert len(small) > 20
    for case in small:
        expected = oracle.conv_transpose(*case.inputs, **case.attributes)
        assert np.array_equal(conv_transpose_cases.reference(case), expected), case.name


def test_cases_are_hard() -> None:
    """The random cases have rows beyond any register, every stride, groups, and panels that do not hold them."""
    assert sum(case.inputs[0].shape[-1] > 64 for case in CASES) > 50
    assert {case.attributes["strides"][-1] for case in CASES} == {1, 2, 3, 4, 5}
    assert {case.attributes["dilations"][-1] for case in CASES} == {1, 2, 3}
    assert sum(case.attributes["group"] > 1 for case in CASES) > 50
    assert sum(case.panel_bytes == 1 and case.tiled for case in CASES) > 50
    assert {case.line for case in CASES if case.tiled} == set(range(-1, 15))
    assert sum("layout" in case.ending and case.tiled for case in CASES) > 50
    assert {(case.tiled, case.inputs[0].dtype.type) for case in CASES} == set(itertools.product((True, False), TYPES))
