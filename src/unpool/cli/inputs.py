"""`-i` arguments -> items: which file fills which input of the model, once per run."""

import io
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from unpool.cli.errors import UsageError
from unpool.cli.outputs import safe_names
from unpool.errors import FileError, MissingFileError, ShapeError, UnpoolError
from unpool.images.checks import read_errors
from unpool.images.formats import (
    BY_SUFFIX,
    FORMATS,
    FileFormat,
    format_of,
    format_of_content,
    natural,
    stem_of,
    suffix_of,
)
from unpool.memory import available, rss

STDIN = "-"
SHARE = 4  # divisor of the available memory: standard input may take one part of it, because the bytes are unpacked too
PIECE = 2**24

_log = logging.getLogger("unpool.cli")


@dataclass(frozen=True)
class InputFile:
    """One file, or one array inside a .npz file, or the bytes of standard input."""

    path: Path
    member: str | None = None
    content: bytes | None = field(default=None, repr=False)

    @property
    def suffix(self) -> str:
        """Of the file; .nii.gz is one."""
        return suffix_of(self.path)

    @property
    def file_format(self) -> FileFormat | None:
        """Of the file, by its name."""
        return format_of(self.path)

    @property
    def is_image(self) -> bool:
        """True for files that are read as images."""
        return self.file_format is not None and self.file_format.read is not None

    @property
    def is_for_windows(self) -> bool:
        """True for files that are always read in windows."""
        return _is_one_folder(self.path)

    def open(self) -> BinaryIO:
        """The bytes, from the beginning; FileError if they cannot be read."""
        if self.content is not None:
            return io.BytesIO(self.content)
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:
            raise MissingFileError(f"{self.path}: no such file.") from error
        except OSError as error:
            raise FileError(f"{self.path}: cannot be read: {error.strerror}.") from error

    def __str__(self) -> str:
        if self.content is not None:
            return "standard input"
        return str(self.path) if self.member is None else f"{self.path}[{self.member}]"


@dataclass(frozen=True)
class Item:
    """One run of the model: a name for its result, and the source of every input."""

    stem: str
    sources: Mapping[str, InputFile]

    @property
    def paths(self) -> list[Path]:
        """The files of this run."""
        return [source.path for source in self.sources.values() if source.content is None]

    @property
    def label(self) -> str:
        """The file the result is named after."""
        for source in self.sources.values():
            if self.stem in (stem_of(source.path), source.path.name):
                return str(source.path if source.content is None else source)
        return self.stem


@dataclass(frozen=True)
class Failure:
    """A file that could not be used, or a run that failed, and why."""

    source: str
    error: str

    def __str__(self) -> str:
        return self.error if self.source in self.error else f"{self.source}: {self.error}"


def split_name(text: str, names: Sequence[str]) -> tuple[str | None, Path]:
    """`name=path` or `path`; a text that names no input and exists as a file is a path.

    >>> split_name("x=a.npy", ["x"])[0], split_name("a.npy", ["x"])[0]
    ('x', None)
    """
    name, equals, rest = text.partition("=")
    if equals and name in names:
        return name, Path(rest)
    if equals and not Path(text).exists():
        fact = f"the model has no input {name!r}, it has {', '.join(names)}"
        raise UnpoolError(f"-i {text}: {fact}. Use one of these names.")
    return None, Path(text)


def input_name(text: str, name: str | None, names: Sequence[str]) -> str:
    """The input that `-i text` is for, which may leave out the name of the only one."""
    if name is None and len(names) != 1:
        raise UsageError(f"-i {text}: the model has inputs {', '.join(names)}. Name one: -i {names[0]}={text}")
    return name or names[0]


def collect(
    texts: Sequence[str], names: Sequence[str], memory: int | None = None, *, keep_going: bool = False
) -> tuple[list[Item], list[Failure]]:
    """The runs on inputs `names` that the `-i` arguments ask for, and the files that cannot take part.

    Inputs with one file share it between all runs; inputs with several files are matched by file name (without
    suffix). A file of a folder that cannot be read is not matched. `memory` limits the process, in bytes, for standard
    input. With `keep_going`, files whose results would have the name of another one's are left out, not refused.
    """
    if sum(text == STDIN or text.endswith(f"={STDIN}") for text in texts) > 1:
        raise UsageError("-i -: standard input holds one file, it is given more than once. Name files for the others.")
    sources: dict[str, list[InputFile]] = {name: [] for name in names}
    failed: list[Failure] = []
    for text in texts:
        for name, source in _sources(text, names, failed, memory):
            sources[name].append(source)
    absent = [name for name in names if not sources[name]]
    if absent:
        fact = f"the model takes {', '.join(names)}, nothing is given for {', '.join(absent)}"
        raise UnpoolError(f"-i: {fact}. Add -i {absent[0]}=FILE.")
    by_stem = {name: _by_stem(files, name, failed if keep_going else None) for name, files in sources.items()}
    return _match(by_stem), failed


def _sources(
    text: str, names: Sequence[str], failed: list[Failure], memory: int | None
) -> Iterator[tuple[str, InputFile]]:
    name, path = split_name(text, names)
    if str(path) == STDIN:
        content, suffix = read_stdin(memory)
        yield input_name(text, name, names), InputFile(Path(f"stdin{suffix}"), content=content)
        return
    files = _files(path)
    for file in files:
        if suffix_of(file) != ".npz":
            yield input_name(text, name, names), InputFile(file)
            continue
        try:
            yield from _members(file, name, names)
        except FileError as error:
            if len(files) == 1:
                raise
            failed.append(Failure(str(file), str(error)))


def _files(path: Path) -> list[Path]:
    if path.is_dir() and not _is_one_folder(path):
        entries = (file for file in path.iterdir() if file.is_file() or _is_one_folder(file))
        visible = sorted((file for file in entries if not file.name.startswith(".")), key=natural)
        files = [file for file in visible if format_of(file)]
        if not files:
            raise FileError(f"{path}: the folder has no files ending in {', '.join(BY_SUFFIX)}. Name another folder.")
        if len(files) < len(visible):
            _log.info("%s: %d files of other kinds are left out", path, len(visible) - len(files))
        return files
    if not path.exists():
        raise MissingFileError(f"{path}: no such file or folder.")
    if format_of(path) is None:
        raise FileError(f"{path}: expected a file ending in {', '.join(BY_SUFFIX)}, got {path.suffix or 'no suffix'}.")
    return [path]


def _is_one_folder(path: Path) -> bool:
    """True for a folder that is one array."""
    known = format_of(path)
    return known is not None and known.is_folder


def _members(path: Path, name: str | None, names: Sequence[str]) -> list[tuple[str, InputFile]]:
    """The inputs in a .npz, under their names or as `safe_names` writes them."""
    if name is not None:
        raise UsageError(f"-i {name}={path}: a .npz names its inputs itself. Leave out '{name}='.")
    members = list_members(path)
    input_names = {safe: plain for plain, safe in safe_names(names).items()} | {plain: plain for plain in names}
    extra = [member for member in members if member not in input_names]
    if extra:
        fact = f"the model has inputs {', '.join(names)}, the file also holds {', '.join(extra)}"
        raise UnpoolError(f"{path}: {fact}. Remove them.")
    return [(input_names[member], InputFile(path, member)) for member in members]


def list_members(path: Path) -> list[str]:
    """The names of the arrays in a .npz file."""
    with read_errors(str(path), "a .npz file"), np.load(path, allow_pickle=False) as archive:
        return list(archive.files)


def _by_stem(sources: Sequence[InputFile], name: str, failed: list[Failure] | None) -> dict[str, InputFile]:
    """The files of input `name` by the name of their result: the stem, or the whole name if the stem is not unique.

    `failed` gets the files that would share a result with an earlier one; None refuses them.
    """
    counts = Counter(stem_of(source.path) for source in sources)
    whole = {source.path.name for source in sources if counts[stem_of(source.path)] > 1}
    by_stem: dict[str, InputFile] = {}
    clashes: list[tuple[InputFile, InputFile]] = []
    for source in sources:
        stem = stem_of(source.path)
        result_name = stem if counts[stem] == 1 and stem not in whole else source.path.name
        if by_stem.setdefault(result_name, source) is not source:
            clashes.append((by_stem[result_name], source))
    if clashes and failed is None:
        pairs = "; ".join(f"{first} and {second}" for first, second in clashes)
        advice = "Rename one of each, run them apart, or add --keep-going to leave out the second."
        raise UsageError(f"-i: files of input {name!r} would share a result: {pairs}. {advice}")
    for first, second in clashes:
        assert failed is not None
        failed.append(Failure(str(second), f"{second}: would share the result of {first}. Rename one of them."))
    return by_stem


def _match(series: Mapping[str, Mapping[str, InputFile]]) -> list[Item]:
    longest = max(series.values(), key=len)
    for sources in series.values():
        if len(sources) > 1 and set(sources) != set(longest):
            odd = min(set(sources) ^ set(longest))
            raise UsageError(f"-i: {odd!r} is missing for an input. Inputs with several files need equal names.")
    shared = {name: next(iter(sources.values())) for name, sources in series.items() if len(sources) == 1}
    several = {name: sources for name, sources in series.items() if len(sources) > 1}
    return [Item(stem, {name: shared.get(name) or several[name][stem] for name in series}) for stem in longest]


def read_stdin(limit: int | None = None) -> tuple[bytes, str]:
    """The bytes of standard input, and the suffix of files of their kind; `limit` is of the process, in bytes."""
    if sys.stdin is None or sys.stdin.isatty():
        state = "closed" if sys.stdin is None else "a terminal"
        raise UsageError(f"-i -: expected the bytes of a file, standard input is {state}. Send it a .npy or .png.")
    most, buffer = available() // SHARE, io.BytesIO()
    while piece := sys.stdin.buffer.read(PIECE):
        size = buffer.tell() + buffer.write(piece)
        if size > most:
            raise ShapeError(f"standard input: {size} bytes and more are a {SHARE}th of the memory. Give a file.")
        if limit is not None and rss() > limit:
            raise ShapeError(f"standard input: {size} bytes and more are above --max-memory. Give a file.")
    content = buffer.getvalue()
    found = format_of_content(content)
    if found is not None:
        return content, found.suffixes[0]
    kinds = ", ".join(each.suffixes[0] for each in FORMATS if each.signature is not None)
    fact = f"expected one array or image ({kinds}), got {'other bytes' if content else 'nothing'}"
    raise FileError(f"standard input: {fact}. Give a file.")
