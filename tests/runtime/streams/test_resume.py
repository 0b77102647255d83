"""Resuming trusts nothing: whatever the files of an interrupted run hold, the result is right, or it is one error."""

import json
import os
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import zarr

from tests.runtime.streams.test_run import StoppedError, content, stop_after
from tools.campaigns import resume as campaign
from tools.campaigns import two_writers
from unpool import images, streams
from unpool.errors import FileError, UnpoolError
from unpool.files import WriteError
from unpool.images.checks import parse_json
from unpool.runtime.streams.checkpoint import done_marker, parse_journal, partial_folder, settings_digest

X = np.random.default_rng(8).standard_normal((1, 1, 64, 96)).astype(np.float32)
TILE, TILES = (16, 16), 24


@pytest.fixture(scope="module")
def session():
    """Two outputs of the size of the input."""
    return two_writers.session()


def interrupted(session, folder, form, tiles=5):
    """The data of a run that was ended, and its folder."""
    target = folder / f"y.{form}"
    with pytest.raises(StoppedError):
        streams.run(session, {"x": X}, target, TILE, output="y", on_progress=stop_after(tiles))
    part = partial_folder({"y": target})
    return part / target.name, part


def resumed(session, folder, form, tile=TILE):
    """The run, resumed; its result has to be right."""
    target = folder / f"y.{form}"
    done = streams.run(session, {"x": X}, target, tile, output="y", resume=True)
    np.testing.assert_array_equal(images.open(target)[(slice(None),) * 4], np.abs(X))
    return done.progress


def replace(path, before, after):
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after, 1))


def other_zarr(path, **words):
    shutil.rmtree(path)
    zarr.create_array(str(path), **({"shape": X.shape, "dtype": "f4", "chunks": (1, 1, 16, 16)} | words))


def as_link(path):
    path.rename(path.with_name("real"))
    path.symlink_to("real")


HEADERS = {
    "npy: dtype": ("npy", lambda path: replace(path, b"<f4", b"<i4")),
    "npy: byte order": ("npy", lambda path: replace(path, b"<f4", b">f4")),
    "npy: order": ("npy", lambda path: replace(path, b"False", b" True")),
    "npy: shape": ("npy", lambda path: replace(path, b"64, 96", b"64, 95")),
    "npy: another array": ("npy", lambda path: np.save(path, np.zeros((1, 1, 8, 8), np.float64))),
    "npy: columns first": ("npy", lambda path: np.save(path, np.asfortranarray(X))),
    "npy: empty": ("npy", lambda path: path.write_bytes(b"")),
    "npy: half a header": ("npy", lambda path: path.write_bytes(path.read_bytes()[:60])),
    "npy: a folder": ("npy", lambda path: (path.unlink(), path.mkdir())),
    "npy: a link": ("npy", as_link),
    "tif: strips": ("tif", lambda path: tifffile.imwrite(path, X[0, 0])),
    "tif: small tiles": ("tif", lambda path: tifffile.imwrite(path, X[0, 0], tile=(16, 16), bigtiff=True)),
    "tif: dtype": ("tif", lambda path: tifffile.imwrite(path, X[0, 0].astype("u1"), tile=(256, 256), bigtiff=True)),
    "tif: another image": ("tif", lambda path: tifffile.imwrite(path, X[0, 0, :8, :8])),
    "tif: no image": ("tif", lambda path: path.write_bytes(b"\0" * path.stat().st_size)),
    "nii: shape": ("nii", lambda path: nibabel.save(nibabel.Nifti1Image(X[0, 0, :8], np.eye(4)), path)),
    "nii: slope": ("nii", lambda path: nibabel.save(scaled(), path)),
    "nii: affine": ("nii", lambda path: nibabel.save(nibabel.Nifti1Image(X[0, 0], np.eye(4) * 2), path)),
    "zarr: shape": ("zarr", lambda path: other_zarr(path, shape=(1, 1, 80, 100))),
    "zarr: dtype": ("zarr", lambda path: other_zarr(path, dtype="f2")),
    "zarr: fill": ("zarr", lambda path: other_zarr(path, fill_value=7.0)),
    "zarr: version": ("zarr", lambda path: other_zarr(path, zarr_format=2)),
    "zarr: a group": ("zarr", lambda path: (shutil.rmtree(path), zarr.create_group(path))),
    "zarr: no JSON": ("zarr", lambda path: (path / "zarr.json").write_bytes(b"\xff{")),
    "zarr: deep JSON": ("zarr", lambda path: (path / "zarr.json").write_bytes(b"[" * 100_000)),
    "zarr: gone": ("zarr", shutil.rmtree),
}


def scaled():
    image = nibabel.Nifti1Image(X[0, 0], None)
    image.header.set_slope_inter(2, 1)
    return image


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_differ_are_one_error(session, name, tmp_path):
    """The file and the way out are named; the folder that is named deleted, the run gives the right result."""
    form, damage = HEADERS[name]
    path, part = interrupted(session, tmp_path, form)
    damage(path)
    with pytest.raises(FileError, match=rf"^\S*{path.name}.*\. Delete {part} to start over\.$"):
        resumed(session, tmp_path, form)
    shutil.rmtree(part)
    assert resumed(session, tmp_path, form).resumed == 0


def chunks(path):
    return sorted(one for one in (path / "c").rglob("*") if one.is_file())


def damaged_chunks(make):
    """A damage to two chunks of finished tiles."""

    def damage(path):
        for one in chunks(path)[:2]:
            content = one.read_bytes()
            one.unlink()
            make(one, content)

    return damage


CONTENTS = {
    "npy: short": ("npy", lambda path: os.truncate(path, 2000)),
    "npy: long": ("npy", lambda path: path.write_bytes(path.read_bytes() + b"more")),
    "npy: a bit": ("npy", lambda path: replace(path, path.read_bytes()[130:134], b"\0\0\0\1")),
    "tif: short": ("tif", lambda path: os.truncate(path, 5000)),
    "nii: short": ("nii", lambda path: os.truncate(path, 1000)),
    "zarr: garbled": ("zarr", damaged_chunks(lambda path, content: path.write_bytes(content[::-1]))),
    "zarr: cut": ("zarr", damaged_chunks(lambda path, content: path.write_bytes(content[:9]))),
    "zarr: empty": ("zarr", damaged_chunks(lambda path, content: path.write_bytes(b""))),
    "zarr: gone": ("zarr", damaged_chunks(lambda path, content: None)),
    "zarr: links": ("zarr", damaged_chunks(lambda path, content: path.symlink_to("nothing"))),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_tiles_that_cannot_be_read_are_computed_again(session, name, tmp_path):
    """Short files and garbled chunks cost the tiles in them, and nothing else."""
    form, damage = CONTENTS[name]
    path, part = interrupted(session, tmp_path, form)
    noted = len(parse_journal((part / "journal").read_bytes())[1])
    damage(path)
    assert (resumed(session, tmp_path, form).resumed < noted) == (name != "npy: long")


def test_what_an_interrupted_writer_left_in_an_array_goes(session, tmp_path):
    """Temporary files, metadata of another version and chunks that no finished tile has are not in the result."""
    path, _ = interrupted(session, tmp_path, "zarr")
    target = tmp_path / path.name
    (path / "c" / "0" / "0").mkdir(parents=True, exist_ok=True)
    for name in (".zarray", "c/0/0/9", "c/0/0/1.partial", "c/0/0/x"):
        (path / name).write_bytes(b"\xff")
    resumed(session, tmp_path, "zarr")
    streams.run(session, {"x": X}, tmp_path / "whole.zarr", TILE, output="y")
    resumed_names, names = (
        {path.relative_to(folder) for path in folder.rglob("*")} for folder in (target, tmp_path / "whole.zarr")
    )
    assert resumed_names == names


@pytest.mark.parametrize("name", ["c", "c/0", "c/0/0/1"])
def test_folders_of_chunks_that_are_links_are_written_anew(session, name, tmp_path):
    """Chunks that were moved to another disk are computed again, in the folder of the result; those there stay."""
    path, _ = interrupted(session, tmp_path, "zarr", TILES - 1)
    (path / name).rename(tmp_path / "moved")
    (path / name).symlink_to(tmp_path / "moved")
    before = content(tmp_path / "moved")
    assert resumed(session, tmp_path, "zarr").resumed < TILES - 1
    assert not (tmp_path / "y.zarr" / name).is_symlink()
    assert content(tmp_path / "moved") == before


def test_an_array_that_is_a_link_is_refused(session, tmp_path):
    """Its chunks would be written, and others removed, where nobody named a place."""
    path, part = interrupted(session, tmp_path, "zarr")
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    before = content(tmp_path / "moved")
    with pytest.raises(FileError, match=rf"y\.zarr: is a link, .*Delete {part} to start over"):
        resumed(session, tmp_path, "zarr")
    assert content(tmp_path / "moved") == before


def test_chunks_of_the_input_behind_a_link_are_seen(session, tmp_path):
    """An input that has changed is another input, wherever its chunks lie; links lead round in circles, or out."""
    source = tmp_path / "x.zarr"
    zarr.create_array(str(source), data=X, chunks=(1, 1, 16, 16), compressors=None)
    (source / "c").rename(tmp_path / "moved")
    (source / "c").symlink_to(tmp_path / "moved")
    (tmp_path / "moved" / "7").symlink_to(source, target_is_directory=True)
    (tmp_path / "moved" / "0" / "8").symlink_to(tmp_path / "moved", target_is_directory=True)
    (source / "9").symlink_to("/", target_is_directory=True)
    with pytest.raises(StoppedError):
        streams.run(session, {"x": source}, tmp_path / "y.npy", TILE, output="y", on_progress=stop_after(5))
    streams.run(session, {"x": source}, tmp_path / "y.npy", TILE, output="y", resume=True)
    with pytest.raises(StoppedError):
        streams.run(session, {"x": source}, tmp_path / "y.npy", TILE, output="y", on_progress=stop_after(5))
    chunk = tmp_path / "moved" / "0" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(UnpoolError, match="the interrupted run read another input 'x'"):
        streams.run(session, {"x": source}, tmp_path / "y.npy", TILE, output="y", resume=True)


def test_a_journal_that_cannot_be_written_is_one_error(session, tmp_path, monkeypatch):
    """That of another user, for instance."""
    _, part = interrupted(session, tmp_path, "npy")
    plain = Path.open

    def refuse(path, mode="r", *words, **more):
        if (path.name, mode) == ("journal", "r+b"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, mode, *words, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(WriteError, match=rf"{part}/journal: cannot be written \(Permission denied\)"):
        resumed(session, tmp_path, "npy")


@pytest.mark.parametrize("form", ["npy", "zarr"])
def test_an_output_that_has_its_name_is_read_again(session, form, tmp_path):
    """Where all tiles are noted and the data are gone, an older output of that name is not taken for the result."""
    target = tmp_path / f"y.{form}"
    streams.run(session, {"x": X + 1}, target, TILE, output="y")
    path, part = interrupted(session, tmp_path, form, TILES)
    path.rename(tmp_path / "moved")
    with pytest.raises(FileError, match=rf"the data of the interrupted run are gone\. Delete {part} to start over"):
        resumed(session, tmp_path, form)
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    (tmp_path / "moved").rename(target)
    assert resumed(session, tmp_path, form).resumed == TILES


def settings(content):
    return json.loads(content.splitlines()[0])["settings"]


def with_settings(content, **changes):
    """A journal with other settings, and the digest of these."""
    head = json.loads(content.splitlines()[0])
    head["settings"] |= changes
    head["digest"] = settings_digest(head["settings"])
    return json.dumps(head).encode() + b"\n" + b"".join(content.splitlines(keepends=True)[1:])


def line(text):
    return lambda content: content + text + b"\n"


DEEP = b"[" * 200_000
JOURNALS = {
    "empty": lambda content: b"",
    "no first line": lambda content: content.split(b"\n", 1)[1],
    "half a first line": lambda content: content[:30],
    "binary": lambda content: b"\xff\xfe\x00\n",
    "another coding": lambda content: content.decode().encode("utf-16"),
    "a deep first line": lambda content: DEEP + b"\n",
    "a deep line": line(DEEP),
    "a list": lambda content: b"[1]\n",
    "no settings": lambda content: b'{"unpool journal": 2}\n',
    "settings of another digest": lambda content: content.replace(b'"argmax": false', b'"argmax": true'),
    "settings in settings": lambda content: with_settings(content, a=json.loads('{"a":' * 50 + "1" + "}" * 50)),
    "the version before": lambda content: json.dumps({"settings": settings(content)}).encode() + b"\n",
    "the version after": lambda content: content.replace(b'"unpool journal": 2', b'"unpool journal": 3'),
    "infinite": line(b'{"tile": 1e999, "content": ""}'),
    "not a number": line(b'{"tile": NaN, "content": ""}'),
    "5000 digits": line(b'{"tile": ' + b"9" * 5000 + b', "content": ""}'),
    "a broken number": line(b'{"tile": 9.7, "content": "x"}'),
    "a truth": line(b'{"tile": true, "content": "x"}'),
    "a text": line(b'{"tile": "many", "content": "x"}'),
    "no content": line(b'{"tile": 1, "content": null}'),
    "null": line(b"null"),
    "zeros": line(b"\0" * 4096),
    "blank": line(b""),
    "random": line(b"\x8f\x01\xd3\x00\x7f"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", JOURNALS)
def test_damaged_journals_are_one_error(session, name, tmp_path):
    """What is no journal is named, with the folder to delete; nothing is touched."""
    _, part = interrupted(session, tmp_path, "npy")
    damaged = JOURNALS[name]((part / "journal").read_bytes())
    (part / "journal").write_bytes(damaged)
    with pytest.raises(FileError, match=rf"is not a journal .* \(.*\)\. Delete {part} to start over"):
        resumed(session, tmp_path, "npy")
    assert (part / "journal").read_bytes() == damaged


@pytest.mark.parametrize("kind", ["folder", "link", "gone", "pipe"])
def test_a_journal_that_is_no_file(session, kind, tmp_path):
    """It is not followed and not waited for; where it is gone, the run starts over."""
    _, part = interrupted(session, tmp_path, "npy")
    (part / "journal").rename(part / "other")
    if kind == "gone":
        assert resumed(session, tmp_path, "npy").resumed == 0
        return
    make = {"folder": lambda path: path.mkdir(), "link": lambda path: path.symlink_to("other"), "pipe": os.mkfifo}[kind]
    make(part / "journal")
    with pytest.raises(FileError, match=r"not a regular file\)\. Delete"):
        resumed(session, tmp_path, "npy")


def test_lines_that_do_no_harm(session, tmp_path):
    """Tiles of another image, a tile that is noted twice or wrong, and a line that was cut short do not change it."""
    _, part = interrupted(session, tmp_path, "npy")
    content = (part / "journal").read_bytes()
    noted = set(parse_journal(content)[1])
    more = b'{"tile": 1000000000, "content": "x"}\n{"tile": -1, "content": "y"}\n{"tile": 3, "content": "00"}\n{"ti'
    (part / "journal").write_bytes(content + content.splitlines(keepends=True)[1] + more)
    assert set(parse_journal((part / "journal").read_bytes())[1]) == noted | {10**9, -1, 3}
    assert resumed(session, tmp_path, "npy").resumed == len(noted - {3})


CELLS = [None, "abc", [], [-1, -1], [0, 0], [1.5, 2.5], [True, True], [[16], [16]], [10**30, 10**30], {"a": 1}, [16]]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_sizes_of_tiles_that_are_none(session, cell, tmp_path):
    """Tiles that memory chose are taken from the earlier run; what is no size is one error."""
    target = tmp_path / "y.npy"
    with pytest.raises(StoppedError):
        streams.run(session, {"x": X}, target, output="y", on_progress=stop_after(1))
    journal = partial_folder({"y": target}) / "journal"
    journal.write_bytes(with_settings(journal.read_bytes(), cell=cell))
    with pytest.raises(UnpoolError, match=r"not the sizes of a tile|one per spatial axis"):
        streams.run(session, {"x": X}, target, output="y", resume=True)


RECORDS = {
    "empty": lambda content: b"",
    "deep": lambda content: DEEP,
    "random": lambda content: b"\x8f\x01\xd3\x00\x7f",
    "a list": lambda content: b"[1]",
    "other settings": lambda content: content.replace(b'"argmax": false', b'"argmax": true'),
    "infinite": lambda content: content.replace(b'"argmax": false', b'"argmax": 1e999'),
    "no outputs": lambda content: content.replace(b'"outputs": {', b'"others": {'),
    "outputs that are none": lambda content: content.replace(b'"outputs": {"y": "', b'"outputs": {"y": [], "z": "'),
    "the version before": lambda content: content.replace(b'"unpool record": 2, ', b""),
}


@pytest.mark.parametrize("name", RECORDS)
def test_damaged_records_are_ignored(session, name, tmp_path):
    """The output is computed again, and the record is written again."""
    target = tmp_path / "y.npy"
    streams.run(session, {"x": X}, target, TILE, output="y")
    assert resumed(session, tmp_path, "npy").was_complete
    damaged = RECORDS[name](done_marker(target).read_bytes())
    assert damaged != done_marker(target).read_bytes()
    done_marker(target).write_bytes(damaged)
    assert not resumed(session, tmp_path, "npy").was_complete
    assert resumed(session, tmp_path, "npy").was_complete


def test_json_that_python_cannot_take_is_a_value_error():
    """Too deep, too long a number, and numbers that are none: one kind of exception."""
    for text in (DEEP, b"9" * 5000, b"NaN", b"[-Infinity]", b"\xff", b"", b'{"a": ' * 100_000):
        with pytest.raises(ValueError, match=r"."):
            parse_json(text)


def test_no_number_is_a_word_in_a_journal(session, tmp_path):
    """Blended windows with NaN around the image are resumed: JSON has no NaN, and none is equal to another."""
    feed, words = {"x": X}, {"output": "y", "cval": float("nan")}

    def stop(_):
        raise StoppedError

    with pytest.raises(StoppedError):
        streams.blend(session, feed, tmp_path / "y.npy", 32, on_progress=stop, **words)
    assert streams.blend(session, feed, tmp_path / "y.npy", 32, resume=True, **words).progress.resumed >= 1


@pytest.mark.slow
def test_random_damage_to_random_files():
    """Files of interrupted runs in every format, damaged in every way: the right result, or an error with a way out."""
    tally, failed = campaign.campaign(60, seed=3)
    assert failed == []
    assert sum(tally.values()) == 60
