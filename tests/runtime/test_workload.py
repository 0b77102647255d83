"""How much a model runs to be verified: random inputs are sized by the elements of all values, whatever the rank."""

from math import prod

import numpy as np
import pytest

import unpool
from tests.support import models
from unpool.errors import UnpoolError
from unpool.onnxruntime import InferenceSession
from unpool.operators.semantics import Semantics
from unpool.runtime.rewrite.verify import runs
from unpool.runtime.rewrite.workload import MOST_ELEMENTS, Trials
from unpool.runtime.runtimes import unpool_session
from unpool.runtime.trace import trace

LETTERS = "hwdef"


def down_and_up(rank, *, scale="", refused=False):
    """A pool, an unpool and a growing ConvTranspose over `rank` spatial axes, whose sizes are open; the batch too."""
    axes = ", ".join(LETTERS[:rank])
    ones, threes = str([1] * rank), str([3] * rank)
    return models.model(
        f"""g (float[n, 2, {axes}] x) => (float[a, {axes}, c] y) {{
            p, i = MaxPool <kernel_shape = {threes}, strides = {threes}> (x)
            s = Shape (x)
            u = MaxUnpool <kernel_shape = {threes}, strides = {threes}> (p, i{", wrong" if refused else ", s"})
            g = ConvTranspose <auto_pad = "SAME_UPPER", strides = {threes}, kernel_shape = {ones}> (u, w)
            y = {f"Tile (g, {scale})" if scale else "Identity (g)"}
        }}""",
        w=models.random(2, 1, *[1] * rank),
        **({"wrong": np.int64([9, 2, *[7] * rank])} if refused else {}),
        **({scale: np.int64([1, 1, *[4096] * rank])} if scale else {}),
    )


def elements(feed):
    """Elements of what is fed."""
    return sum(prod(one.shape) for one in feed.values())


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_a_run_takes_as_many_elements_as_were_counted(rank):
    """The elements of all values that a run makes are those that were counted before it."""
    loaded = unpool_session(down_and_up(rank), Semantics(exact=True))
    size = next(iter(Trials(loaded, {})))
    feed = next(runs(loaded, {}))[0]
    seen = {name: np.size(value) for step in trace(loaded, feed) for name, value in step.outputs.items()}
    work = Trials(loaded, {}).workload({"x": feed["x"].shape})
    assert work.elements == elements(feed) + sum(seen.values())
    assert feed["x"].shape == (2, 2, *[size] * rank)
    assert not work.is_empty


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_all_runs_of_a_model_take_a_bounded_number_of_elements(rank, monkeypatch):
    """A model that refuses every input is given up before it was fed `MOST_ELEMENTS`, whatever its rank."""
    loaded = unpool_session(down_and_up(rank, refused=True), Semantics(exact=True))
    fed = []

    def refuse(_, names, feed, options):
        fed.append(elements(feed))
        raise UnpoolError("no.")

    monkeypatch.setattr(InferenceSession, "run", refuse)
    with pytest.raises(unpool.UnsupportedError, match="no random inputs to compare it"):
        list(runs(loaded, {}))
    assert len(fed) >= 5
    assert sum(fed) < MOST_ELEMENTS


COMPUTED = {
    "Expand": "t = Mul (s, times) g = Expand (one, t)",
    "Tile": "t = Mul (s, times) g = Tile (p, t)",
    "Range": "d = Gather (s, axis) n = Mul (d, count) l = Range (zero, n, step) g = Cast <to = 1> (l)",
    "ConstantOfShape": "t = Pow (s, three) g = ConstantOfShape (t)",
    "If": """g = If (yes) <
        then_branch = yes_graph () => (float a) { e = Tile (p, times) a = ReduceMean <keepdims = 0> (e) },
        else_branch = no_graph () => (float b) { b = ReduceMean <keepdims = 0> (p) }>""",
    "Scan": """f = Reshape (p, flat) g = Scan <num_scan_inputs = 1, body = each (float e) => (float m) {
            v = Unsqueeze (e, first) t = Tile (v, thousands) m = ReduceMean <keepdims = 0> (t)
        }> (f)""",
    "NonZero": """z = NonZero (p) f = Cast <to = 1> (z) t = Transpose (f) m = MatMul (t, f)
        c = Reshape (m, column) r = Reshape (m, row) g = Mul (c, r)""",
}
"""Nodes between a pool `p`, whose shape is `s`, and a mean of `g`: by the node that makes most."""


def with_computed_sizes(nodes):
    """A model whose sizes are open, with some nodes behind a pool; their mean is added to it."""
    return models.model(
        f"""g (float[n, 2, h, w] x) => (float[a, b, c, d] y) {{
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
            s = Shape (p)
            {nodes}
            mean = ReduceMean <keepdims = 0> (g)
            y = Add (p, mean)
        }}""",
        times=np.int64([1, 1, 3000, 3000]), one=np.float32([1]), axis=np.int64(2), count=np.int64(10_000_000),
        zero=np.int64(0), step=np.int64(1), three=np.int64([3]), yes=np.array(True), row=np.int64([1, -1]),
        column=np.int64([-1, 1]), first=np.int64([0]), flat=np.int64([-1]), thousands=np.int64([100_000]),
    )  # fmt: skip


@pytest.mark.parametrize("nodes", COMPUTED.values(), ids=COMPUTED)
def test_sizes_that_a_model_computes_are_counted(nodes):
    """Sizes computed from shapes, in bodies too, and chosen elements are known before a run, which is small enough."""
    loaded = unpool_session(with_computed_sizes(nodes), Semantics(exact=True))
    trials = Trials(loaded, {})
    assert trials.workload({"x": (2, 2, 32, 32)}).elements > MOST_ELEMENTS
    assert next(iter(trials)) < 32


def test_both_runs_have_sizes_of_their_own():
    """A model is run at a multiple of its total stride, and at an odd size."""
    loaded = unpool_session(down_and_up(2), Semantics(exact=True))
    assert [feed["x"].shape for feed, _ in runs(loaded, {})] == [(2, 2, 32, 32), (2, 2, 13, 13)]


def test_a_total_stride_that_is_no_power_of_two():
    """A model that only takes multiples of 21 is run on 42x42 and 21x21."""
    model = models.model(
        """g (float[n, 1, h, w] x) => (float[n, 1, h, w] y) {
            a = MaxPool <kernel_shape = [3, 3], strides = [3, 3]> (x)
            b, i = MaxPool <kernel_shape = [7, 7], strides = [7, 7]> (a)
            c = MaxUnpool <kernel_shape = [7, 7], strides = [7, 7]> (b, i)
            d = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 3]> (c, k)
            y = Add (d, x)
        }""",
        k=models.random(1, 1, 3, 3),
    )
    loaded = unpool_session(model, Semantics(exact=True))
    assert [feed["x"].shape[2:] for feed, _ in runs(loaded, {})] == [(42, 42), (21, 21)]


def test_a_small_model_that_makes_gigabytes_is_refused_before_it_runs(monkeypatch):
    """A model that repeats its input 4096 times along each axis runs only on sizes that the caller gives."""
    model = down_and_up(2, scale="times")
    monkeypatch.setattr(InferenceSession, "run", lambda *_: pytest.fail("it was run"))
    words = r"a run takes [\d,]+ elements and [\d,]+ products, which is above the limit. Give sizes"
    with pytest.raises(unpool.UnsupportedError, match=words):
        unpool.canonicalise(model)
    with pytest.raises(pytest.fail.Exception, match="it was run"):
        unpool.canonicalise(model, sizes={"n": 1, "h": 1, "w": 1})


def test_a_size_of_the_caller_and_a_size_of_the_model_have_no_limit():
    """Sizes that are not open are taken as they are."""
    model = models.model("g (float[h, 4, 8, 64] x) => (float[h, 4, 8, 64] y) { y = Relu (x) }")
    loaded = unpool_session(model, Semantics(exact=True))
    assert [feed["x"].shape for feed, _ in runs(loaded, {"h": 3})] == [(3, 4, 8, 64)] * 2
