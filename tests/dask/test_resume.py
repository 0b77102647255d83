"""Runs on a cluster that end early: they are resumed from what is written; their outputs, masks and progress."""

import contextlib
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from dask import config
from distributed import Client, LocalCluster
from distributed.core import Status
from typer.testing import CliRunner

import unpool
from tests.dask.cases import NO_DASHBOARD
from tests.support import models
from unpool import streams
from unpool.cli.app import app
from unpool.memory import rss

MODEL = """net (float[1, 1, height, width] x) => (float[1, 3, h, w] y, int64[2] two) {
    pooled, places = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
    a = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, places)
    b = Neg (a)
    c = Add (b, a)
    y = Concat <axis = 1> (a, b, c)
    two = Constant <value_ints = [1, 2]> ()
}"""
TILES = 18  # of 8x10 in 20x52
SETTINGS = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}


@pytest.fixture(scope="module")
def client():
    """A client of a worker in this process, which no one pauses."""
    words = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "memory_limit": "64GiB", **NO_DASHBOARD}
    with config.set(SETTINGS), LocalCluster(**words) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def here(here):
    """A folder with the model and an image, as the current one."""
    (here / "net.onnx").write_bytes(models.model(MODEL).SerializeToString())
    zarr.create_array("x.zarr", data=np.random.default_rng(0).random((1, 1, 20, 52), np.float32))
    return here


@pytest.fixture
def session(here):
    return unpool.InferenceSession("net.onnx")


@pytest.fixture
def image(here):
    return zarr.open_array("x.zarr", mode="r")


def interrupt(session, image, client, to, after=4, **words):
    """A run that Ctrl-C ends after some tiles."""

    def stop(now):
        if now.done == after:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        unpool.map_tiles(session, image, (8, 10), client=client, to=to, on_progress=stop, **words)


@contextlib.contextmanager
def memory_limit(client, size):
    """Another memory limit for each worker."""

    def change(limit):
        client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_limit", limit))

    change(size)
    yield
    change(64 << 30)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("y.zarr", {"outputs": ["y"], "argmax": True}),
        ("y.zarr", {"outputs": ["y"]}),
        ("y.tif", {"outputs": ["y"], "argmax": True}),
        ("all.zarr", {}),
    ],
)
def test_an_interrupted_run_is_resumed(client, session, image, to, words):
    """Only the missing tiles run again, and the output is that of a run without interruption.

    All classes are 0 here: chunks of zeros are known to be written, too.
    """
    interrupt(session, image, client, to, **words)
    seen = []
    more = {"resume": True, "on_progress": seen.append, **words}
    made = unpool.map_tiles(session, image, (8, 10), client=client, to=to, **more)
    assert seen[-1].resumed >= 4
    assert len(seen) == 1 + seen[-1].tiles - seen[-1].resumed
    assert seen[-1].done == seen[-1].tiles == TILES
    (whole,) = session.run(["y"], {"x": image[...]})
    expected = whole.argmax(1) if words.get("argmax") else whole
    stored = tifffile.imread(to) if to == "y.tif" else made["y"][...]
    assert np.array_equal(stored.reshape(expected.shape), expected)
    if to == "all.zarr":
        assert made["two"][...].tolist() == [1, 2]


@pytest.mark.parametrize("to", ["y.zarr", "y.npy"])
def test_what_an_interruption_leaves_is_not_overwritten(client, session, image, to):
    """Without `resume` the error says what lies there; with it and other settings, which one differs."""
    interrupt(session, image, client, to, outputs=["y"])
    words = {"client": client, "to": to, "outputs": ["y"]}
    with pytest.raises(unpool.UnpoolError, match=r"is left from an interrupted run\. Add --resume"):
        unpool.map_tiles(session, image, (8, 10), **words)
    with pytest.raises(unpool.UnpoolError, match=r"used --tile 8x10.*delete .* to start over"):
        unpool.map_tiles(session, image, (8, 16), resume=True, **words)
    other = zarr.create_array("other.zarr", data=image[...] + 1)
    with pytest.raises(unpool.UnpoolError, match="read another input 'x'"):
        unpool.map_tiles(session, other, (8, 10), resume=True, **words)


@pytest.mark.parametrize("to", ["y.zarr", "y.npy"])
def test_a_complete_output_is_not_computed_again(client, session, image, to):
    """With `resume` nothing runs, and the progress says so."""
    words = {"client": client, "to": to, "outputs": ["y"]}
    unpool.map_tiles(session, image, (8, 10), **words)
    seen = []
    unpool.map_tiles(session, image, (8, 10), resume=True, on_progress=seen.append, **words)
    assert [now.was_complete for now in seen] == [True]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", [{"argmax": True}, {"softmax": True}, {}])
@pytest.mark.parametrize("suffix", ["zarr", "npy", "tif"])
def test_a_cluster_writes_what_one_machine_writes(client, session, image, suffix, kind):
    """Masks, probabilities and scores have the same type and bits in every format."""
    streams.run(session, {"x": "x.zarr"}, f"one.{suffix}", (8, 10), output="y", **kind)
    unpool.map_tiles(session, image, (8, 10), client=client, to=f"many.{suffix}", outputs=["y"], **kind)
    if suffix == "zarr":
        one, many = (zarr.open_array(f"{name}.zarr", mode="r") for name in ("one", "many"))
        assert one.dtype == many.dtype
        assert np.array_equal(one[...], many[...])
    else:
        assert Path(f"one.{suffix}").read_bytes() == Path(f"many.{suffix}").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"to": "y.png"}, r"y\.png: tiles of a cluster go into .*\.zarr.*got \.png"),
        ({"to": "y.tif"}, "holds one output, got y, two"),
        ({"to": "y.zarr", "argmax": True}, "'two': does not depend on the image"),
        ({"to": "y.zarr", "argmax": True, "softmax": True}, "expected one of argmax, softmax"),
        ({"to": "y.zarr", "pause_timeout": 0}, "expected a number of seconds above 0"),
    ],
)
def test_an_output_that_cannot_be_made_is_refused_at_once(client, session, image, here, words, says):
    """The message names the argument, and nothing is written."""
    before = sorted(here.iterdir())
    with pytest.raises(unpool.UnpoolError, match=says):
        unpool.map_tiles(session, image, (8, 10), client=client, **words)
    assert sorted(here.iterdir()) == before


def test_a_worker_that_is_too_small_is_named_before_anything_is_written(client, session, image, here):
    """The error has the limit and the need."""
    before = sorted(here.iterdir())
    with memory_limit(client, 40 << 20), pytest.raises(unpool.ShapeError, match=r"limit of 40 MiB .* about \d+ MiB"):
        unpool.map_tiles(session, image, (8, 10), client=client, to="y.zarr")
    assert sorted(here.iterdir()) == before


def test_a_worker_with_little_memory_keeps_none(client, session, image, caplog):
    """It has no arena, which the log says; with more memory the next run has one, and results are equal."""
    caplog.set_level(logging.INFO, "unpool.cluster")
    for name, size in (("little", rss() + (300 << 20)), ("much", 64 << 30)):  # the pool of this process takes more
        with memory_limit(client, size):
            made = unpool.map_tiles(session, image, (8, 10), client=client, to=f"{name}.zarr", outputs=["y"])
        assert np.array_equal(made["y"][...], session.run(["y"], {"x": image[...]})[0])
    kinds = [record.getMessage() for record in caplog.records if record.name == "unpool.cluster"]
    assert ["in an arena" in kind for kind in kinds] == [False, True]
    assert "too small for an arena" in kinds[0]


def test_paused_workers_are_named(client, session, image, caplog):
    """A warning, and after the timeout an error, say that all workers are paused, and at how much memory."""

    def set_status(status):
        client.run(lambda dask_worker: setattr(dask_worker, "status", status))

    set_status(Status.paused)
    try:
        with pytest.raises(unpool.UnpoolError, match=r"all workers are paused: \d+ of \d+ MiB"):
            unpool.map_tiles(session, image, (8, 10), client=client, to="y.zarr", pause_timeout=0.2)
    finally:
        set_status(Status.running)
    assert "all workers are paused" in caplog.text
    unpool.map_tiles(session, image, (8, 10), client=client, to="y.zarr", pause_timeout=math.inf)


def test_the_command_writes_masks_and_resumes(client, session, image, here):
    """`--argmax` and `--resume` work as on one machine; the line about the result counts tiles."""
    words = ["net.onnx", "-i", "x.zarr", "--output-name", "y", "--tile", "8x10", "--argmax"]
    on_cluster = [*words, "--scheduler", client.scheduler.address]
    interrupt(session, image, client, "mask.zarr", outputs=["y"], argmax=True)
    refused = CliRunner().invoke(app, ["run", *on_cluster, "-o", "mask.zarr"])
    resumed = CliRunner().invoke(app, ["run", *on_cluster, "-o", "mask.zarr", "--resume"])
    one = CliRunner().invoke(app, ["run", *words, "-o", "one.zarr"])
    assert (refused.exit_code, "is left from an interrupted run" in refused.stderr) == (3, True)
    assert (resumed.exit_code, one.exit_code) == (0, 0), resumed.output
    assert f"{TILES} tiles (" in resumed.stdout
    assert "from the interrupted run), peak memory" in resumed.stdout
    mask = zarr.open_array("mask.zarr", mode="r")
    assert mask.dtype == np.uint8
    assert np.array_equal(mask[...], zarr.open_array("one.zarr", mode="r")[...])
