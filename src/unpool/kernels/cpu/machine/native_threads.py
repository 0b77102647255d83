"""Threads of the operating system, where gevent or eventlet have replaced Python's, too.

Such libraries replace the functions of `_thread` and `threading` by greenlets, which share one thread: one that waits
in compiled code stops them all. A second instance of `_thread`, which is built in, has the interpreter's own functions,
whatever has happened to the first, and whatever will.
"""

import threading
from _thread import LockType
from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from types import BuiltinFunctionType, ModuleType


def _new_instance(name: str) -> ModuleType:
    """A built-in module as the interpreter makes it."""
    spec = BuiltinImporter.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_thread = _new_instance("_thread")

get_native_id: Callable[[], int] = _thread.get_native_id


def new_lock() -> LockType:
    """A lock that blocks the thread of the system."""
    lock: LockType = _thread.allocate_lock()
    return lock


def start_thread(target: Callable[[], None], name: str) -> LockType:
    """Call a function in a new thread; the lock is held until that ends. RuntimeError if there are no more threads.

    The process may end before the thread does.
    """
    running = new_lock()
    running.acquire()

    def run() -> None:
        try:
            if isinstance(threading.get_ident, BuiltinFunctionType):  # not of greenlets: this one has no name then
                threading.current_thread().name = name
            target()
        finally:
            running.release()

    _thread.start_new_thread(run, ())
    return running
