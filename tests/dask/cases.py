"""A random case on dask arrays with random chunks, against the oracle."""

import re

import dask
import dask.array as da
import numpy as np

import unpool
import unpool.dask
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.runners import FUNCTIONS, Outputs, as_tuple, assert_outputs, keywords

NO_DASHBOARD = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": ":0"}}
"""Of a cluster: other tests may have the port at the same time."""

ARRAYS = {"MaxPool": 1, "MaxUnpool": 2, "ConvTranspose": 1}
"""How many of the inputs are dask arrays; weights and shapes are NumPy's."""


def chunks(random, shape):
    """Sizes of chunks of any kind along every axis: none, some or all of the places between elements are cut."""
    cuts = [np.flatnonzero(random.random(max(0, size - 1)) < random.choice([0, 0.3, 0.6, 1])) + 1 for size in shape]
    return tuple(tuple(np.diff([0, *places, size]).tolist()) for places, size in zip(cuts, shape, strict=True))


def run_dask(case: Case, random: np.random.Generator, **more) -> Outputs:
    """The function of unpool.dask, computed; lazy until then, and what it says of itself is right."""
    count = ARRAYS[case.operator]
    inputs = [
        da.from_array(x, chunks(random, x.shape)) if number < count else x for number, x in enumerate(case.inputs)
    ]
    function = getattr(unpool.dask, FUNCTIONS[case.operator])
    lazy = as_tuple(function(*inputs, **keywords(case), opset=case.opset, **more))
    with dask.config.set(scheduler="synchronous"):
        computed = dask.compute(*lazy)
    for array, values in zip(lazy, computed, strict=True):
        assert (array.shape, array.dtype, array._meta.dtype) == (values.shape, values.dtype, values.dtype)
    return computed


def check(seed: int, chunk_seed: int) -> str:
    """What a case is: "equal", "refused" as by the oracle, or "open", if only all of the indices could decide."""
    case, expected = judged(seed)
    message, got = "", ()
    try:
        got = run_dask(case, np.random.default_rng(chunk_seed))
    except unpool.UnpoolError as error:
        message = str(error)
    if "no chunk has all indices" in message:
        assert (case.index_space, case.inputs[2] is None) == ("auto", False), message
        return "open"
    if message:
        assert expected is None, f"{case.name}: {message}"
        assert re.match(rf"{case.operator}(-\d+)?( \([a-z.]+\))?: .", message), message
        return "refused"
    assert expected is not None, f"{case.name}: accepted"
    assert_outputs(case, got, expected)
    return "equal"
