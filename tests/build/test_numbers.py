"""Numbers of kernels, by which planners name them."""

import json
import subprocess
import sys
from collections import Counter

from unpool.kernels.cpu.planner import blob

_PROGRAM = """
import json
from unpool.build.catalogue import record_kernels
from unpool.build.numbers import number_of
print(json.dumps([number_of(each.kernel.name, each.type_names) for each in record_kernels().values()]))
"""


def test_every_kernel_has_a_number_of_its_own():
    """Of those that planners name, and the planners. The process ends: calls that were recorded compute nothing."""
    printed = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout
    found = Counter(json.loads(printed))
    del found[None]
    assert {number for number, count in found.items() if count > 1} == set()
    assert {number & 0xFF for number in found} == {
        *range(blob.TILES, blob.FEW_CHANNELS + 1), blob.PLAN_MAX_POOL, blob.PLAN_MAX_UNPOOL,
            blob.PLAN_CONV_TRANSPOSE,
    } - {blob.ACTIVATE}  # fmt: skip
