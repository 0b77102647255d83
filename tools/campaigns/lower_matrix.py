"""Every file that `unpool.torch.export` writes is lowered, found by comparing, and gives torch's numbers at odd sizes.

A cell of the matrix is a network of so many pools and unpoolings, its batch, the sizes that stay open, one of torch's
exporters, an opset and a target. Weights and inputs are small integers, so that all sums are exact, and every runtime
has to give torch's bits.

    python -m tools.campaigns.lower_matrix                        all cells, about an hour
    python -m tools.campaigns.lower_matrix --count 100 --seed 3   so many of them, chosen at random
"""

import argparse
import io
import random
import sys
import warnings
from dataclasses import astuple, dataclass
from functools import cache, partial
from itertools import product

import numpy as np
import onnx
import torch
from torch.nn import functional

import unpool
import unpool.torch
from unpool.errors import UnpoolError
from unpool.runtime.lower.targets import TARGETS
from unpool.runtime.runtimes import runtimes

OPEN = {"none": (), "height": (2,), "width": (3,), "both": (2, 3)}
OPSETS = (9, 11, 13, 18, 22, 25)
NEWEST_TRACED = 24
"""The newest opset that dynamo=False reaches is below 25."""

EXAMPLE = (17, 22)
OTHERS = ((13, 21), (25, 19))


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix: `batch` is 0 where it is open."""

    depth: int
    batch: int
    axes: str
    dynamo: bool
    opset: int
    target: str

    def __str__(self):
        return ", ".join(map(str, astuple(self)))

    @property
    def export(self):
        """The cell without its target: of what there is one file."""
        return astuple(self)[:-1]


def cells():
    """All cells; those of one file are side by side."""
    every = product((1, 2, 3), (1, 2, 0), OPEN, (True, False), OPSETS, TARGETS)
    return [one for one in map(Cell, *zip(*every, strict=True)) if one.dynamo or one.opset <= NEWEST_TRACED]


class Levels(torch.nn.Module):
    """So many convolutions and pools, and as many unpoolings into the sizes before, each size asked for in turn."""

    def __init__(self, depth):
        super().__init__()
        channels = [1, 2, 3, 2][: depth + 1]
        self.down = torch.nn.ModuleList(map(partial(torch.nn.Conv2d, kernel_size=3, padding=1), channels, channels[1:]))
        self.up = torch.nn.ModuleList(map(torch.nn.Conv2d, channels[:0:-1], channels[-2::-1], [1] * depth))
        generator = torch.Generator().manual_seed(depth)
        with torch.no_grad():
            for tensor in self.parameters():
                tensor.copy_(torch.randint(-1, 2, tensor.shape, generator=generator))

    def forward(self, x):
        levels = []
        for number, convolution in enumerate(self.down):
            x = torch.relu(convolution(x))
            size = x.shape[2:] if number % 2 else x.size()
            x, indices = functional.max_pool2d(x, 2, return_indices=True)
            levels.append((indices, size))
        for convolution, (indices, size) in zip(self.up, reversed(levels), strict=True):
            x = convolution(functional.max_unpool2d(x, indices, 2, output_size=size))
        return x


def picture(batch, sizes):
    """Small integers, many of them equal."""
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randint(-2, 3, (batch, 1, *sizes), generator=generator).float()


@cache
def exported(depth, batch, axes, dynamo, opset):
    """The file of a network."""
    names = {axis: {0: "batch", 2: "height", 3: "width"}[axis] for axis in ((0,) if batch == 0 else ()) + OPEN[axes]}
    dims = {axis: torch.export.Dim(name, min=1 if axis == 0 else 8) for axis, name in names.items()}
    options = {"dynamic_shapes": (dims,)} if dynamo else {"dynamic_axes": {"image": names}}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unpool.torch.export(
            Levels(depth).eval(), (picture(batch or 2, EXAMPLE),), file,
            input_names=["image"], opset_version=opset, dynamo=dynamo, verbose=False, **(options if names else {}),
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def feeds(cell):
    """Inputs of odd sizes wherever a size is open."""
    for number, sizes in enumerate((EXAMPLE, *OTHERS)):
        pairs = zip((2, 3), sizes, EXAMPLE, strict=True)
        taken = [size if axis in OPEN[cell.axes] else fixed for axis, size, fixed in pairs]
        yield picture(cell.batch or number + 1, taken)


def fault(cell):
    """What is wrong with a cell; "" if nothing is."""
    try:
        model = exported(*cell.export)
        lowered = unpool.lower(model, cell.target)
    except UnpoolError as error:
        return f"{type(error).__name__}: {error}"
    operators = [node.op_type for node in lowered.model.graph.node]
    if {"MaxUnpool", "ScatterElements", "ScatterND"} & set(operators):
        return f"operators {sorted(set(operators))}"
    if sum("comparing" in one.after for one in lowered.changes) != cell.depth:
        return f"changes {[str(one) for one in lowered.changes]}"
    findings = unpool.check(model)
    if findings:
        return f"unpool check: {findings[0]}"
    network = Levels(cell.depth).eval()
    for runtime in runtimes():
        if runtime.is_reference:
            continue
        for x in feeds(cell):
            with torch.no_grad():
                expected = network(x).numpy()
            (y,) = runtime.open(lowered.model)({"image": x.numpy()})
            if y.shape != expected.shape or not np.array_equal(y, expected):
                return f"{runtime.name}: other numbers at {list(x.shape)}"
    return ""


def main(arguments=None):
    """Run cells, print what is wrong and a line of counts; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.lower_matrix")
    parser.add_argument("--count", type=int, help="cells to choose at random; without it, all")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    every = cells()
    chosen = every
    if asked.count is not None and asked.count < len(every):
        chosen = sorted(random.Random(asked.seed).sample(every, asked.count), key=every.index)
    wrong = 0
    for cell in chosen:
        why = fault(cell)
        if why:
            wrong += 1
            print(f"{cell}: {why}", flush=True)
    print(f"lower_matrix: {len(chosen)} of {len(every)} cells, seed {asked.seed}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
