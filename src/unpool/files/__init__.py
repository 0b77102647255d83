"""Files that appear together or not at all; all that unpool writes goes through here."""

from unpool.files.file_set import FileSet, write
from unpool.files.places import WriteError, is_any, is_same, named, place_of
from unpool.files.staged import sync, sync_folder

__all__ = ["FileSet", "WriteError", "is_any", "is_same", "named", "place_of", "sync", "sync_folder", "write"]
