"""Lowers many models and runs the results in other runtimes alone.

`python -m conformance.lowered trips [FIRST STOP]` takes random round trips in one, two and three dimensions; each has a
number, so that they can be run in portions. `python -m conformance.lowered networks [NAME]` takes the networks of the
tests, from both of torch's exporters, with whole numbers as weights: sums are exact then, and every runtime has to give
the bits of unpool. Prints one line per kind of model, and exits with 1 where any bit differs.
"""

import sys
import warnings
from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch

import unpool
import unpool.torch
from tests.support import models, networks
from unpool.errors import UnsupportedError
from unpool.runtime.lower.targets import TARGETS
from unpool.runtime.runtimes import runtimes

NETWORKS = ("SegNet", "ENet")
DIFFERS = "differs"
BITS = 24  # of a float32: sums of whole numbers below 2**24 are exact


def main(words: list[str]) -> int:
    """Lower what the words ask for; the exit code."""
    verb, *rest = words or ["networks"]
    if verb == "trips":
        first, stop = map(int, rest or ("0", "200"))
        found = trips(range(first, stop))
    else:
        found = Counter[str]()
        for name in rest or NETWORKS:
            found += networks_of(name)
    return int(any(what.endswith(DIFFERS) for what in found))


def trips(numbers: range) -> Counter[str]:
    """Random round trips, each for two targets, which are the two forms."""
    found: Counter[str] = Counter()
    for number in numbers:
        model, x = _round_trip(np.random.default_rng([20, number]))
        for target in ("openvino", "any"):
            found += _run(f"round trip {number}", model, {"x": x}, target)
    say(f"round trips {numbers.start} to {numbers.stop - 1}, two targets each: {_words(found)}")
    return found


def networks_of(name: str) -> Counter[str]:
    """One network with fixed and with open sizes, from both exporters, for every target."""
    total: Counter[str] = Counter()
    for is_open, dynamo in product((False, True), (True, False)):
        model, x = _network(name, is_open=is_open, dynamo=dynamo)
        found: Counter[str] = Counter()
        title = f"{name}, dynamo={dynamo}, {'open' if is_open else 'fixed'} sizes"
        for target in TARGETS:
            found += _run(title, model, {"x": x}, target)
        say(f"{title}, {len(TARGETS)} targets: {_words(found)}")
        total += found
    return total


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(title: str, model: onnx.ModelProto, feed: dict[str, Any], target: str) -> Counter[str]:
    """How often each runtime gives the bits of unpool."""
    expected = unpool.InferenceSession(model, exact=True).run(None, feed)
    try:
        done = unpool.lower(model, target, index_space="output")
    except UnsupportedError as error:
        say(f"{title}: refused for {target}: {error}")
        return Counter({"refused": 1})
    assert "MaxUnpool" not in {node.op_type for node in done.model.graph.node}
    found: Counter[str] = Counter()
    refusals = {one.runtime: one.reason for one in done.checks}
    for runtime in runtimes():
        if refusals[runtime.name]:
            say(f"{title}: {runtime.name} refuses what is for {target}: {refusals[runtime.name]}")
            found[f"{runtime.name} refuses"] += 1
        elif not runtime.is_reference:
            got = runtime.open(done.model)(feed)
            is_equal = all(np.array_equal(one, other) for one, other in zip(expected, got, strict=True))
            if not is_equal:
                say(f"{title}: {runtime.name} {DIFFERS}, {target}")
            found[f"{runtime.name} {'equal' if is_equal else DIFFERS}"] += 1
    return found


def _round_trip(rng: np.random.Generator) -> tuple[onnx.ModelProto, Any]:
    """A pool with a random window, values of its own for every window, and an unpooling to the size of x."""
    rank = int(rng.integers(1, 4))
    window, stride, dilation = (rng.integers(1, most, rank) for most in (4, 4, 3))
    reach = (window - 1) * dilation + 1
    pads = [rng.integers(0, size) for _ in range(2) for size in window]
    shape = [2, 3, *(reach + rng.integers(0, 6, rank))]
    is_open = bool(rng.integers(2))
    sizes = ", ".join(f"d{axis}" if is_open and axis > 1 else str(size) for axis, size in enumerate(shape))
    plain = f"kernel_shape = {window.tolist()}, strides = {stride.tolist()}, pads = {[int(one) for one in pads]}"
    pool = f"{plain}, dilations = {dilation.tolist()}, ceil_mode = {rng.integers(2)}"
    dims = ", ".join(f"e{axis}" for axis in range(rank + 2))
    model = models.model(
        f"""round_trip (float[{sizes}] x) => (float[{dims}] z) {{
            y, i = MaxPool <{pool}> (x)
            v = CumSum (y, last)
            s = Shape (x)
            z = MaxUnpool <{plain}> (v, i, s)
        }}""",
        last=np.int64(rank + 1),
    )
    return model, rng.integers(-2, 3, shape).astype(np.float32)


def _network(name: str, *, is_open: bool, dynamo: bool) -> tuple[onnx.ModelProto, Any]:
    """A network with sparse whole weights, and an input for which all of its sums are exact."""
    network, example = networks.build(name)
    for module in network.modules():
        if isinstance(module, networks.CONVOLUTIONS):
            _make_sparse(module.weight.data)
            if module.bias is not None:
                module.bias.data.round_()
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = 0.0
            module.weight.data.fill_(1)
            module.bias.data.fill_(0)
            module.reset_running_stats()
        if isinstance(module, torch.nn.PReLU):
            module.weight.data.fill_(0)
    x = example.mul(2).round()
    wide = network.double()(x.double())
    assert wide.abs().max() < 2**BITS
    assert torch.equal(network.float()(x).double(), wide)
    sizes = {axis: f"d{axis}" for axis in (2, 3)} if is_open else {}
    if dynamo:
        return networks.export(network, x, dynamic_shapes=(sizes,) if sizes else None), x.numpy()
    return _traced(network, x, sizes), x.numpy()


def _traced(network: torch.nn.Module, x: torch.Tensor, sizes: dict[int, str]) -> onnx.ModelProto:
    """What torch's older exporter makes of a network."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        unpool.torch.export(
            network, (x,), path, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": sizes}
        )
        return onnx.load(path)


def _make_sparse(weight: torch.Tensor) -> None:
    """Keep the two largest numbers of every channel, as +1 or -1."""
    flat = weight.reshape(weight.shape[0], -1)
    kept = torch.zeros_like(flat).scatter(1, flat.abs().topk(min(2, flat.shape[1])).indices, 1)
    flat.copy_(kept * flat.sign())


def _words(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
