"""Several outputs of one run, blended windows in files, and what is left of earlier runs."""

import errno
import os

import numpy as np
import pytest

from tests.runtime.streams.test_run import IMAGE, TILE, TILES, StoppedError, content, stop_after
from tests.runtime.streams.test_run import session as session
from tests.support import models
from unpool import InferenceSession, images, streams, tiles
from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.images.sink import RawArrayFile
from unpool.runtime.streams.checkpoint import done_marker, partial_folder

MANY = """many (float[1, 1, h, w] x, float[1, 1, hh, hw] mask) => (float[1, 1, hh, hw] half, int64[1, 1, a, b] best,
        float[1, 1, h, w] full) {
    s = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    half = Add (s, mask)
    low, best = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (half)
    full = Abs (x)
}"""
CENTRED = """centred (float[n, 2, h, w] x) => (float[n, 2, h, w] y, float[n, 2, hh, ww] half) {
    m = GlobalAveragePool (x)
    y = Sub (x, m)
    half = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (y)
}"""


@pytest.fixture(scope="module")
def centred():
    """What cannot be tiled exactly, with outputs of two sizes."""
    return InferenceSession(models.model(CENTRED))


def many(folder):
    """A model of two inputs and three outputs of different strides, what it gets, and where its outputs go."""
    session = InferenceSession(models.model(MANY), index_space="output")
    random = np.random.default_rng(2)
    feed = {"x": random.random((1, 1, 42, 50), np.float32), "mask": random.random((1, 1, 21, 25), np.float32)}
    return session, feed, {"half": folder / "half.npy", "best": folder / "best.zarr", "full": folder / "full.tif"}


def test_several_outputs_are_written_in_one_run(tmp_path):
    """Inputs and outputs of different strides, three formats, ended in the middle: each is that of the whole."""
    session, feed, targets = many(tmp_path)
    with pytest.raises(StoppedError):
        streams.run(session, feed, targets, (8, 12), on_progress=stop_after(4))
    assert not any(target.exists() for target in targets.values())
    done = streams.run(session, feed, targets, (8, 12), resume=True)
    assert 3 <= done.progress.resumed < done.progress.tiles
    for value, whole in zip(session.get_outputs(), session.run(None, feed), strict=True):
        file = done.files[value.name]
        assert (file.path, file.shape, file.dtype) == (targets[value.name], whole.shape, whole.dtype)
        made = images.open(file.path)
        np.testing.assert_array_equal(made[tuple(slice(None) for _ in made.shape)], whole)
    assert not partial_folder(targets).exists()


def test_several_outputs_want_a_place_each(tmp_path):
    """Unknown outputs, none, several for one place, one place twice, two folders: one error, and nothing is written."""
    session, feed, targets = many(tmp_path)
    half = tmp_path / "half.npy"
    for target, options, says in (
        ({"z": half}, {}, "got z"),
        ({}, {}, "got none"),
        (targets, {"output": "half"}, "no `output` in addition"),
        (half, {}, "expected one of half, best, full"),
        ({"half": half, "full": half}, {}, "names of their own"),
        ({"half": half, "full": tmp_path / "other" / "full.npy"}, {}, "in one folder"),
    ):
        with pytest.raises(UnpoolError, match=says):
            streams.run(session, feed, target, (8, 8), **options)
    assert list(tmp_path.iterdir()) == []


def test_complete_outputs_are_not_made_again(session, tmp_path, monkeypatch):
    """A second `resume` computes nothing; other settings and another input are refused; a changed file is made."""
    target, feed = tmp_path / "y.npy", {"x": IMAGE}
    streams.run(session, feed, target, TILE)
    before = content(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(session, "run", None)
        done = streams.run(session, feed, target, TILE, resume=True)
    assert (done.was_complete, done.progress.tiles, done.shape) == (True, TILES, (1, 3, 23, 31))
    with pytest.raises(UnpoolError, match=r"the earlier run used --tile 16x20\. Use that, or leave out --resume"):
        streams.run(session, feed, target, (8, 8), resume=True)
    with pytest.raises(UnpoolError, match=r"the earlier run read another input 'x'\. Give that one, or leave out"):
        streams.run(session, {"x": IMAGE + 1}, target, TILE, resume=True)
    assert content(tmp_path) == before
    for damaged in (target, done_marker(target)):
        damaged.write_bytes(b"damaged")
        assert not streams.run(session, feed, target, TILE, resume=True).was_complete
        assert content(tmp_path)["y.npy"] == before["y.npy"]


@pytest.mark.parametrize("ending", [".npy", ".zarr"])
def test_blended_files_are_those_of_memory(centred, ending, tmp_path):
    """Band by band, ended twice and gone on with, files hold the numbers of `tiles.blend` for a batch of images."""
    image = np.random.default_rng(1).random((2, 2, 41, 30), np.float32)
    words = {"overlap": 0.5, "mode": "gaussian"}
    whole = tiles.blend(centred, {"x": image}, (12, 8), **words)
    targets = {name: tmp_path / f"{name}{ending}" for name in whole}
    per_band = 7  # windows
    for bands in (1, 4):
        stop = stop_after(bands * per_band)
        with pytest.raises(StoppedError):
            streams.blend(centred, {"x": image}, targets, (12, 8), resume=True, on_progress=stop, **words)
    done = streams.blend(centred, {"x": image}, targets, (12, 8), resume=True, **words)
    assert (done.progress.tiles, done.progress.resumed >= 4 * per_band) == (12 * per_band, True)
    for name, expected in whole.items():
        np.testing.assert_array_equal(images.open(targets[name])[(slice(None),) * 4], expected)
    assert streams.blend(centred, {"x": image}, targets, (12, 8), resume=True, **words).was_complete
    with pytest.raises(UnpoolError, match=r"the earlier run used --overlap 0\.5"):
        streams.blend(centred, {"x": image}, targets, (12, 8), resume=True, mode="gaussian")


def test_blending_keeps_to_memory_or_says_how_much_it_takes(centred, tmp_path):
    """A band that takes more than `max_memory` is refused before anything is written; channels can be chosen."""
    image = np.random.default_rng(1).random((1, 2, 9, 30), np.float32)
    with pytest.raises(ShapeError, match=r"too small: .* over the width of the image"):
        streams.blend(centred, {"x": image}, tmp_path / "y.npy", 12, output="y", max_memory=1 << 20)
    assert list(tmp_path.iterdir()) == []
    done = streams.blend(centred, {"x": image}, tmp_path / "y.npy", 12, output="y", argmax=True, max_memory=1 << 40)
    expected = tiles.blend(centred, {"x": image}, 12, outputs=["y"])["y"].argmax(1)
    assert done.dtype == np.uint8
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.parametrize("place", ["reserve", "write", "journal", "record"])
def test_a_full_disk_is_one_error_and_can_be_gone_on_from(session, place, tmp_path, monkeypatch):
    """Wherever the disk is full, the target is named and does not appear; with room again, the run goes on."""
    target, calls = tmp_path / "y.npy", []

    def full(*_, **__):
        calls.append(place)
        if place == "reserve" or len(calls) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(*_, **__)

    module = "unpool.runtime.streams"
    where = {
        "reserve": "unpool.images.sink.reserve",
        "write": "unpool.images.sink.RawArrayFile.write",
        "journal": f"{module}.checkpoint.sync",
        "record": f"{module}.checkpoint.write_done_marker",
    }[place]
    plain = {"write": RawArrayFile.write, "journal": lambda _: None}.get(place)
    if place == "record":
        calls += [place] * 3
    with monkeypatch.context() as patched:
        patched.setattr(where, full)
        with pytest.raises(FileError, match=r"y\.npy: cannot be written \(No space left on device\)"):
            streams.run(session, {"x": IMAGE}, target, TILE)
    assert target.exists() == (place == "record")
    done = streams.run(session, {"x": IMAGE}, target, TILE, resume=True)
    assert done.progress.resumed == {"reserve": 0, "write": 3, "journal": 3, "record": TILES}[place]
    np.testing.assert_array_equal(np.load(target), session.run(None, {"x": IMAGE})[0])
