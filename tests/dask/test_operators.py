"""The operators on dask arrays: equal to the oracle for any chunks, lazy, and clear about what cannot be."""

import runpy
from pathlib import Path

import dask
import dask.array as da
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import unpool
import unpool.dask
from tests.cases.generated import case
from tests.dask.cases import check, chunks
from tests.support import strategies
from unpool.dask import conv_transpose, max_pool, max_unpool

SEEDS = [seed for seed in range(600) if case(seed).inputs[0].dtype == np.float32]
"""Random cases of one type, to compile few kernels; `python -m tools.campaigns.dask_chunks` takes all."""

TILES = {"kernel_shape": [2, 2], "strides": [2, 2]}
bounded = settings(deadline=None, max_examples=35, derandomize=True)


@pytest.fixture(autouse=True)
def _in_this_thread():
    """What a task raises, and the time it takes, are seen at once."""
    with dask.config.set(scheduler="synchronous"):
        yield


def lazily(array, random):
    """A dask array of random chunks."""
    return da.from_array(array, chunks(random, array.shape))


@bounded
@given(st.sampled_from(SEEDS), st.integers(0, 2**16))
def test_any_chunks_give_the_oracles_answer(seed, chunk_seed):
    """Every operator with all its attributes, ranks and layouts, on chunks of any sizes, is equal or refused alike."""
    check(seed, chunk_seed)


@bounded
@given(strategies.pools(), st.integers(0, 2**16))
def test_a_pool_is_undone_chunk_by_chunk(pool, chunk_seed):
    """With local=True, and so without waiting for all chunks, unpooling gives what NumPy's does, bit for bit."""
    random = np.random.default_rng(chunk_seed)
    y, indices = max_pool(lazily(pool.x, random), **pool.window, return_indices=True)
    back = max_unpool(y, indices, pool.x.shape, **pool.window, index_space="output", local=True)
    whole = unpool.max_pool(pool.x, **pool.window, return_indices=True)
    expected = unpool.max_unpool(*whole, pool.x.shape, **pool.window, index_space="output")
    assert back.compute().tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_indices_may_lead_to_other_chunks(seed):
    """Elements go to any place of the output, across chunks and planes, and of equal indices the last one wins."""
    random = np.random.default_rng(seed)
    x = random.random((2, 3, 4, 5), np.float32)
    indices = random.integers(0, 2 * 3 * 8 * 10, x.shape)
    y = max_unpool(lazily(x, random), lazily(indices, random), **TILES)
    assert np.array_equal(y.compute(), unpool.max_unpool(x, indices, **TILES))


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("wrong", [-1, 480, 2**62, -(2**63)])
def test_hostile_indices_raise_when_computed(local, wrong):
    """An index outside the tensor is found by the task that reads it; the message has its place in the whole."""
    x, indices = np.ones((2, 3, 4, 5), np.float32), np.zeros((2, 3, 4, 5), np.int64)
    indices[...] = unpool.max_pool(np.zeros((2, 3, 8, 10), np.float32), **TILES, return_indices=True)[1]
    indices[1, 2, 3, 0] = wrong
    y = max_unpool(da.from_array(x, (1, 2, 2, 3)), da.from_array(indices, (2, 3, 4, 5)), **TILES, local=local)
    with pytest.raises(unpool.IndicesError, match=rf"0 to 479, got {wrong} at \[1, 2, 3, 0\]"):
        y.compute()


def test_local_is_checked():
    """An index of the tensor, but of another window than its element's, is no silent loss."""
    indices = np.array([[[0, 2, 5, 1]]])
    x, window = da.ones((1, 1, 4), dtype=np.float32), {"kernel_shape": 2, "strides": 2}
    y = max_unpool(x, da.from_array(indices, (1, 1, 2)), **window, local=True)
    with pytest.raises(unpool.IndicesError, match=r"got 1 at \[0, 0, 3\]"):
        y.compute()


def never(*_, **__):
    raise AssertionError("computed")


def test_nothing_is_computed_before_it_is_asked_for():
    """Building the graph reads no chunk; the same call has the same keys; types and shapes are known."""
    x = da.map_blocks(never, chunks=((1, 1), (3,), (5, 4), (7,)), meta=np.empty((0,) * 4, np.float32))
    y, indices = max_pool(x, **TILES, return_indices=True)
    back = max_unpool(y, indices, **TILES)
    grown = conv_transpose(back, np.ones((3, 2, 2, 2), np.float32), strides=2)
    assert (y.chunks, indices.dtype) == (((1, 1), (3,), (3, 1), (3,)), np.int64)
    assert (grown.shape, grown.dtype, grown._meta.dtype) == ((2, 2, 16, 12), np.float32, np.float32)
    assert conv_transpose(back, np.ones((3, 2, 2, 2), np.float32), strides=2).name == grown.name
    with pytest.raises(AssertionError, match="computed"):
        grown.compute()


def test_a_task_takes_one_thread(monkeypatch):
    """Dask has as many tasks at once as there are cores, so a task takes no more than its own."""
    seen = []
    for name in ("max_pool", "max_unpool", "conv_transpose"):
        real = getattr(unpool.functional, name)
        spy = lambda *args, real=real, **words: (seen.append(words["threads"]), real(*args, **words))[1]  # noqa: E731
        monkeypatch.setattr(unpool.functional, name, spy)
    y, indices = max_pool(da.ones((1, 1, 4, 4), dtype=np.float32), **TILES, return_indices=True)
    conv_transpose(max_unpool(y, indices, **TILES), np.ones((1, 1, 2, 2), np.float32)).compute()
    assert seen == [1, 1, 1]


def test_weights_may_be_dask_arrays():
    """Weights and bias of several chunks reach every task whole."""
    random = np.random.default_rng(0)
    x, w, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((1, 4, 6), (4, 2, 3), (4,)))
    lazy = [da.from_array(array, (1, 2, 2)[: array.ndim]) for array in (x, w, b)]
    assert np.array_equal(conv_transpose(*lazy, group=2).compute(), unpool.conv_transpose(x, w, b, group=2))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: max_pool(x[x[:, 0, 0, 0] > 0], **TILES), unpool.ShapeError, "compute_chunk_sizes"),
        (lambda x: max_pool(x.compute(), **TILES), unpool.UnpoolError, "expected a dask array, got ndarray"),
        (lambda x: max_pool(x, kernel_shape=[9, 9]), unpool.ShapeError, "Pad more"),
        (lambda x: max_unpool(x, x.astype(int), (1, 1, 9, 9), **TILES), unpool.UnpoolError, "no chunk has all indices"),
        (lambda x: max_unpool(x, x, **TILES), unpool.UnpoolError, "I expects int64"),
        (lambda x: max_unpool(x, x.astype(np.int64), x.sum(), **TILES), unpool.UnpoolError, "Compute it first"),
        (lambda x: conv_transpose(x, np.ones((1, 1, 2, 2))), unpool.UnpoolError, "X and W need one type"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_computed(call, error, says):
    """Unknown sizes, other arrays, and all that shapes and types forbid are refused when the graph is built."""
    with pytest.raises(error, match=says):
        call(da.ones((1, 1, 4, 4), chunks=2, dtype=np.float32))


def test_the_extra_is_named(monkeypatch):
    """Without dask the module says what to install."""
    monkeypatch.setattr("unpool.extras.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[dask\]'"):
        runpy.run_path(str(Path(unpool.dask.__file__)))
