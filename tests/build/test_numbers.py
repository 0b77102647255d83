"""Numbers of kernels, by which planners name them."""

from collections import Counter

from unpool.build.catalogue import record_kernels
from unpool.build.numbers import number_of
from unpool.kernels.cpu.planner import blob


def test_every_kernel_has_a_number_of_its_own():
    """Of those that planners name, and the planners."""
    found = Counter(number_of(each.kernel.name, each.type_names) for each in record_kernels().values())
    del found[None]
    assert {number for number, count in found.items() if count > 1} == set()
    assert {number & 0xFF for number in found} == {
        *range(blob.TILES, blob.SCATTER + 1), blob.PLAN_MAX_POOL, blob.PLAN_MAX_UNPOOL
    } - {blob.ACTIVATE}  # fmt: skip
