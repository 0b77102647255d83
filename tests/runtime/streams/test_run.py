"""Runs over files: the results of the whole, and after any end the bytes of a run that was never ended."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support import models
from unpool import InferenceSession, streams
from unpool.errors import FileError, ShapeError, UnpoolError, UnsupportedError
from unpool.runtime.streams import jobs
from unpool.runtime.streams.checkpoint import partial_folder

IMAGE = np.random.default_rng(5).random((1, 3, 45, 62), np.float32)
IMAGE[:, :, :20, :24] = 0
TILE = (16, 20)
TILES = 12


@pytest.fixture(scope="module")
def session():
    """A pool whose windows overlap, so that tiles need a halo."""
    return InferenceSession(models.halves("c"))


class StoppedError(Exception):
    """The end of a run."""


def stop_after(tiles):
    def on_progress(progress):
        if progress.done - progress.resumed == tiles:
            raise StoppedError

    return on_progress


def content(path):
    """The bytes of a file, or of all files of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(file.relative_to(path)): file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize("ending", [".npy", ".zarr", ".tif"])
def test_ended_runs_go_on_to_the_same_bytes(session, ending, tmp_path):
    """Ended after one tile, and again after five more, a run gives the bytes of one that was never ended."""
    made, whole = tmp_path / f"made{ending}", tmp_path / f"whole{ending}"
    progress = streams.run(session, {"x": IMAGE}, whole, TILE).progress
    assert (progress.tiles, progress.resumed, progress.done) == (TILES, 0, TILES)
    for tiles in (1, 5):
        with pytest.raises(StoppedError):
            streams.run(session, {"x": IMAGE}, made, TILE, resume=True, on_progress=stop_after(tiles))
        assert not made.exists()
    last = streams.run(session, {"x": IMAGE}, made, TILE, resume=True)
    assert last.progress.resumed >= 6
    assert content(made) == content(whole)
    assert not partial_folder({"y": made}).exists()
    if ending == ".npy":
        np.testing.assert_array_equal(np.load(made), session.run(None, {"x": IMAGE})[0])


def unfinished(session, folder, tiles=4):
    """A run that was ended, into y.npy."""
    with pytest.raises(StoppedError):
        streams.run(session, {"x": IMAGE}, folder / "y.npy", TILE, on_progress=stop_after(tiles))
    return partial_folder({"y": folder / "y.npy"})


def test_a_tile_counts_by_its_content(session, tmp_path):
    """A tile whose data are not what the journal says is run again; so is one whose line was cut short."""
    part = unfinished(session, tmp_path)
    data = bytearray((part / "y.npy").read_bytes())
    data[128:136] = b"damaged!"
    (part / "y.npy").write_bytes(data)
    lines = (part / "journal").read_bytes().splitlines(keepends=True)
    (part / "journal").write_bytes(b"".join(lines[:-1]) + lines[-1][:-3])
    done = streams.run(session, {"x": IMAGE}, tmp_path / "y.npy", TILE, resume=True)
    assert done.progress.resumed < len(lines) - 2
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), session.run(None, {"x": IMAGE})[0])


def test_what_ends_between_the_last_tile_and_the_name_goes_on(session, tmp_path):
    """The data may have been moved already: then there is nothing left to do but to tidy up."""
    part, kept = unfinished(session, tmp_path, TILES), tmp_path / "kept"
    shutil.copytree(part, kept)
    streams.run(session, {"x": IMAGE}, tmp_path / "y.npy", TILE, resume=True)
    (kept / "y.npy").unlink()
    kept.rename(part)
    done = streams.run(session, {"x": IMAGE}, tmp_path / "y.npy", TILE, resume=True)
    assert (done.progress.resumed, part.exists()) == (TILES, False)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), session.run(None, {"x": IMAGE})[0])


def test_another_run_does_not_resume(session, tmp_path):
    """Without `resume`, with other settings or another input, a run is refused, and nothing is touched."""
    part = unfinished(session, tmp_path)
    before = (part / "journal").read_bytes()
    target, feed = tmp_path / "y.npy", {"x": IMAGE}
    with pytest.raises(UnpoolError, match=r"y\.npy\.part is left from an interrupted run\. Add --resume, or delete it"):
        streams.run(session, feed, target, TILE)
    with pytest.raises(UnpoolError, match=r"the interrupted run used --tile 16x20\. Use that, or delete .*part"):
        streams.run(session, feed, target, (8, 8), resume=True)
    with pytest.raises(UnpoolError, match=r"the interrupted run read another input 'x'\. Give that one"):
        streams.run(session, {"x": IMAGE + 1}, target, TILE, resume=True)
    with pytest.raises(UnpoolError, match=r"the interrupted run used no --argmax"):
        streams.run(session, feed, target, TILE, resume=True, argmax=True)
    with pytest.raises(UnpoolError, match=r"the interrupted run used no --blend"):
        streams.blend(session, feed, target, TILE, resume=True)
    other = InferenceSession(session.source, compat="ort")
    with pytest.raises(UnpoolError, match=r"the interrupted run had semantics"):
        streams.run(other, feed, target, TILE, resume=True)
    assert (part / "journal").read_bytes() == before


def test_best_channels_are_written(session, tmp_path):
    """`argmax` writes the number of the largest channel, the first of equals."""
    image = np.round(IMAGE * 3)
    done = streams.run(session, {"x": image}, tmp_path / "y.npy", TILE, argmax=True)
    expected = session.run(None, {"x": image})[0].argmax(1)
    assert (done.shape, done.dtype) == (expected.shape, np.uint8)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_the_limit_of_memory_chooses_tiles_of_one_shape(session, tmp_path, monkeypatch):
    """A limit cuts the image, and what every tile reads has one shape, so that memory for one serves all."""
    monkeypatch.setattr("unpool.runtime.tiles.run.rss", lambda: 0)
    read = set()
    plain = jobs.read_tile

    def noted(tile, feed):
        found = plain(tile, feed)
        read.add(found["x"].shape)
        return found

    monkeypatch.setattr(jobs, "read_tile", noted)
    image = np.random.default_rng(1).random((1, 1, 1003, 1501), np.float32)
    done = streams.run(session, {"x": image}, tmp_path / "y.npy", max_memory=45 << 20)
    assert done.progress.tiles > 1
    assert len(read) == 1
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), session.run(None, {"x": image})[0])


def test_a_run_is_resumed_with_another_limit_of_memory(session, tmp_path, monkeypatch):
    """The tiles of the interrupted run go on where they fit; where they do not, the message says what to do."""
    monkeypatch.setattr("unpool.runtime.tiles.run.rss", lambda: 0)
    monkeypatch.setattr("unpool.runtime.streams.jobs.rss", lambda: 0)
    feed = {"x": np.random.default_rng(1).random((1, 1, 1003, 1501), np.float32)}
    target, part = tmp_path / "y.npy", tmp_path / "y.npy.part"
    with pytest.raises(StoppedError):
        streams.run(session, feed, target, max_memory=55 << 20, on_progress=stop_after(1))
    with pytest.raises(
        ShapeError, match=r"Its tiles are those of the interrupted run, \d+x\d+\. Allow .* delete .*part"
    ):
        streams.run(session, feed, target, max_memory=44 << 20, resume=True)
    assert part.exists()
    done = streams.run(session, feed, target, max_memory=54 << 20, resume=True)
    assert (done.progress.resumed >= 1, part.exists()) == (True, False)


def test_inputs_and_outputs_that_do_not_fit_are_errors(session, tmp_path):
    """One clear error, and nothing is left behind."""
    scores = InferenceSession(
        models.model("p (float[1, 1, h, w] x) => (float[1, 1, 1, 1] y) { y = GlobalMaxPool (x) }")
    )
    for one, feed, name, options, kind, says in (
        (session, IMAGE, "y.png", {}, UnsupportedError, "ends in"),
        (session, IMAGE.astype(np.float64), "y.npy", {}, UnpoolError, "expected float32"),
        (session, IMAGE, "y.npy", {"tile": "some"}, UnpoolError, '"auto", or sizes'),
        (session, IMAGE, "y.npy", {"max_memory": 1}, ShapeError, "max_memory 1 byte is too small"),
        (session, IMAGE[:, :1], "y.npy", {"argmax": True}, ShapeError, "2 to 65536 channels"),
        (session, IMAGE, "none/y.npy", {"tile": TILE}, FileError, "none"),
        (scores, IMAGE[:, :1], "y.npy", {}, UnsupportedError, "pools the whole image"),
    ):
        with pytest.raises(kind, match=says):
            streams.run(one, {"x": feed}, tmp_path / name, **options)
    assert list(Path(tmp_path).iterdir()) == []
