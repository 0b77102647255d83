"""No file of the cache of kernels can fail a call, or give it other machine code than what was compiled."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from numba import config, njit

import unpool
from unpool.kernels.cpu.machine import cache, checked_files, host
from unpool.kernels.cpu.machine.checked_files import CheckedFiles
from unpool.kernels.cpu.machine.jit import jit

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


def call(function: Callable[[int], int] = double, value: float = 21) -> tuple[float, bool]:
    """What a process that has just started computes, and whether it found it."""
    kernel = jit()(function)
    result = kernel(value)
    return result, bool(kernel.dispatcher.stats.cache_hits)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder with what one process has left for others."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NUMBA_CACHE_DIR", str(folder))
        assert call() == (42, False)
    return folder


@pytest.fixture
def folder(written, tmp_path, monkeypatch) -> Path:
    """A copy of it, which is the cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(written, tmp_path / "cache"))


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache._warn_once.cache_clear()
    return tmp_path


def files_of(folder: Path) -> list[Path]:
    """All files of a cache, apart from the note that a library of this installation was verified."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.parent.name.startswith("libraries-")]


def flipped(content: bytes, where: float) -> bytes:
    at = int(where * (len(content) - 1))
    return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "tail of zeros": lambda content: content[:1000] + bytes(len(content) - 1000),
    "longer": lambda content: content + b"more",
    **{
        f"bit at {where}": lambda content, where=where: flipped(content, where) for where in (0, 0.01, 0.3, 0.6, 0.9, 1)
    },
}


def test_the_cache_works(folder) -> None:
    """Where nothing is damaged, nothing is compiled."""
    assert call() == (42, True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_a_miss_that_heals(folder, damage) -> None:
    """Whatever became of a file, the kernel is compiled once more, and found by whoever comes next."""
    (path,) = files_of(folder)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert [call(), call()] == [(42, False), (42, True)]
    path.unlink()
    path.mkdir()  # not even something that is no file fails a call
    assert call() == (42, False)


def test_every_byte_is_guarded(tmp_path) -> None:
    """No byte of a file can change without its digest."""
    files = CheckedFiles("kernels", "version", folders=[tmp_path])
    files.save("key", [1, 2.5, "three"])
    assert files.load("key") == [1, 2.5, "three"]
    (path,) = files_of(tmp_path)
    content = path.read_bytes()
    for at, byte in enumerate(content):
        path.write_bytes(content[:at] + bytes([byte ^ 1 << at % 8]) + content[at + 1 :])
        assert files.load("key") is None
    path.write_bytes(content)
    assert files.load("key") == [1, 2.5, "three"]


@pytest.mark.parametrize(
    ("kind", "version", "key"), [("results", 1, "key"), ("kernels", 2, "key"), ("kernels", 1, "other")]
)
def test_a_file_says_what_it_is(tmp_path, kind, version, key) -> None:
    """One of another kind, version or key is a miss, whatever its name and folder."""
    CheckedFiles("kernels", 1, folders=[tmp_path / "first"]).save("key", "first")
    other = CheckedFiles(kind, version, folders=[tmp_path / "second"])
    other.save(key, "second")
    (first,), (second,) = files_of(tmp_path / "first"), files_of(tmp_path / "second")
    shutil.copy(first, second)
    assert other.load(key) is None


def test_machine_code_of_another_signature_is_a_miss(folder) -> None:
    """It is not called, whatever the name of its file is."""
    (ints,) = files_of(folder)
    other = ints.read_bytes()
    assert call(value=1.5) == (3.0, False)
    (floats,) = set(files_of(folder)) - {ints}
    floats.write_bytes(other)
    assert call(value=1.5) == (3.0, False)
    assert call(value=1.5) == (3.0, True)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (cache, "source_digest", lambda: "changed"),  # any source of the kernels
        (host, "level", lambda: host.Level("another", 8, 8)),  # shorter vectors, where a library has a lower level
        *((config, name, 1 - bool(getattr(config, name))) for name in ("OPT", "BOUNDSCHECK", "ENABLE_AVX")),
    ],
)
def test_machine_code_of_other_conditions_is_a_miss(folder, monkeypatch, module, name, value) -> None:
    """With other sources, settings of Numba or registers nothing that is kept fits; that of the old ones stays."""
    with monkeypatch.context() as changed:
        changed.setattr(module, name, value)
        assert [call(), call()] == [(42, False), (42, True)]
    assert call() == (42, True)


def test_old_versions_are_removed(tmp_path) -> None:
    """All but the latest two, as versions may take turns."""
    known: set[Path] = set()
    for version in range(5):
        CheckedFiles("kernels", version, folders=[tmp_path]).save("key", version)
        (folder,) = set(tmp_path.glob("kernels-*")) - known
        os.utime(folder, (version, version))
        known |= {folder}
    found = [CheckedFiles("kernels", version, folders=[tmp_path]).load("key") for version in range(5)]
    assert found == [None, None, 2, 3, 4]


@njit
def add_one(x):
    return x + 1


@njit
def add_two(x):
    return x + 2


called = add_one


def call_other_source(x):
    return called(x)


def test_a_disk_that_fills_during_an_upgrade(empty, monkeypatch) -> None:
    """The old machine code is never called by the new version, wherever writing the new one ended."""
    monkeypatch.setattr(cache, "source_digest", lambda: "old")
    assert call(call_other_source, 10) == (11, False)
    monkeypatch.setattr(cache, "source_digest", lambda: "new")
    monkeypatch.setitem(globals(), "called", add_two)
    for size in (1, 700, 2500, 5000):
        with largest_file(size):
            assert call(call_other_source, 10) == (12, False)
    assert [call(call_other_source, 10) for _ in range(2)] == [(12, False), (12, True)]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    resource = pytest.importorskip("resource", reason="the system knows no limit of a file's size")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("number", FULL, ids=errno.errorcode.get)
@pytest.mark.parametrize("action", ["open", "replace"])
def test_full_disks_are_logged_once(empty, number, action, monkeypatch, caplog) -> None:
    """Where nothing can be written the compiled kernel is used, the log says so once, and nothing is left."""
    original = getattr(os, action)

    def refuse(path: object, *args: object) -> object:
        if str(path).startswith(str(empty)):
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *args)

    monkeypatch.setattr(checked_files.os, action, refuse)
    with caplog.at_level(logging.WARNING, "unpool"):
        assert call() == (42, False)
        assert call(triple) == (63, False)
    (said,) = caplog.messages
    assert os.strerror(number) in said
    assert "NUMBA_CACHE_DIR" in said
    assert not files_of(empty)
    monkeypatch.undo()


def test_a_disk_that_fills_while_it_is_written(empty, caplog) -> None:
    """A file that cannot grow beyond some bytes: the first call works, and so do all later ones."""
    caplog.set_level(logging.WARNING, "unpool")
    with largest_file(1500):
        assert [call(), call()] == [(42, False)] * 2
    assert len(caplog.messages) == 1
    assert not files_of(empty)
    assert [call(), call()] == [(42, False), (42, True)]


def test_an_interrupt_leaves_no_part_of_a_file(empty, monkeypatch) -> None:
    """Ctrl-C while a file is written: what is left is what was there."""

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checked_files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert not files_of(empty)


def digest_in(*path: Path) -> str:
    """What a process says of the sources that it imports from here."""
    code = "from unpool.kernels.cpu.machine.checked_files import source_digest; print(source_digest())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_archives_are_told_apart(tmp_path) -> None:
    """The digest of kernels in an archive is that of their sources, and no other archive's."""
    from unpool.kernels.cpu.machine.checked_files import source_digest

    first, source = tmp_path / "first.zip", Path(unpool.__file__).parent
    with zipfile.ZipFile(first, "w") as archive:
        for path in source.rglob("*.py"):
            archive.write(path, Path("unpool", path.relative_to(source)))
    second = Path(shutil.copy(first, tmp_path / "second.zip"))
    with zipfile.ZipFile(second, "a") as archive:
        archive.writestr("unpool/kernels/cpu/vector/more.py", "# one more")
    assert digest_in(first) == source_digest()
    assert digest_in(second) not in (source_digest(), "")


def test_bytecode_is_told_apart(tmp_path) -> None:
    """Where only bytecode is shipped, the digest is that of the bytecode."""
    import compileall

    digests = set()
    for name in ("first", "second"):
        package = tmp_path / name / "unpool"
        shutil.copytree(Path(unpool.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "runtime"))
        if name == "second":
            with (package / "kernels" / "cpu" / "vector" / "memory.py").open("a") as source:
                source.write("MORE = 1\n")
        assert compileall.compile_dir(str(package), legacy=True, quiet=1, invalidation_mode=None)
        for path in package.rglob("*.py"):
            path.unlink()
        digests.add(digest_in(tmp_path / name))
    assert len(digests - {""}) == 2


def test_sources_that_nobody_can_read_are_not_cached(empty, monkeypatch, caplog) -> None:
    """Without a way to tell old from new, nothing is kept, and the log says why."""
    monkeypatch.setattr(cache, "source_digest", lambda: "")
    with caplog.at_level(logging.WARNING, "unpool"):
        assert [call(), call()] == [(42, False)] * 2
    assert len(caplog.messages) == 1
    assert not files_of(empty)


def test_stamp_of_sources(tmp_path) -> None:
    """It changes with the sources of a folder, by size and time, and not with other files; no folder has none."""

    def stamp_of(folder) -> str:
        checked_files._stamps.cache_clear()
        return checked_files.source_stamp(str(folder))

    source = tmp_path / "kernel.py"
    source.write_text("x = 1")
    stamps = [stamp_of(tmp_path)]
    os.utime(source, ns=(0, 0))
    stamps.append(stamp_of(tmp_path))
    source.write_text("x = 10")
    os.utime(source, ns=(0, 0))
    stamps.append(stamp_of(tmp_path))
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "other.py").touch()
    stamps.append(stamp_of(tmp_path))
    (tmp_path / "notes.txt").touch()
    assert len(set(stamps)) == len(stamps)
    assert stamp_of(tmp_path) == stamps[-1]
    assert stamp_of(tmp_path / "missing") == ""
