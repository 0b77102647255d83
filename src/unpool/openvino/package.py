"""The package openvino, imported without its telemetry."""

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from unpool.extras import require

_TELEMETRY = "openvino_telemetry"


def is_installed() -> bool:
    """True if the package openvino is installed; it is not loaded for that."""
    return find_spec("openvino") is not None


@cache
def package() -> Any:
    """The package openvino, which would report every import to its developers.

    Raises:
        MissingExtraError: it is not installed.
    """
    require("unpool.openvino", "openvino", "openvino")
    is_first = "openvino" not in sys.modules and _TELEMETRY not in sys.modules
    if is_first:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # how Python writes that a module cannot be imported
    try:
        return import_module("openvino")
    finally:
        if is_first:
            del sys.modules[_TELEMETRY]
