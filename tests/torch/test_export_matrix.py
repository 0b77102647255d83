"""docs/export.md holds: every case is in it, nothing in it is wrong, and a part of it is exported again."""

import re

import pytest

from conformance.export_matrix import OPSETS, PAGE, SIGNS
from tests.cases.exports import CASES
from tests.support.export_judge import EXPORTERS, judge

LEGACY_OPSETS = [opset for opset in OPSETS if opset < 25]
AGAIN = [(name, "dynamo=False", LEGACY_OPSETS[at % len(LEGACY_OPSETS)]) for at, name in enumerate(CASES)] + [
    ("1-D round trip, k3s2p1", "dynamo=True", 9),
    ("2-D round trip without a batch", "dynamo=True", 11),
    ("2-D unpooling into larger planes", "dynamo=True", 17),
    ("3-D unpooling of inputs", "dynamo=True", 13),
    ("2-D round trip, float64", "dynamo=True", 25),
    ("2-D round trip, bfloat16", "dynamo=True", 22),
    ("2-D pool, k1s2, ceil_mode", "dynamo=True", 13),
    ("2-D indices, padding, dilation and ceil_mode", "dynamo=True", 9),
    ("2-D round trip, k3s2p1, any size", "dynamo=True", 9),
    ("3-D round trip, any batch and size", "dynamo=True", 25),
    ("2-D ConvTranspose, any size", "dynamo=True", 11),
    ("ENet", "dynamo=True", 9),
]


def cells():
    """The signs of the page: (case, exporter, opset) -> sign."""
    found, exporter = {}, ""
    for line in PAGE.read_text(encoding="utf-8").split("## Messages")[0].splitlines():
        heading = re.match(r"### `(.+)`", line)
        exporter = heading[1] if heading else exporter
        parts = [part.strip() for part in line.strip("| ").split(" | ")]
        if exporter and parts[0] in CASES:
            found |= {(parts[0], exporter, opset): sign for opset, sign in zip(OPSETS, parts[1:], strict=False)}
    return found


def test_every_case_is_in_the_page():
    """The page knows all cases, in both exporters and all opsets."""
    assert len(CASES) >= 60
    assert cells().keys() == {(name, exporter, opset) for name in CASES for exporter in EXPORTERS for opset in OPSETS}


def test_nothing_in_the_page_is_wrong():
    """No file means another thing than the module, and neither exporter fails."""
    assert set(cells().values()) <= {SIGNS["equal"], SIGNS["unpool only"], SIGNS["unsupported"]}


def test_all_but_old_opsets_and_rare_types_is_equal():
    """Only bfloat16 before 22, dilations and open ceil_mode before 10, and dynamo=False at 25 are refused."""
    refused = {key for key, sign in cells().items() if sign == SIGNS["unsupported"]}
    late = {(name, "dynamo=False", 25) for name in CASES}
    old = [opset for opset in OPSETS if opset < 22]
    bfloat16 = {("2-D round trip, bfloat16", exporter, opset) for exporter in EXPORTERS for opset in old}
    rest = refused - late - bfloat16
    assert late | bfloat16 <= refused
    assert {opset for _, _, opset in rest} == {9}
    assert all("dilation" in name or name == "2-D round trip, ceil_mode, any size" for name, _, _ in rest)


@pytest.mark.sample(30)
@pytest.mark.parametrize(("name", "exporter", "opset"), AGAIN, ids=str)
def test_exported_again(name, exporter, opset):
    """What the page says of a module, an exporter and an opset is so."""
    verdict = judge(CASES[name], EXPORTERS[exporter], opset, reference=False)
    assert SIGNS[verdict.outcome] == cells()[name, exporter, opset], verdict.reason
