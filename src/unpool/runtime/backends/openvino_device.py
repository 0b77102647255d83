"""OpenVINO's CPU device: the package, and the properties that models are compiled with."""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from unpool.errors import UnpoolError
from unpool.runtime.backends.ort_options import TINY_MODEL

DEVICE = "CPU"

_DEFAULTS = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
    "INFERENCE_PRECISION_HINT": "f32",
    "ENABLE_CPU_PINNING": "NO",
}
"""One run at a time on all threads, which share the cores with unpool's and are bound to none; and float32 computed as
float32, where OpenVINO itself would take bfloat16."""

_CORE_PROPERTIES = {"CACHE_DIR"}
"""Properties that the device accepts and does not list."""

_TELEMETRY = "openvino_telemetry"

_LOCATION_PREFIXES = (
    "Exception from ",
    "Check '",
    "While validating",
    "FrontEnd API",
    "-- ",
    "Summary:",
    "To facilitate",
    "Failed",
)
_MAX_MESSAGE = 200


def is_installed() -> bool:
    """True if the package openvino is installed; it is not loaded for that."""
    return find_spec("openvino") is not None


@cache
def package() -> Any:
    """The package openvino, imported without its telemetry, which would report every import."""
    is_first = "openvino" not in sys.modules and _TELEMETRY not in sys.modules
    if is_first:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # how Python writes that a module cannot be imported
    try:
        import openvino
    finally:
        if is_first:
            del sys.modules[_TELEMETRY]
    return openvino


@cache
def core() -> Any:
    """The one Core of this process."""
    return package().Core()


def compile_properties(properties: Mapping[str, str], threads: int) -> dict[str, str]:
    """The properties that partitions are compiled with: the caller's, and defaults for all others.

    Args:
        properties: OpenVINO's, from the caller.
        threads: maximum number of threads.
    """
    return {**_DEFAULTS, "INFERENCE_NUM_THREADS": str(threads), **properties}


def require_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that the device does not have, and values that it does not accept.

    Raises:
        UnpoolError: it names the device's properties, or OpenVINO's reason against the value.

    >>> require_properties({"INFERENCE_NUM_THREADS": "2"})
    """
    if not properties:
        return
    known = core().get_property(DEVICE, "SUPPORTED_PROPERTIES")
    names = sorted({*(name for name, access in known.items() if access == "RW"), *_CORE_PROPERTIES})
    unknown = [name for name in properties if name not in names]
    if unknown:
        raise UnpoolError(
            f"provider_options of 'OpenVINO': expected properties of its CPU device, got {', '.join(unknown)}. "
            f"Choose from {', '.join(names)}."
        )
    for name, value in properties.items():
        try:
            core().compile_model(core().read_model(TINY_MODEL), DEVICE, {name: value})
        except Exception as error:
            raise UnpoolError(
                f"provider_options of 'OpenVINO': expected a value of {name} that its CPU device takes, "
                f"got {value!r}: {openvino_message(error)}. Leave {name} out for its default."
            ) from error


def openvino_message(error: Exception) -> str:
    r"""OpenVINO's error message without the locations in its own sources.

    >>> openvino_message(RuntimeError("Exception from a.cpp:9:\nCheck 'x > 0' failed at b.cpp:7:\nx is negative.\n"))
    'x is negative'
    """
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_LOCATION_PREFIXES)]
    return (" ".join(telling[:2]) or (lines or [""])[0] or type(error).__name__)[:_MAX_MESSAGE].rstrip(". ")
