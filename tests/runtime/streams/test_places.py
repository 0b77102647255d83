"""Where outputs go: nothing is replaced or removed that was not named, and nobody else writes there meanwhile."""

import os
import shutil
import stat
from contextlib import contextmanager

import numpy as np
import pytest
import zarr

from tests.runtime.streams.test_resume import session as session
from tests.runtime.streams.test_run import IMAGE, TILE, StoppedError, content, stop_after
from tests.support import models
from tools.campaigns import two_writers
from tools.campaigns.two_writers import FORMATS
from unpool import InferenceSession, images, streams
from unpool.errors import FileError, UnpoolError
from unpool.files import WriteError, lock
from unpool.files.locks import lock_of
from unpool.images.sink import OutputSpec
from unpool.runtime.streams import checkpoint
from unpool.runtime.streams.checkpoint import partial_folder, write_done_marker
from unpool.runtime.streams.partial_output import MARK, PartialOutput

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
X = IMAGE[:, :1]


def group(place):
    """A group of a level and of labels, as OME-Zarr has them."""
    made = zarr.create_group(place)
    made.create_array("0.zarr", shape=X.shape, dtype="f4")[...] = X
    made.create_group("labels").create_array("hand", shape=(4, 4), dtype="i4")[...] = 7


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_array_is_replaced_and_a_group_is_not(session, version, tmp_path):
    """Of other folders, not a file is touched: groups, arrays that are groups as well, folders of other files."""
    target = tmp_path / "y.zarr"
    zarr.create_array(str(target), shape=(3, 3), dtype="f4", zarr_format=version)
    streams.run(session, {"x": X}, target, TILE, output="y")
    np.testing.assert_array_equal(zarr.open_array(str(target), mode="r")[...], np.abs(X))
    zarr.create_array(str(tmp_path / "both.zarr"), shape=(3, 3), dtype="f4", zarr_format=2)
    (tmp_path / "both.zarr" / ".zgroup").write_text("{}")
    group(tmp_path / "group.zarr")
    for name, damage in (("deep.zarr", "[" * 100_000), ("group3.zarr", '{"node_type": "group"}'), ("list.zarr", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "zarr.json").write_text(damage)
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "file.zarr").write_bytes(b"mine")
    (tmp_path / "array.npy").mkdir()
    (tmp_path / "array.npy" / ".zarray").write_text("{}")
    before = content(tmp_path)
    for path in sorted(set(tmp_path.iterdir()) - {target, tmp_path / ".y.zarr.done"}):
        with pytest.raises(FileError, match=r"Move it, or choose another"):
            streams.run(session, {"x": X}, path, TILE, output="y")
    assert content(tmp_path) == before


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("name", "is_member"),
    [
        ("notes.txt", False),
        ("labels/hand.png", False),
        ("c/1/0/0/notes", False),
        ("0.png", False),
        ("labels.link", False),
        (".zattrs", True),
        (".DS_Store", True),
        ("c/1/0/.DS_Store", True),
        ("0.0.1.1", True),
        ("c.0.0.1.1", True),
        ("7/0/1", True),
        ("c/1/0/2.5e2c.partial", True),
        ("zarr.5e2c.partial", True),
    ],
)
def test_a_zarr_array_with_other_files_is_not_replaced(session, version, name, is_member, tmp_path):
    """Notes and labels in the folder of an array would be deleted with it; chunks, attributes and leftovers are."""
    target = tmp_path / "y.zarr"
    zarr.create_array(str(target), shape=(3, 3), dtype="f4", zarr_format=version)[...] = 1
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("link"):
        (target / name).symlink_to(tmp_path, target_is_directory=True)
    else:
        (target / name).write_bytes(b"{}")
    if is_member:
        streams.run(session, {"x": X}, target, TILE, output="y")
        np.testing.assert_array_equal(zarr.open_array(str(target), mode="r")[...], np.abs(X))
        assert not os.path.lexists(target / name)
        return
    before = content(tmp_path)
    with pytest.raises(FileError, match=rf"y\.zarr: holds {name}, which is not of the Zarr array and would be deleted"):
        streams.run(session, {"x": X}, target, TILE, output="y")
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", ["folder", "file", "link", "journal of a link"])
def test_a_part_that_no_run_made_is_kept(session, kind, tmp_path):
    """Only a folder with the mark of a run is removed, or one that is empty."""
    part, other = tmp_path / "y.npy.part", tmp_path / "other"
    other.mkdir()
    place = part if kind == "folder" else other
    if kind == "folder":
        part.mkdir()
    elif kind == "file":
        part.write_bytes(b"mine")
    else:
        part.symlink_to(other)
    (place / ("journal" if kind == "journal of a link" else "precious.txt")).write_text("mine")
    before = content(tmp_path)
    with pytest.raises(UnpoolError, match=r"was not made by a run|left from an interrupted run|not a journal"):
        streams.run(session, {"x": X}, tmp_path / "y.npy", TILE, output="y", resume="journal" in kind)
    assert content(tmp_path) == before


@pytest.mark.parametrize("left", [(), (MARK,), (MARK, "y.npy", "journal.new")], ids=str)
def test_what_a_run_left_before_its_journal_is_removed(session, left, tmp_path):
    """An end between the folder and its mark, or between the mark and the journal, needs nobody to tidy up."""
    (tmp_path / "y.npy.part").mkdir()
    for name in left:
        (tmp_path / "y.npy.part" / name).write_bytes(b"some")
    streams.run(session, {"x": X}, tmp_path / "y.npy", TILE, output="y")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.abs(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".y.npy.done", "y.npy"]


@POSIX
@pytest.mark.parametrize("count", range(5))
def test_an_interrupted_removal_blocks_no_later_run(session, count, tmp_path, monkeypatch):
    """Ended while its own data are removed, in any order, a complete run can be resumed and run once more."""
    target, unlink, scandir, calls = tmp_path / "y.zarr", os.unlink, os.scandir, []
    streams.run(session, {"x": X}, target, TILE, output="y")

    @contextmanager
    def by_name(path):
        with scandir(path) as entries:
            yield iter(sorted(entries, key=lambda entry: entry.name))

    def ended(path, **place):
        calls.append(path)
        if len(calls) == count + 1:
            raise StoppedError
        unlink(path, **place)

    def record(*arguments):
        write_done_marker(*arguments)
        monkeypatch.setattr(os, "unlink", ended)
        monkeypatch.setattr(os, "scandir", by_name)

    monkeypatch.setattr(checkpoint, "write_done_marker", record)
    with pytest.raises(StoppedError):
        streams.run(session, {"x": X}, target, TILE, output="y")
    monkeypatch.undo()
    for resume in (True, False):
        streams.run(session, {"x": X}, target, TILE, output="y", resume=resume)
        np.testing.assert_array_equal(zarr.open_array(str(target), mode="r")[...], np.abs(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".y.zarr.done", "y.zarr"]


@POSIX
def test_a_link_in_place_of_the_record_is_not_followed(session, tmp_path):
    """The run refuses a link under the hidden name of its record, and leaves the linked file as it is."""
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / ".y.npy.done").symlink_to(tmp_path / "precious.txt")
    before = content(tmp_path)
    with pytest.raises(FileError, match=r"\.y\.npy\.done: is a link, and not the record of a run"):
        streams.run(session, {"x": X}, tmp_path / "y.npy", TILE, output="y")
    assert content(tmp_path) == before


def test_an_output_is_apart_from_the_inputs(session, tmp_path):
    """The input itself, a folder around it, a place inside it, by a link or mapped, and the model: all are refused."""
    group(tmp_path / "a.zarr")
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "link.npy").symlink_to(tmp_path / "x.npy")
    (tmp_path / "m.npy").write_bytes(models.model(two_writers.MODEL).SerializeToString())
    of_file = InferenceSession(str(tmp_path / "m.npy"))
    level, mapped = tmp_path / "a.zarr" / "0.zarr", np.load(tmp_path / "x.npy", mmap_mode="r")
    array, of_group = zarr.open_array(level, mode="r"), zarr.open_group(tmp_path / "a.zarr", mode="r")["0.zarr"]
    before = content(tmp_path)
    for one, source, name in (
        (session, level, "a.zarr"),
        (session, level, "a.zarr/0.zarr"),
        (session, level, "a.zarr/0.zarr/c/0/y.npy"),
        (session, images.open(level), "a.zarr"),
        (session, str(tmp_path / "x.npy"), "x.npy"),
        (session, tmp_path / "x.npy", "link.npy"),
        (session, mapped, "x.npy"),
        (session, np.asarray(mapped)[:, :, ::-1], "x.npy"),
        (session, array, "a.zarr"),
        (session, array, "a.zarr/0.zarr/c/0/y.npy"),
        (session, of_group, "a.zarr"),
        (session, of_group, "a.zarr/0.zarr"),
        (of_file, X, "m.npy"),
    ):
        with pytest.raises(FileError, match="is an input of this run, lies in one or contains one"):
            streams.run(one, {"x": source}, tmp_path / name, TILE, output="y")
        with pytest.raises(FileError, match="is an input of this run"):
            streams.blend(one, {"x": source}, tmp_path / name, TILE, output="y")
    assert content(tmp_path) == before


def test_an_array_of_zarr_is_no_folder_around_the_output(session, tmp_path, monkeypatch):
    """Its path is one in its store; beside it, or in memory, outputs go anywhere, also into the current folder."""
    monkeypatch.chdir(tmp_path)
    zarr.create_array("in.zarr", data=X)
    group("a.zarr")
    for array in (
        zarr.open_array("in.zarr", mode="r"),
        zarr.open_group("a.zarr", mode="r")["0.zarr"],
        zarr.create_array(zarr.storage.MemoryStore(), data=X),
    ):
        streams.run(session, {"x": array}, "y.npy", TILE, output="y")
        np.testing.assert_array_equal(np.load("y.npy"), np.abs(X))


@POSIX
@pytest.mark.parametrize("form", FORMATS)
def test_the_mode_and_the_link_of_a_replaced_output_are_kept(session, form, tmp_path):
    """A private result stays private, also while it is written; behind a link, the file or folder there is replaced."""
    (tmp_path / "there").mkdir()
    place, seen = tmp_path / "there" / f"real.{form}", set()
    (tmp_path / f"y.{form}").symlink_to(place)
    streams.run(session, {"x": X}, tmp_path / f"y.{form}", TILE, output="y")
    private = 0o700 if form == "zarr" else 0o600
    place.chmod(private)

    def on_progress(_):
        seen.add(stat.S_IMODE((tmp_path / "there" / f"real.{form}.part" / place.name).stat().st_mode))

    streams.run(session, {"x": X + 1}, tmp_path / f"y.{form}", TILE, output="y", on_progress=on_progress)
    assert seen == {stat.S_IMODE(place.stat().st_mode)} == {private}
    assert (tmp_path / f"y.{form}").is_symlink()
    np.testing.assert_array_equal(images.open(place)[(slice(None),) * 4], np.abs(X + 1))
    assert streams.run(session, {"x": X + 1}, tmp_path / f"y.{form}", TILE, output="y", resume=True).was_complete


@pytest.mark.parametrize("form", FORMATS)
def test_an_output_that_is_being_written_is_refused(session, form, tmp_path):
    """New, resumed, blended or as the second of two outputs: the other process is named, and nothing is touched."""
    target = tmp_path / f"y.{form}"
    with pytest.raises(StoppedError):
        streams.run(session, {"x": X}, target, TILE, output="y", on_progress=stop_after(2))
    with lock([target]):
        before = content(tmp_path)
        for words in ({}, {"resume": True}):
            with pytest.raises(
                WriteError, match=rf"y\.{form}: process {os.getpid()} is writing it\. Wait for it to end"
            ):
                streams.run(session, {"x": X}, target, TILE, output="y", **words)
            with pytest.raises(WriteError, match="is writing it"):
                streams.blend(session, {"x": X}, target, TILE, output="y", **words)
        with pytest.raises(WriteError, match="is writing it"):
            streams.run(session, {"x": X}, {"z": tmp_path / f"a.{form}", "y": target}, TILE)
        assert content(tmp_path) == before
    assert streams.run(session, {"x": X}, target, TILE, output="y", resume=True).progress.resumed >= 2


def test_nothing_is_written_once_a_run_is_over(session, tmp_path):
    """What a thread still has in hands after the end does not reach the files, where another run may write by then."""
    target = tmp_path / "y.npy"
    work = {"y": OutputSpec(X.shape, X.dtype, 1, X.shape)}
    window = {"y": (slice(None),) * 4}
    with PartialOutput({"y": target}, {"n": 1}, work, 2) as run:
        run.add(0, window, {"y": X})
    before = content(tmp_path)
    with pytest.raises(WriteError, match="the run is over"):
        run.add(1, window, {"y": X + 1})
    assert content(tmp_path) == before


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_whose_folder_is_deleted_leaves_that_of_the_next_one(session, form, tmp_path, monkeypatch):
    """Whoever deletes the lock and the folder of a run, and begins another one, gets the result of that one alone."""
    target, plain, count = tmp_path / f"y.{form}", PartialOutput.add, []

    def add(run, *words):
        plain(run, *words)
        count.append(words)
        if len(count) == 2:
            monkeypatch.setattr(PartialOutput, "add", plain)
            shutil.rmtree(partial_folder({"y": target}))
            lock_of(target).unlink(missing_ok=True)
            with pytest.raises(StoppedError):
                streams.run(session, {"x": -X}, target, TILE, output="z", on_progress=stop_after(2))

    monkeypatch.setattr(PartialOutput, "add", add)
    with pytest.raises(WriteError, match=r"\.part: was deleted or replaced during the run"):
        streams.run(session, {"x": X}, target, TILE, output="y")
    assert not target.exists()
    assert streams.run(session, {"x": -X}, target, TILE, output="z", resume=True).progress.resumed >= 2
    np.testing.assert_array_equal(images.open(target)[(slice(None),) * 4], X)


def test_an_array_that_was_on_its_way_out_does_not_block_the_next_one(session, tmp_path):
    """A process that ended between the two renames leaves the earlier array in the folder of the run."""
    target = tmp_path / "y.zarr"
    zarr.create_array(str(target), data=X)
    with pytest.raises(StoppedError):
        streams.run(session, {"x": X}, target, TILE, output="y", on_progress=stop_after(2))
    shutil.copytree(target, partial_folder({"y": target}) / "old y.zarr")
    streams.run(session, {"x": X}, target, TILE, output="y", resume=True)
    np.testing.assert_array_equal(zarr.open_array(str(target), mode="r")[...], np.abs(X))


def test_a_folder_that_cannot_be_replaced_comes_back(session, tmp_path, monkeypatch):
    """Where the new array cannot get its name, the earlier one has it again, and the run can be resumed."""
    target = tmp_path / "y.zarr"
    streams.run(session, {"x": X}, target, TILE, output="y")
    before, plain = content(target), os.replace

    def refuse(source, place):
        if str(source).endswith("part/y.zarr"):
            raise OSError(5, "Input/output error")
        plain(source, place)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(WriteError, match="cannot be written"):
        streams.run(session, {"x": X + 1}, target, TILE, output="y")
    assert content(target) == before
    monkeypatch.undo()
    streams.run(session, {"x": X + 1}, target, TILE, output="y", resume=True)
    np.testing.assert_array_equal(zarr.open_array(str(target), mode="r")[...], np.abs(X + 1))


def test_processes_that_begin_at_the_same_moment():
    """Two or three at a time, in every format: one writes, the others are refused, and nothing is mixed or left."""
    tally, failed = two_writers.campaign(4, seed=5)
    assert failed == []
    assert sum(tally.values()) == 4 * len(FORMATS)
