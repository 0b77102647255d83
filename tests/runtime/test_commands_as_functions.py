"""The commands on models as functions of `unpool`: they take a ModelProto, and their records can be printed."""

import unpool
from tests.cases import decomposed
from tests.support import models


def test_records_print_what_the_commands_print():
    """One line per change or finding, and a sentence where there is none."""
    model = decomposed.by_hand()
    rows = str(unpool.check(model)).splitlines()
    assert [row.partition(":")[0] for row in rows] == [one.node for one in unpool.check(model)] != []
    assert all("Effect: " in row and "Repair: " in row for row in rows)
    done = unpool.fix(model)
    assert (
        str(done).splitlines()[0]
        == "ScatterND->s: ScatterND into zeros -> MaxUnpool-11 (kernel_shape=[2, 2], strides=[2, 2])"
    )
    assert str(unpool.check(done.model)) == "nothing found"
    assert str(unpool.fix(done.model)) == "nothing to change"


def test_rewritten_models_print_their_changes():
    """The same for another opset and for explicit pads, from bytes as well."""
    pool = models.plain_pools(attributes='kernel_shape = [2, 2], auto_pad = "SAME_UPPER"').SerializeToString()
    assert "auto_pad=SAME_UPPER) -> MaxPool-12 (pads=" in str(unpool.canonicalise(pool))
    assert "MaxPool-12 -> MaxPool-22" in str(unpool.upgrade(pool, 22))
