"""What onnxruntime gets for the file of a model, kept so that a later session reads neither the model nor onnx.

A file is known by its inode, size and times. One that was written in the last seconds is not kept: it could change
again without another time. Large weights stay in the file, and are read from there; so a model with data files of its
own is not kept either, nor one of which the options have other weights.
"""

import os
import pickle
import stat
import time
from typing import Any, NamedTuple

from unpool.graph.data_file import FOLDERS_ENTRY
from unpool.graph.errors import is_from_signal_handler
from unpool.onnxruntime import model_cache
from unpool.onnxruntime.model_cache import Key
from unpool.onnxruntime.options import config_entry, replaced
from unpool.onnxruntime.session_arguments import SessionArguments
from unpool.onnxruntime.weight_values import Create, WeightValue, create_with

SETTLED = 2 * 10**9
"""Nanoseconds after which another change of a file has another time, on any file system."""


class StoredModel(NamedTuple):
    """What onnxruntime got for a file, and the names that options could replace weights by."""

    rest: bytes  # of the model without its large weights; empty where onnxruntime gets the file as it is
    weights: tuple[WeightValue, ...]
    plan: bytes  # a pickle, which few callers ask for
    has_own_nodes: bool
    opset: int | None
    shares_memory: bool  # between values that are not used at the same time
    initializers: tuple[str, ...]

    def open(self, path: str, arguments: SessionArguments, create: Create) -> bool:
        """Create the session; False where the options have other weights."""
        if arguments.options is not None and replaced(arguments.options, self.initializers):
            return False
        if not self.rest:
            options = arguments.session_options(spins_briefly=self.has_own_nodes, is_copied=True)
            create(path, options, lambda: None)
            return True
        options = arguments.registered(self.opset, spins_briefly=self.has_own_nodes, is_copied=True, domains="unpool")
        options.enable_mem_reuse &= self.shares_memory
        create_with(self.rest, self.weights, options, create)
        return True

    def read_plan(self) -> Any:
        """The `SessionPlan`."""
        return pickle.loads(self.plan)  # from a checked file


def open_stored(source: object, arguments: SessionArguments, create: Create) -> StoredModel | None:
    """The model of a file that was kept, of which a session has been created; None where there is none."""
    key = key_of(source, arguments)
    stored = None if key is None else model_cache.find(key, StoredModel)
    try:
        is_open = stored is not None and stored.open(os.fspath(source), arguments, create)  # type: ignore[call-overload]
    except Exception as error:  # raised again, and explained, where the model is read
        if is_from_signal_handler(error):
            raise
        return None
    return stored if is_open else None


def key_of(source: object, arguments: SessionArguments) -> Key | None:
    """The key of a file with a model, and of the arguments that decide what becomes of it; None where none is kept."""
    options, semantics = arguments.options, arguments.semantics
    if not isinstance(source, str | os.PathLike) or arguments.has_other_provider or arguments.has_additions:
        return None
    if arguments.writes_model or not model_cache.is_on():
        return None
    if options is not None and config_entry(options, FOLDERS_ENTRY):
        return None
    try:
        status = os.stat(source)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < SETTLED:
        return None
    stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    disabled = tuple(sorted(arguments.disabled))
    return "file", (*stamp, semantics.compat, semantics.index_space, semantics.exact, arguments.optimizes, disabled)


def keep(key: Key, stored: StoredModel, source: object, arguments: SessionArguments) -> None:
    """Keep what onnxruntime got for a file, unless it has changed since it had this key."""
    if key == key_of(source, arguments):
        model_cache.keep(key, stored)
