"""Files that appear together or not at all; all that unpool writes goes through here."""

from unpool.files.file_set import FileSet, write
from unpool.files.locks import lock
from unpool.files.targets import (
    WriteError,
    copy_mode,
    find_overlap,
    is_any,
    is_same,
    replace,
    resolve_link,
    resolve_target,
    sync,
    sync_file,
    sync_folder,
    write_errors,
)

__all__ = [
    "FileSet",
    "WriteError",
    "copy_mode",
    "find_overlap",
    "is_any",
    "is_same",
    "lock",
    "replace",
    "resolve_link",
    "resolve_target",
    "sync",
    "sync_file",
    "sync_folder",
    "write",
    "write_errors",
]
