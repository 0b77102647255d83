"""Threads of the operating system, also where gevent or eventlet have replaced Python's threads.

Such libraries replace the functions of `_thread` and `threading` by greenlets, which share one thread: a greenlet that
waits in compiled code stops them all. `_thread` is built in, and a second instance of it always has the interpreter's
own functions.
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
            if isinstance(threading.get_ident, BuiltinFunctionType):  # not of greenlets: this thread has no name then
                threading.current_thread().name = name
            target()
        finally:
            running.release()

    _thread.start_new_thread(run, ())
    return running
