"""Tiles on a cluster of processes: equal to the whole, also when workers are killed; an error when all of them are."""

import os

import numpy as np
import pytest
import zarr
from dask import array as da
from dask import config
from distributed import Client, LocalCluster
from typer.testing import CliRunner
from zarr.storage import LocalStore

import unpool
from tests.dask.cases import NO_DASHBOARD
from tests.dask.deadly import Deadly, Stored
from tests.support import models
from unpool.cli.app import app
from unpool.files import WriteError, lock

pytestmark = pytest.mark.slow

MODEL = """net (float[1, 1, height, width] x) => (float[1, 2, h, w] y, int64[1, 1, a, b] places, int64[4] sizes) {
    pooled, places = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
    grown = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, places)
    y = Concat <axis = 1> (grown, grown)
    sizes = Constant <value_ints = [1, 2, 3, 4]> ()
}"""
SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.deploy.lost-worker-timeout": "120s",
    "distributed.worker.memory.terminate": False,
}


@pytest.fixture(scope="module")
def client():
    """A client of two processes with one thread each. A tile may end one worker, not two."""
    words = {"n_workers": 2, "processes": True, "threads_per_worker": 1, **NO_DASHBOARD}
    with config.set(SETTINGS), LocalCluster(**words) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The session of a model in a file, which workers need not see."""
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    path.write_bytes(models.model(MODEL).SerializeToString())
    return unpool.InferenceSession(str(path))


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).random((1, 1, 40, 52), np.float32)


def require_equal(arrays, session, image):
    """Everything is there, and what the session gives for the whole image."""
    names = [value.name for value in session.get_outputs() if value.name in arrays]
    for name, whole in zip(names, session.run(names, {"x": image}), strict=True):
        assert arrays[name].dtype == whole.dtype
        assert np.array_equal(arrays[name][...], whole), name


def test_a_killed_worker_loses_nothing(client, session, image, tmp_path):
    """Workers read Zarr and write Zarr; the tiles of one that is killed in the middle are run by others."""
    (tmp_path / "deaths").mkdir()
    deadly = Deadly(image, (20, 30), tmp_path / "deaths", most=1)
    made = unpool.map_tiles(session, deadly, (8, 8), client=client, to=tmp_path / "out.zarr")
    again = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert len(list((tmp_path / "deaths").iterdir())) == 1
    assert sorted(made) == ["places", "sizes", "y"]
    assert again.attrs["unpool_finished"]
    assert again["y"].chunks == (1, 2, 8, 8)
    require_equal(again, session, image)


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr"])
def test_any_array_is_cut_where_it_can_be_read(client, session, image, tmp_path, kind):
    """NumPy arrays are cut by the client, dask arrays on the cluster, Zarr arrays by the workers."""
    array = image
    if kind == "dask":
        array = da.from_array(image, (1, 1, 17, 9))
    if kind == "zarr":
        array = zarr.create_array(tmp_path / "in.zarr", data=image, chunks=(1, 1, 16, 16))
    made = unpool.map_tiles(session, {"x": array}, (20, 30), client=client, to=tmp_path / "y.zarr", outputs=["y"])
    assert zarr.open_array(tmp_path / "y.zarr", mode="r").attrs["unpool_finished"]
    require_equal(made, session, image)


class Flickering(Stored):
    def __getitem__(self, slices):
        raise OSError("no such host")


def test_retries_are_bounded(client, session, image, tmp_path):
    """What a tile raises, after the last try, is what the caller sees."""
    with pytest.raises(OSError, match="no such host"):
        unpool.map_tiles(session, Flickering(image), (40, 52), client=client, to=tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"feed": {"z": np.zeros((1, 1, 8, 8), np.float32)}}, unpool.UnpoolError, "expected inputs x, got z"),
        ({"feed": np.zeros((1, 1, 8, 8))}, unpool.UnpoolError, "expected float32, got float64"),
        ({"tile": (8,)}, unpool.UnpoolError, "expected 2 sizes"),
        ({"threads": 0}, unpool.UnpoolError, "an int of 1 or more"),
        ({"to": "taken"}, unpool.FileError, "expected a free place"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_written(
    client, session, image, tmp_path, monkeypatch, change, error, says
):
    """Names, types, tiles, threads and an output that is in the way; nothing is written."""
    monkeypatch.chdir(tmp_path)
    zarr.create_array("taken", shape=(1,), dtype="f4")
    given = {"feed": image, "tile": (8, 8), "client": client, "to": "free", "outputs": ["y"], **change}
    with pytest.raises(error, match=says):
        unpool.map_tiles(session, given.pop("feed"), given.pop("tile"), **given)
    assert not (tmp_path / "free").exists()


@pytest.mark.parametrize("place", ["x.zarr/y.zarr", "x.zarr/c/0/y.zarr", "."])
def test_an_output_is_apart_from_the_inputs(client, session, image, here, place):
    """Inside an array that is read, or around it, nothing is written: by a path, in a store and by the command."""
    array = zarr.create_array("x.zarr", data=image)
    before = sorted(here.rglob("*"))
    for to in (place, here / place, LocalStore(place)):
        with pytest.raises(unpool.FileError, match="is an input of this run, lies in one or contains one"):
            unpool.map_tiles(session, array, (8, 8), client=client, to=to, outputs=["y"])
    if place != ".":
        words = ("--tile", "8x8", "--output-name", "y", "--scheduler", client.scheduler.address)
        done = invoke("-i", "x.zarr", "-o", place, *words)
        assert (done.exit_code, "lies in one or contains one" in done.stderr) == (3, True)
    assert sorted(here.rglob("*")) == before


def test_a_place_is_written_by_one_run_at_a_time(client, session, image, tmp_path):
    """The second run is refused before it makes an array."""
    with lock([tmp_path / "y.zarr"]), pytest.raises(WriteError, match=rf"process {os.getpid()} is writing it"):
        unpool.map_tiles(session, image, (20, 30), client=client, to=tmp_path / "y.zarr", outputs=["y"])
    assert list(tmp_path.iterdir()) == []
    made = unpool.map_tiles(session, image, (20, 30), client=client, to=tmp_path / "new" / "y.zarr", outputs=["y"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["y.zarr"]
    require_equal(made, session, image)


def invoke(*words):
    return CliRunner().invoke(app, ["run", "net.onnx", *map(str, words)])


@pytest.fixture
def here(here, image):
    """A folder with the model and an image, as the current one."""
    (here / "net.onnx").write_bytes(models.model(MODEL).SerializeToString())
    np.save("x.npy", image)
    return here


def test_the_command_runs_tiles_on_a_cluster(here, client, session, image):
    """`--scheduler` takes a .npy or a .zarr, and writes a Zarr array or a group."""
    zarr.create_array("x.zarr", data=image)
    words = ("--tile", "20x30", "--scheduler", client.scheduler.address)
    for source, target, more in (("x.npy", "y.zarr", ("--output-name", "y")), ("x.zarr", "all.zarr", ())):
        done = invoke("-i", source, "-o", target, *more, *words)
        assert done.exit_code == 0, done.output
    require_equal({"y": zarr.open_array("y.zarr", mode="r")}, session, image)
    require_equal(zarr.open_group("all.zarr", mode="r"), session, image)


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (2, ("-i", "x.npy", "-o", "y.zarr"), "expected --tile with sizes"),
        (2, ("-i", "x.npy", "-o", "y.png", "--tile", "8x8"), "-o y.png: a cluster writes one file of .npy"),
        (2, ("-i", "x.npy", "-o", "masks/", "--tile", "8x8"), "-o masks: a cluster writes one file"),
        (2, ("-i", "x.npy", "-o", "y.zarr", "--tile", "8x8", "--overlay"), "--overlay: is not for --scheduler"),
        (2, ("-i", "x.npy", "-o", "y.zarr", "--tile", "8x8", "--blend", "constant"), "--blend: is not for --scheduler"),
        (2, ("-i", "x.npy", "-o", "y.zarr", "--max-memory", "1GiB"), "--max-memory: is not for --scheduler"),
        (2, ("-i", "x.npy", "-o", "y.zarr", "--tile", "8", "--argmax", "--classes", "a,b"), "--classes: is not for"),
        (2, ("-i", "x.npy", "-o", "y.zarr", "--tile", "8x8", "--argmax", "--softmax"), "Drop one"),
        (2, ("-i", "x.npy", "-i", "x.npy", "-o", "y.zarr", "--tile", "8x8"), "another file for input"),
        (3, ("-i", "z.npy", "-o", "y.zarr", "--tile", "8x8"), "no such file"),
        (3, ("-i", "net.onnx", "-o", "y.zarr", "--tile", "8x8"), "net.onnx"),
        (3, ("-i", "x.npy", "-o", "y.zarr", "--tile", "8x8"), "no Dask scheduler answers at this address"),
    ],
)
def test_the_command_says_what_does_not_fit(here, code, words, says):
    """Options that do not go together exit with 2, files and addresses that are none with 3; nothing is written."""
    done = invoke(*words, "--scheduler", "nowhere:")
    assert (done.exit_code, (here / "y.zarr").exists()) == (code, False)
    assert says in done.output + done.stderr


def test_workers_end_for_one_tile_only_so_often(client, session, image, tmp_path):
    """A tile that ends more workers than it may, or one beside it, is named; what was written says it is not all.

    The last test of this file: it leaves a worker less.
    """
    client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    (tmp_path / "deaths").mkdir()
    deadly = Deadly(image, (0, 51), tmp_path / "deaths", most=9)
    with pytest.raises(unpool.UnpoolError, match=r"1 workers died while they ran tile \d at \[0, \d\]"):
        unpool.map_tiles(session, deadly, (40, 12), client=client, to=tmp_path / "out.zarr", outputs=["y"])
    assert not zarr.open_array(tmp_path / "out.zarr", mode="r").attrs["unpool_finished"]
    plugins = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.worker_plugins)
    assert client.submit(len, plugins).result() < 9
