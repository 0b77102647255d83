"""Files with the data of tensors: where they may be, and ranges of their bytes, read later than the model.

They are never mapped: a file that another process shortens would end this one. A stamp tells whether a file was
replaced or written to.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NamedTuple

from unpool.errors import FileError
from unpool.graph.errors import short_message

FOLDERS_ENTRY = "unpool.external_data_folders"
"""The session config entry that names further folders in which data files may be, separated as in PATH."""

CHUNK = 2**24  # bytes that are copied at a time
_REPLACED = "the file was replaced or written to while the model was loaded"
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_FOLDER_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_CLOEXEC"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_WALKS = os.open in os.supports_dir_fd and _NO_LINK != 0  # files can be opened folder by folder; not on Windows


class OutsideFolderError(ValueError):
    """A data file lies in none of the folders; `is_link`: a link leads out, and not the name."""

    def __init__(self, text: str, *, is_link: bool) -> None:
        super().__init__(text)
        self.is_link = is_link


class DataFile(NamedTuple):
    """A file by a folder, an absolute path, and its name relative to it, neither of which contains a link."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        """Folder and name joined."""
        return os.path.join(self.folder, self.name)

    def open(self) -> BinaryIO:
        """The file, opened for reading; an OSError if it is no regular file, or a link replaced a part of its name."""
        descriptor = self._descriptor()
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is no regular file")
            if not _WALKS and os.path.realpath(self.path) != self.path:
                raise OSError("a link replaced it")
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _descriptor(self) -> int:
        if not _WALKS:
            return os.open(self.path, _FLAGS | _NO_LINK)
        *folders, last = self.name.split(os.sep)
        at = os.open(self.folder, _FOLDER_FLAGS)
        try:
            for name in folders:
                inner = os.open(name, _FOLDER_FLAGS | _NO_LINK, dir_fd=at)
                os.close(at)
                at = inner
            return os.open(last, _FLAGS | _NO_LINK, dir_fd=at)
        finally:
            os.close(at)


def find_data_file(model: str | os.PathLike[str], location: str, folders: Iterable[str] = ()) -> DataFile:
    """The file that a model calls `location`, with all links resolved; as in onnxruntime, one in these folders.

    1. the one in which the model was named, as the system resolves it: link/.. is the folder around the link's target,
    2. that of the file that the model is a link to, as in the cache of the Hugging Face hub, or
    3. one that the caller named.

    Its name is relative, and does not leave the folder of the model by "..". Any other place is an OutsideFolderError,
    the folder itself an IsADirectoryError.
    """
    name = os.path.normpath(location)
    own = os.path.realpath(os.path.dirname(model))
    if os.path.splitdrive(name)[0] or name.split(os.sep)[0] in ("", os.pardir):
        raise OutsideFolderError("the name leaves the folder of the model", is_link=False)
    real = os.path.realpath(os.path.join(own, location))
    if real == own:
        raise IsADirectoryError("it is the folder of the model")
    for folder in (own, os.path.dirname(os.path.realpath(model)), *map(os.path.realpath, folders)):
        if real.startswith(os.path.join(folder, "")):
            return DataFile(folder, os.path.relpath(real, folder))
    raise OutsideFolderError(f"it is a link to {real}, outside of the folder of the model", is_link=True)


def file_stamp(stream: Any) -> str:
    """A stamp of a file, which changes if the file is replaced or written to."""
    status = os.fstat(stream.fileno())
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"


class DataRange(NamedTuple):
    """The bytes of a tensor in a file."""

    file: DataFile
    offset: int
    size: int
    tensor: str  # its name, for errors
    stamp: str | None = None  # of the file, where it may not change


class DataReader(ExitStack):
    """Reads ranges of files, each of which it opens once; a context manager, which closes them.

    All methods raise a FileError if a file is not what it was when the model was read.
    """

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[DataFile, BinaryIO] = {}

    def read_into(self, data: DataRange, buffer: memoryview) -> None:
        """Read the bytes into a buffer of their size."""
        with self._opened(data) as stream:
            stream.seek(data.offset)
            if stream.readinto(buffer) < data.size:  # type: ignore[attr-defined]
                raise ValueError("the file is too short")

    def chunks(self, data: DataRange) -> Iterator[bytes]:
        """The bytes, at most CHUNK at a time."""
        remaining = data.size
        with self._opened(data) as stream:
            stream.seek(data.offset)
            while remaining:
                chunk = stream.read(min(CHUNK, remaining))
                if not chunk:
                    raise ValueError(f"{remaining} bytes too few")
                remaining -= len(chunk)
                yield chunk

    def copy_to(self, data: DataRange, target: int) -> None:
        """Let the system copy the bytes to an open file."""
        remaining, offset = data.size, data.offset
        with self._opened(data) as stream:
            while remaining:
                copied = os.sendfile(target, stream.fileno(), offset, remaining)
                if not copied:
                    raise ValueError(f"{remaining} bytes too few")
                remaining, offset = remaining - copied, offset + copied

    @contextmanager
    def _opened(self, data: DataRange) -> Iterator[BinaryIO]:
        """The open file; after the block, its stamp is compared."""
        try:
            if data.file not in self._streams:
                self._streams[data.file] = self.enter_context(data.file.open())
            stream = self._streams[data.file]
            yield stream
            if data.stamp not in (None, file_stamp(stream)):
                raise ValueError(_REPLACED)
        except (OSError, ValueError) as error:
            fact = f"the data of tensor {data.tensor!r} cannot be read: {short_message(error)}"
            raise FileError(f"{data.file.path}: {fact}. Leave the file where it was.") from error
