"""Memory of workers: runs within their limits, forecasts, and workers that Dask pauses, or that are killed."""

import logging
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from dask import config
from distributed import Client, LocalCluster

import unpool
from tests.dask.cases import NO_DASHBOARD
from tests.dask.deadly import Deadly, Hungry
from tests.support import models
from unpool import tiles
from unpool.runtime.tiles.tiler import Tiler

pytestmark = pytest.mark.slow

COINS = str(Path(unpool.__file__).parent / "data" / "coins.onnx")
CLUSTER = {"threads_per_worker": 1, **NO_DASHBOARD}
UNET = """net (float[1, 3, h, w] x) => (float[1, 2, a, b] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    b = Relu (a)
    c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
    d = Conv <pads = [1, 1, 1, 1]> (c, w2)
    e = Relu (d)
    f = ConvTranspose <strides = [2, 2]> (e, w3)
    g = Concat <axis = 1> (f, b)
    y = Conv (g, w4)
}"""
VOLUME = """net (float[1, 1, d, h, w] x) => (float[1, 2, a, b, c] y) {
    r = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w1)
    s = Relu (r)
    t, places = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (s)
    u = MaxUnpool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (t, places)
    y = Conv <pads = [1, 1, 1, 1, 1, 1]> (u, w2)
}"""
WEIGHTS = {
    "unet": {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 16, 2, 2), "w4": (2, 32, 1, 1)},
    "volume": {"w1": (8, 1, 3, 3, 3), "w2": (2, 8, 3, 3, 3)},
}


def random(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def set_pause_fraction(client, fraction):
    """Set the share of its memory limit above which Dask pauses a worker."""
    client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_pause_fraction", fraction))


@pytest.mark.parametrize(
    ("memory", "limit", "says"), [("1GiB", 1024, "MiB, in an arena"), ("360MiB", 360, "too small for an arena")]
)
def test_two_small_workers_run_tiles_of_many_shapes(tmp_path, caplog, memory, limit, says):
    """Dask pauses none of them, whether they have memory for an arena or not; bits are those of one machine."""
    image, session = random(1, 1, 1600, 1600), unpool.InferenceSession(COINS, threads=1)
    caplog.set_level(logging.INFO, "unpool.cluster")
    stored = zarr.create_array(tmp_path / "x.zarr", data=image, chunks=(1, 1, 500, 500))
    peaks = []
    with LocalCluster(n_workers=2, memory_limit=memory, **CLUSTER) as cluster, Client(cluster) as client:
        words = {"pause_timeout": 60, "on_progress": lambda now: peaks.append(now.peak)}
        made = unpool.map_tiles(session, stored, (512, 512), client=client, to=tmp_path / "y.zarr", **words)
        after = [worker["metrics"]["memory"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    whole = tiles.run(session, {"image": image}, (512, 512))
    assert np.array_equal(made["logits"][...], whole["logits"])
    assert max(*after, peaks[-1]) < 0.8 * (limit << 20)
    assert says in caplog.text


def test_two_workers_of_one_gibibyte_are_killed_and_paused(tmp_path):
    """A worker that dies and a pause of all of them, which ends, change nothing about the results."""
    image, session, done = random(1, 1, 1200, 1200), unpool.InferenceSession(COINS, threads=1), []
    (tmp_path / "deaths").mkdir()
    deadly = Deadly(image, (700, 700), tmp_path / "deaths", most=1)
    with LocalCluster(n_workers=2, memory_limit="1GiB", **CLUSTER) as cluster, Client(cluster) as client:

        def pause(now):
            done.append(now.done)
            if now.done == 2:
                set_pause_fraction(client, 0.01)
                threading.Timer(4, lambda: set_pause_fraction(client, 0.8)).start()

        made = unpool.map_tiles(
            session, deadly, (256, 256), client=client, to=tmp_path / "y.zarr", pause_timeout=100, on_progress=pause
        )
    assert len(list((tmp_path / "deaths").iterdir())) == 1
    assert done == list(range(1, 26))
    assert np.array_equal(made["logits"][...], tiles.run(session, {"image": image}, (256, 256))["logits"])


@pytest.mark.parametrize(
    ("name", "shape", "tile"),
    [
        ("coins", (1, 1, 1600, 1600), (512, 512)),
        ("coins", (1, 1, 2100, 2100), (1024, 1024)),
        ("unet", (1, 3, 2048, 2048), (1024, 1024)),
        ("volume", (1, 1, 200, 200, 200), (128, 128, 128)),
    ],
)
def test_the_forecast_is_close_to_the_peak(tmp_path, name, shape, tile):
    """What an error says that a worker needs is within 15 % of the peak of its process with this limit.

    `unpool inspect` prints the part of it that a tile takes.
    """
    path = COINS
    if name != "coins":
        path = tmp_path / "net.onnx"
        weights = {key: random(*size) for key, size in WEIGHTS[name].items()}
        path.write_bytes(models.model({"unet": UNET, "volume": VOLUME}[name], **weights).SerializeToString())
    session, peaks = unpool.InferenceSession(str(path)), []
    image = zarr.create_array(tmp_path / "x.zarr", data=random(*shape))
    arguments = {"to": tmp_path / "y.zarr", "on_progress": lambda now: peaks.append(now.peak)}
    off = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
    words = {"n_workers": 1, "memory_limit": "16MiB", **CLUSTER}
    with config.set(off), LocalCluster(**words) as cluster, Client(cluster) as client:
        with pytest.raises(unpool.ShapeError) as refused:
            unpool.map_tiles(session, image, tile, client=client, **arguments)
        assert not (tmp_path / "y.zarr").exists()
        pattern = r"needs about (\d+) MiB.* and (\d+) MiB for a tile that reads ([0-9x]+)"
        ((*sizes, shape),) = re.findall(pattern, str(refused.value))
        needed, of_tile = map(int, sizes)
        limit = int(needed * 1.1) << 20
        client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_limit", limit))
        unpool.map_tiles(session, image, tile, client=client, **arguments)
    assert abs(needed / (peaks[-1] / 2**20) - 1) < 0.15, (needed, peaks[-1] / 2**20)
    read = {session.get_inputs()[0].name: tuple(map(int, shape.split("x")))}
    assert round(Tiler(session).lean_bytes(read) / 2**20) == of_tile


def test_workers_that_exceed_their_memory_are_named(tmp_path):
    """Dask ends a worker that takes too much, and starts it again; after some tries the error names the last one."""
    session = unpool.InferenceSession(COINS)
    hungry = Hungry(random(1, 1, 300, 300), 2 << 30)
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.worker.memory.monitor-interval": "50ms"}
    words = {"n_workers": 2, "memory_limit": "1GiB", **CLUSTER}
    with config.set(settings), LocalCluster(**words) as cluster, Client(cluster) as client:
        begin = time.monotonic()
        with pytest.raises(unpool.UnpoolError, match=r"2 workers died while they ran tile \d at .*the last one tcp://"):
            unpool.map_tiles(session, hungry, (128, 128), client=client, to=tmp_path / "y.zarr")
    assert time.monotonic() - begin < 200
    assert not zarr.open_array(tmp_path / "y.zarr", mode="r").attrs["unpool_finished"]
