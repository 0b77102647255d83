"""The kernel of few channels per group, forced on sizes around its vectors, bands and pieces."""

import numpy as np
import pytest

from tests.cases.kernel_conv_transpose import by_rows, problem_of
from tests.cases.kernel_few_channels import STRIDES
from tests.cases.kernel_paths import PATHS
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.conv_transpose import direct
from unpool.kernels.cpu.conv_transpose import dispatch as router
from unpool.kernels.cpu.machine.host import vector_bytes


def test_cases_are_hard() -> None:
    """The random cases have every stride along the lanes, groups, channels, ranks, dilations, long rows and pieces."""
    cases = PATHS["direct"].cases()
    assert {case.attributes["strides"][-1] for case in cases} == set(STRIDES)
    assert {case.attributes["dilations"][-1] for case in cases} == {1, 2, 3}
    assert {len(case.attributes["strides"]) for case in cases} == {1, 2, 3}
    assert sum(case.attributes["group"] > 1 for case in cases) > 50
    assert sum(case.inputs[0].shape[-1] > 64 and case.result_bytes == 1 for case in cases) > 10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_its_own_outputs_only(value: float) -> None:
    """In x it changes the windows it is in; in the weights no NaN appears where it would meet padding."""
    rng = np.random.default_rng(0)
    axis = Axis(38, 19, Window(4, 2), 1)
    x, w, b = (rng.standard_normal(shape) for shape in ((1, 2, 19, 19), (2, 1, 4, 4), (2,)))
    for array in (x[0], w[:, 0]):
        kept = array[1, 3, 0]
        array[1, 3, 0] = value
        y, expected = np.empty((1, 2, 38, 38)), np.empty((1, 2, 38, 38))
        router.ConvTransposeDispatcher(problem_of(x, w, (axis, axis), 2), x.dtype)(x, w, b, y, 1)
        by_rows(x, w, b, (axis, axis), 2, expected)
        np.testing.assert_allclose(y, expected, rtol=1e-12)
        array[1, 3, 0] = kept


def test_pays_for_few_products() -> None:
    """Depthwise windows are computed directly; many channels, other strides, narrow maps and huge tables are not."""
    axes = [Axis(64, 32, Window(4, 2), 1)] * 2
    assert direct.is_cheapest(tuple(axes), 1, 1, 4)
    assert not direct.is_cheapest(tuple(axes), 8, 8, 4)
    assert not direct.is_cheapest((Axis(96, 32, Window(4, 3)),), 1, 1, 4)
    assert not direct.is_cheapest((Axis(1 << 22, 1 << 22, Window(1)), axes[0]), 1, 1, 4)
    quarter = vector_bytes() // 16
    narrow = Axis(quarter, quarter, Window(3), 1)
    assert not direct.is_cheapest((narrow, narrow), 1, 1, 4)


def test_panels_are_bounded() -> None:
    """Rows far apart, by dilation or by a leading axis, are not laid out together where they are too many."""
    lanes = Axis(2048, 2048, Window(1))
    assert direct.fits((Axis(4096, 4096, Window(3), 1), lanes), 1, 4)
    assert not direct.fits((Axis(4096, 4096, Window(3, dilation=1000), 1000), lanes), 1, 4)
    assert not direct.fits((Axis(9, 9, Window(3), 1), Axis(4096, 4096, Window(3), 1), lanes), 1, 4)
