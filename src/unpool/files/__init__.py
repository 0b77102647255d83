"""Files that appear together or not at all; all that unpool writes goes through here."""

from unpool.files.file_set import FileSet, write
from unpool.files.locks import lock
from unpool.files.places import WriteError, behind_link, is_any, is_same, named, overlapping, place_of
from unpool.files.staged import sync, sync_folder, take_mode

__all__ = [
    "FileSet",
    "WriteError",
    "behind_link",
    "is_any",
    "is_same",
    "lock",
    "named",
    "overlapping",
    "place_of",
    "sync",
    "sync_folder",
    "take_mode",
    "write",
]
