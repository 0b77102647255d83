"""The library of custom operators in a session of onnxruntime."""

import ctypes
from functools import cache
from typing import Any

from unpool.errors import UnpoolError
from unpool.onnxruntime import callbacks, library

_REGISTERED = "unpool.registered"
"""The configuration entry that the library adds to the options that have its operators."""

_DEFAULTS = {"exact": "0", "compat": "spec", "index_space": "auto", "opset": "", "trust_plans": "", "domains": "all"}
"""What the library takes where the configuration has no entry."""


_DOMAINS = ("all", "unpool")


def get_library_path() -> str:
    """The path of the library, for `SessionOptions.register_custom_ops_library`.

    A session that registers it runs MaxPool, MaxUnpool and ConvTranspose by unpool, in the domains "" and
    com.ms.internal.nhwc, in the types float16, bfloat16, float32 and float64, and MaxPool also in int8 and uint8.

    Raises:
        UnpoolError: this installation has no library, one of other sources, or one that cannot be loaded.

    >>> from pathlib import Path
    >>> "unpool" in Path(get_library_path()).stem
    True
    """
    _load()
    return str(library.PATH)


@cache
def _load() -> None:
    """Load the library once, and let it call Python."""
    if not library.PATH.is_file():
        raise _error("there is no library for onnxruntime")
    try:
        loaded = ctypes.CDLL(str(library.PATH))
    except OSError as cause:
        raise _error(f"the library for onnxruntime cannot be loaded ({cause})") from cause
    if _sources_of(loaded) != library.source_digest():
        raise _error("the library for onnxruntime was built from other sources")
    callbacks.attach()


def _error(fact: str) -> UnpoolError:
    return UnpoolError(f"{library.PATH}: {fact}. Run python -m unpool.build --onnxruntime.")


def _sources_of(loaded: Any) -> str:
    """The digest of the sources that a library was built from."""
    loaded.unpool_sources.restype = ctypes.c_char_p
    digest: bytes = loaded.unpool_sources()
    return digest.decode()


def register(
    session_options: Any,
    *,
    exact: bool = False,
    compat: str = "spec",
    index_space: str = "auto",
    opset: int | None = None,
    trust_plans: bool = False,
    domains: str = "all",
) -> None:
    """Make sessions with these options compute MaxPool, MaxUnpool and ConvTranspose by unpool.

    A second call for the same options with the same arguments does nothing.

    Args:
        session_options: an `onnxruntime.SessionOptions`, which is changed: it gets the library, and configuration
            entries whose names begin with "unpool.".
        exact: True computes ConvTranspose without fast algorithms, and every float MaxPool by unpool, also one between
            Convs, which onnxruntime computes in its blocked layout.
        compat: "spec" follows the standard's text, "ort" onnxruntime if the two differ.
        index_space: the tensor that MaxUnpool's indices refer to, as in `unpool.max_unpool`.
        opset: the opset of the models, which onnxruntime does not tell an operator. None follows the newest versions;
            then onnxruntime computes ConvTranspose below opset 11, because its rules were different.
        trust_plans: True runs the nodes of models that `compile` wrote, whose plans are code; onnxruntime computes all
            other nodes.
        domains: "all" makes unpool compute the standard operators and those of its own domain; "unpool" only those of
            its own domain, so that a model selects the nodes that unpool computes.

    Raises:
        UnpoolError: an argument is wrong, the options were registered with other arguments, or this installation has no
            library.

    >>> import onnxruntime
    >>> options = onnxruntime.SessionOptions()
    >>> register(options)
    """
    if not hasattr(session_options, "register_custom_ops_library"):
        kind = type(session_options).__name__
        raise UnpoolError(f"register: expected an onnxruntime.SessionOptions, got a value of type {kind}.")
    path = get_library_path()
    entries = _entries(exact, compat, index_space, opset, trust_plans=trust_plans, domains=domains)
    if not _entry(session_options, _REGISTERED):
        for name, value in entries.items():
            session_options.add_session_config_entry(f"unpool.{name}", value)
        session_options.register_custom_ops_library(path)
        return
    for name, default in _DEFAULTS.items():
        earlier, value = _entry(session_options, f"unpool.{name}") or default, entries.get(name, "")
        if earlier != value:
            raise UnpoolError(
                f"register: these options are registered with unpool.{name}={earlier!r}, got {value!r}. "
                "Use new SessionOptions."
            )


def is_registered(session_options: Any) -> bool:
    """True if options have the library."""
    return bool(_entry(session_options, _REGISTERED))


def _entries(
    exact: bool, compat: str, index_space: str, opset: int | None, *, trust_plans: bool, domains: str
) -> dict[str, str]:
    """The entries of the configuration, without the beginning of their names; an UnpoolError for a wrong argument."""
    for name, flag in (("exact", exact), ("trust_plans", trust_plans)):
        if not isinstance(flag, bool):
            raise UnpoolError(f"register: {name} is True or False; got {flag!r}.")
    if domains not in _DOMAINS:
        raise UnpoolError(f"register: domains is one of {', '.join(_DOMAINS)}; got {domains!r}.")
    if (compat, index_space) != (_DEFAULTS["compat"], _DEFAULTS["index_space"]):
        _check_choices(compat=compat, index_space=index_space)
    if opset is not None and (isinstance(opset, bool) or not isinstance(opset, int) or opset < 1):
        raise UnpoolError(f"register: opset is an int of 1 or more, or None; got {opset!r}.")
    entries = {"exact": str(int(exact)), "compat": compat, "index_space": index_space, "domains": domains}
    if trust_plans:
        entries["trust_plans"] = "1"
    return entries if opset is None else entries | {"opset": str(opset)}


def _check_choices(**values: str) -> None:
    """An UnpoolError for a value that the operators do not have; only this imports them."""
    from unpool.operators.attributes import COMPAT
    from unpool.operators.max_unpool import INDEX_SPACES

    for name, choices in (("compat", COMPAT), ("index_space", INDEX_SPACES)):
        if values[name] not in choices:
            raise UnpoolError(f"register: {name} is one of {', '.join(choices)}; got {values[name]!r}.")


def _entry(session_options: Any, name: str) -> str:
    """An entry of the configuration of a session; empty if it is not set."""
    try:
        value: str = session_options.get_session_config_entry(name)
    except RuntimeError:
        return ""
    return value
