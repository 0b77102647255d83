"""OpenVINO's CPU device: whether it is installed, how models are compiled for it, and what a caller may tell it."""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from onnx import TensorProto, helper

from unpool.errors import UnpoolError

DEVICE = "CPU"

_DEFAULTS = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
    "INFERENCE_PRECISION_HINT": "f32",
    "ENABLE_CPU_PINNING": "NO",
}
"""One run at a time on all threads, which share the cores with ours and are bound to none; and float32 computed as
float32, where OpenVINO itself would take bfloat16."""

_OF_THE_CORE = {"CACHE_DIR"}
"""Properties that the device does not list, and that count for it."""

_TELEMETRY = "openvino_telemetry"


def is_installed() -> bool:
    """Whether the package openvino is there; it is not loaded for that."""
    return find_spec("openvino") is not None


@cache
def package() -> Any:
    """The package openvino.

    It tells its makers of every import, unless the package that does so is missing: so it is, for that moment.
    """
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


def properties(asked: Mapping[str, str], threads: int) -> dict[str, str]:
    """What pieces are compiled with: what was asked for, and beside it the defaults.

    Args:
        asked: OpenVINO's properties by name, as text.
        threads: at most so many.
    """
    return {**_DEFAULTS, "INFERENCE_NUM_THREADS": str(threads), **asked}


def require_properties(asked: Mapping[str, str]) -> None:
    """Refuse properties that the device does not have, and values that it does not take.

    Raises:
        UnpoolError: it names those that there are, or what OpenVINO says of the value.

    >>> require_properties({"INFERENCE_NUM_THREADS": "2"})
    """
    if not asked:
        return
    known = core().get_property(DEVICE, "SUPPORTED_PROPERTIES")
    names = sorted({*(name for name, access in known.items() if access == "RW"), *_OF_THE_CORE})
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise UnpoolError(
            f"provider_options of 'OpenVINO': expected properties of its CPU device, got {', '.join(unknown)}. "
            f"Choose from {', '.join(names)}."
        )
    for name, value in asked.items():
        try:
            core().compile_model(core().read_model(_tiny()), DEVICE, {name: value})
        except Exception as error:
            raise UnpoolError(
                f"provider_options of 'OpenVINO': expected a value of {name} that its CPU device takes, "
                f"got {value!r}: {said(error)}. Leave {name} out for its default."
            ) from error


def said(error: Exception) -> str:
    r"""What OpenVINO says went wrong, without where in its own sources that was.

    >>> said(RuntimeError("Exception from src/a.cpp:9:\nCheck 'x > 0' failed at src/b.cpp:7:\nx is negative.\n"))
    'x is negative'
    """
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_PLACES)]
    return (" ".join(telling[:2]) or (lines or [""])[0] or type(error).__name__)[:_LONGEST].rstrip(". ")


_PLACES = (
    "Exception from ",
    "Check '",
    "While validating",
    "FrontEnd API",
    "-- ",
    "Summary:",
    "To facilitate",
    "Failed",
)
_LONGEST = 200


def _tiny() -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return bytes(model.SerializeToString())
