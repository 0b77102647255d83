"""Both kernels of transposed convolution, chosen by force, on sizes around their tiles, blocks and chunks."""

import itertools

import numpy as np
import pytest

from tests import oracle
from tests.cases import kernel_conv_transpose as conv_transpose_cases
from tests.cases.kernel_conv_transpose import TYPES, conv_transpose_case

CHUNKS = 5
PER_CHUNK = 80


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_reference(chunk: int) -> None:
    """Sums of small integers are exact with any threads, and nothing beside them is written."""
    cases = [conv_transpose_case(number) for number in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK)]
    found = (conv_transpose_cases.difference(case, threads) for case in cases for threads in (1, 2))
    wrong = [each for each in found if each]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n\n".join(wrong)


def test_reference_is_the_oracle() -> None:
    """On the smaller cases the fast reference of these tests gives what the oracle gives."""
    cases = [case for case in map(conv_transpose_case, range(CHUNKS * PER_CHUNK)) if "activation" not in case.ending]
    small = [case for case in cases if case.inputs[0].size * case.inputs[1].size < 9000]
    assert len(small) > 20
    for case in small:
        expected = oracle.conv_transpose(*case.inputs, **case.attributes)
        assert np.array_equal(conv_transpose_cases.reference(case), expected), case.name


def test_cases_are_hard() -> None:
    """The random cases have rows beyond any register, every stride, groups, and panels that do not hold them."""
    cases = [conv_transpose_case(number) for number in range(CHUNKS * PER_CHUNK)]
    assert sum(case.inputs[0].shape[-1] > 64 for case in cases) > 50
    assert {case.attributes["strides"][-1] for case in cases} == {1, 2, 3, 4, 5}
    assert {case.attributes["dilations"][-1] for case in cases} == {1, 2, 3}
    assert sum(case.attributes["group"] > 1 for case in cases) > 50
    assert sum(case.panel_bytes == 1 and case.tiled for case in cases) > 50
    assert {case.line for case in cases if case.tiled} == set(range(-1, 15))
    assert sum("layout" in case.ending and case.tiled for case in cases) > 50
    assert {(case.tiled, case.inputs[0].dtype.type) for case in cases} == set(itertools.product((True, False), TYPES))
