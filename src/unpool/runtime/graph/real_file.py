"""A data file of a model inside of a folder, and how it is opened so that no link leads out of that folder.

A model names its data files, and links may stand in their places: in the cache of the Hugging Face hub the model and
its data are links into one folder. As in onnxruntime, with all links resolved a data file lies

1. in the folder in which the model was named,
2. in the folder of the file that the model is a link to, or
3. in a folder that the caller named.

Its name is relative, and does not leave the folder of the model by "..".
"""

import os
import stat
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_FOLDER_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_CLOEXEC"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_WALKS = os.open in os.supports_dir_fd and _NO_LINK != 0
"""Whether a file can be opened folder by folder; Windows cannot."""


class OutsideError(ValueError):
    """A data file lies in none of the folders; `is_link`: a link leads out, and not the name."""

    def __init__(self, text: str, *, is_link: bool) -> None:
        super().__init__(text)
        self.is_link = is_link


class RealFile(NamedTuple):
    """A file by a folder and its name in there, in neither of which is a link.

    Attributes:
        folder: an absolute path.
        name: relative to the folder.
    """

    folder: str
    name: str

    @property
    def path(self) -> str:
        """Both together."""
        return os.path.join(self.folder, self.name)

    def open(self) -> BinaryIO:
        """The file, to be read; a link that replaced a part of its name meanwhile is not followed.

        Raises:
            OSError: it is not there, is no regular file, or has a link in its name now.
        """
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


def real_file(model: str | os.PathLike[str], location: str, folders: Iterable[str] = ()) -> RealFile:
    """The file that a model calls `location`, with all links resolved.

    Args:
        model: its path, which may be a link.
        location: as the model has it.
        folders: that the caller named.

    Raises:
        OutsideError: it lies in none of the folders in which it may be.
        IsADirectoryError: it is the folder itself.
    """
    name = os.path.normpath(location)
    own = os.path.realpath(os.path.dirname(os.path.abspath(model)))
    if os.path.isabs(location) or os.path.splitdrive(location)[0] or name.split(os.sep)[0] == os.pardir:
        raise OutsideError("the name leaves the folder of the model", is_link=False)
    real = os.path.realpath(os.path.join(own, name))
    if real == own:
        raise IsADirectoryError("it is the folder of the model")
    for folder in (own, os.path.dirname(os.path.realpath(model)), *map(os.path.realpath, folders)):
        if real.startswith(os.path.join(folder, "")):
            return RealFile(folder, os.path.relpath(real, folder))
    raise OutsideError(f"it is a link to {real}, outside of the folder of the model", is_link=True)
