"""Which version an opset selects, and which types, attributes and outputs that version has."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

VERSIONS = {"MaxPool": (1, 8, 10, 11, 12, 22), "MaxUnpool": (9, 11, 22), "ConvTranspose": (1, 11, 22)}
NHWC_VERSIONS = {"MaxPool": (1, 8, 10, 11, 12), "MaxUnpool": (9, 11), "ConvTranspose": (1, 11)}
LAYOUTS = {"NCHW": VERSIONS, "NHWC": NHWC_VERSIONS}

FLOATS = tuple(np.dtype(t) for t in (np.float16, np.float32, np.float64))
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INT64 = np.dtype(np.int64)

FIRST_VERSION = {"storage_order": 8, "return_indices": 8, "ceil_mode": 10, "dilations": 10}


class Refused(ValueError):  # noqa: N818
    """The contract calls this an error."""


def row_version(operator: str, opset: int, layout: str) -> int:
    """Newest version of the layout's domain that is not newer than the opset."""
    fitting = [version for version in LAYOUTS[layout][operator] if version <= opset]
    if not fitting:
        raise Refused(f"{operator} does not exist in opset {opset}")
    return fitting[-1]


def types(operator: str, version: int | None) -> tuple[np.dtype[Any], ...]:
    """Value types of a version."""
    newest = version is None or version >= 22
    small = operator == "MaxPool" and (version is None or version >= 12)
    return FLOATS + BYTES * small + (BFLOAT16,) * newest


def check_row(
    operator: str, version: int | None, layout: str, values: tuple[np.ndarray, ...], later: Mapping[str, Any]
) -> None:
    """Refuse a version, a type of the inputs or an attribute that is not in the row.

    `later` are attributes and outputs that came with a later version; None, 0 and False mean absent.
    """
    if layout not in LAYOUTS:
        raise Refused(f"layout {layout}")
    if version is not None and version not in LAYOUTS[layout][operator]:
        raise Refused(f"{operator} has no version {version} in layout {layout}")
    if values[0].dtype not in types(operator, version) or any(v.dtype != values[0].dtype for v in values):
        raise Refused(f"types {[v.dtype for v in values]}")
    for name, given in later.items():
        absent = given is None or (isinstance(given, int) and given == 0)
        if not absent and version is not None and not has_attribute(name, version, layout):
            raise Refused(f"{operator}-{version} has no {name}")


def has_attribute(name: str, version: int, layout: str) -> bool:
    """Whether a row has an attribute (or the second output) that some other row has not (5, 6.2)."""
    if name in ("activation", "activation_params"):
        return layout == "NHWC"
    return version >= FIRST_VERSION[name]


def to_channels_first(x: np.ndarray, layout: str) -> np.ndarray:
    """(N, D1..Dn, C) -> (N, C, D1..Dn) for NHWC; refuse fewer than one spatial axis."""
    if x.ndim < 3:
        raise Refused(f"rank {x.ndim}")
    return np.moveaxis(x, -1, 1) if layout == "NHWC" else x


def from_channels_first(y: np.ndarray, layout: str) -> np.ndarray:
    """(N, C, D1..Dn) -> (N, D1..Dn, C) for NHWC."""
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y
