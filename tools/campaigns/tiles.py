"""Every operator that can be tiled, in tiles beside the whole image, bit for bit, or refused before anything runs.

python -m tools.campaigns.tiles --count 20000 --seed 1
python -m tools.campaigns.tiles --count 500 --seed 1 --operator Resize --verbose
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import unpool
from tools.campaigns.tile_cases import GENERATORS, case
from unpool import tiles
from unpool.runtime.tiles.rules.table import ROUNDED

TOLERANCE = 4
"""Steps of the last bit, of 1 or of a larger result, by which operators of ROUNDED may differ."""

SHARES = {"Resize": 12, "MaxUnpool": 4, "ConvTranspose": 3, "MaxPool": 3, "Pad": 3, "Slice": 3, "Reshape": 2}
"""Shares of the trials, by operator, where attributes that depend on each other have many values; 1 for others."""

KINDS = ("trials", "equal", "rounded", "refused", "wrong")


@dataclass
class Tally:
    """What came of the trials of one operator.

    Attributes:
        kinds: by kind, how many trials; "invalid" are models that onnxruntime does not run whole.
        wrong: each trial that differs, in words.
        why: each reason of a refusal.
        attributes: of the operator's nodes in all cases.
        steps: the largest difference of an operator of ROUNDED, in steps of the last bit.
    """

    kinds: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    why: Counter = field(default_factory=Counter)
    attributes: set[str] = field(default_factory=set)
    steps: float = 0.0


def campaign(operator, count, seed):
    """The tally of `count` trials of an operator, each one model in tiles of one size."""
    tally, number = Tally(), 0
    while sum(tally.kinds[kind] for kind in KINDS[1:]) < count and number < 20 + 3 * count:
        judge(operator, seed * 1_000_000 + number, tally)
        number += 1
    return tally


def judge(operator, seed, tally):
    """Run a case whole and in tiles of several sizes."""
    drawn = case(operator, seed)
    for node in drawn.model.graph.node:
        if node.op_type == operator:
            tally.attributes |= {one.name for one in node.attribute}
    try:
        session = unpool.InferenceSession(drawn.model, threads=1, **drawn.words)
        whole = session.run(None, drawn.feed)
    except Exception as error:  # whoever refuses the model, or runs a node of which nothing is left
        tally.kinds["invalid"] += 1
        tally.why[f"invalid: {error}"[:160]] += 1
        return
    if not all(array.size for array in whole):
        tally.kinds["invalid"] += 1
        return
    expected = {value.name: array for value, array in zip(session.get_outputs(), whole, strict=True)}
    for number, cell in enumerate(drawn.cells):
        kind, words = outcome(session, drawn, cell, expected, is_even=number == 1)
        tally.kinds[kind] += 1
        tally.kinds["trials"] += 1
        if kind == "wrong":
            tally.wrong.append(f"{operator} seed {seed} cell {cell}: {words}")
        elif kind == "refused":
            tally.why[words] += 1
        elif kind == "rounded":
            tally.steps = max(tally.steps, float(words))


def outcome(session, drawn, cell, expected, *, is_even):
    """How a case in tiles of one size compares with the whole: its kind, and words on it."""
    shapes = {name: array.shape for name, array in drawn.feed.items()}
    try:
        tiling = tiles.Tiler(session, layout=drawn.layout).tiling(shapes, cell, is_even=is_even)
        made = tiles.run_tiling(session, tiling, drawn.feed)
    except unpool.UnsupportedError as error:
        return "refused", str(error)
    except unpool.UnpoolError as error:
        return "refused" if "Run it whole" in str(error) else "wrong", str(error)  # an image of one position
    except Exception as error:  # anything else is a fault
        return "wrong", f"{type(error).__name__}: {error}"
    steps = 0.0
    for name, array in expected.items():
        got = made.get(name)
        if got is None:
            return "wrong", f"no tile gives {name!r} of {array.shape}"
        if got.dtype != array.dtype or got.shape != array.shape:
            return "wrong", f"{got.dtype}{got.shape} in place of {array.dtype}{array.shape}"
        if not np.array_equal(got, array, equal_nan=array.dtype.kind == "f"):
            far = distance(got, array)
            if drawn.operator not in ROUNDED or not far <= TOLERANCE:
                return "wrong", f"{np.sum(got != array)} of {array.size} differ, by {far:.3g} steps"
            steps = max(steps, far)
    return ("rounded", f"{steps}") if steps else ("equal", "")


def distance(got, array):
    """The largest difference, in steps of the last bit of 1, or of the larger result."""
    if array.dtype.kind != "f":
        return np.inf
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype(np.float64) - array.astype(np.float64))
        scale = np.finfo(array.dtype).eps * np.maximum(1, np.abs(array.astype(np.float64)))
        same = (got == array) | (np.isnan(got) & np.isnan(array))
        return float(np.max(np.where(same, 0, apart / scale), initial=0))


def main():
    """Run the campaign, print a table, and end with 1 where a trial is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="trials in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operator", action="append", help="only these")
    parser.add_argument("--verbose", action="store_true", help="print why models were refused")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = words.operator or sorted(GENERATORS)
    begin, total, shares = time.monotonic(), Counter(), sum(SHARES.get(operator, 1) for operator in chosen)
    print(f"{'operator':24}" + "".join(f"{kind:>9}" for kind in KINDS))
    faults = []
    for operator in chosen:
        tally = campaign(operator, -(-words.count * SHARES.get(operator, 1) // shares), words.seed)
        total += tally.kinds
        faults += tally.wrong
        steps = f"   {tally.steps:.2f} steps of the last bit" if tally.steps else ""
        print(f"{operator:24}" + "".join(f"{tally.kinds[kind]:9}" for kind in KINDS) + steps, flush=True)
        for why, count in tally.why.most_common(8 if words.verbose else 0):
            print(f"    {count} x {why}")
    print(f"{'all':24}" + "".join(f"{total[kind]:9}" for kind in KINDS))
    for fault in faults[:40]:
        print("wrong:", fault)
    seconds = time.monotonic() - begin
    print(
        f"tiles: {total['trials']} trials of {len(chosen)} operators, {total['equal']} equal, "
        f"{total['rounded']} rounded, "
        f"{total['refused']} refused, {total['wrong']} wrong; {total['invalid']} models did not run whole; "
        f"{total['trials'] / seconds:.0f} trials per second"
    )
    sys.exit(1 if total["wrong"] else 0)


if __name__ == "__main__":
    main()
