"""Section 3: which rules a MaxPool case exercises."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tests.cases.record import Case
from tests.oracle.max_pool import pool_axes, slide
from tests.oracle.rows import Refused, has_attribute, row_version, to_channels_first, types
from tests.oracle.window import Pooled

LISTS = {"kernel_shape": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (2, 0)}
Found = Iterator[tuple[str, bool]]


def bad_lists(attributes: Any, rank: int) -> bool:
    """Whether a window attribute has the wrong length or a value out of range."""
    return any(
        len(values) != share * rank or min(values, default=lowest) < lowest
        for name, (share, lowest) in LISTS.items()
        if (values := attributes.get(name)) is not None
    )


def bad_row(case: Case) -> bool:
    """Whether type, attributes or outputs are not in the row of the case."""
    version = None if case.opset is None else row_version(case.operator, case.opset, case.layout)
    if case.inputs[0].dtype not in types(case.operator, version):
        return True
    later = ("storage_order", "ceil_mode", "dilations", "activation", "activation_params")
    given = [name for name in later if case.attributes.get(name)]
    given += ["return_indices"] * (case.outputs == 2)
    pool = case.operator == "MaxPool"
    return version is not None and any(
        not has_attribute(name, version, case.layout) for name in given if pool or name.startswith("activation")
    )


def max_pool_rules(case: Case, answer: tuple[np.ndarray, ...] | None) -> Found:
    """Pairs of a rule and whether it decided something."""
    yield from refused_rules(case) if answer is None else accepted_rules(case)


def refused_rules(case: Case) -> Found:
    """Section 3 where it refuses."""
    given = case.attributes
    x = case.inputs[0]
    rank = x.ndim - 2
    if rank < 1:
        yield "3.15", True
        return
    mode = given.get("auto_pad", "NOTSET") or "NOTSET"
    unknown = mode not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    beside = mode != "NOTSET" and any(given.get("pads", ())) and case.compat == "spec"
    lists = bad_lists(given, rank)
    wide = (
        case.compat == "ort"
        and not lists
        and any(pad >= given["kernel_shape"][i % rank] for i, pad in enumerate(given.get("pads", ())))
    )
    yield "3.16", lists
    yield "3.8", unknown or beside
    yield "3.2", given.get("ceil_mode", 0) not in (0, 1)
    yield "3.14", given.get("storage_order", 0) not in (0, 1)
    version = case.opset and row_version("MaxPool", case.opset, case.layout)
    yield "3.17", case.outputs == 2 and version == 1
    yield "3.10", wide
    yield "3.1", mode == "NOTSET" and not (lists or unknown or beside or wide or bad_row(case)) and is_negative(case)


def is_negative(case: Case) -> bool:
    """Whether an otherwise valid case asks for a negative size."""
    try:
        axes_of(case, to_channels_first(case.inputs[0], case.layout))
    except Refused:
        return True
    return False


def axes_of(case: Case, x: np.ndarray) -> list[Pooled]:
    """The oracle's axes."""
    given = case.attributes
    return pool_axes(
        x.shape,
        given["kernel_shape"],
        given.get("strides"),
        given.get("pads"),
        given.get("dilations"),
        given.get("auto_pad", "NOTSET"),
        given.get("ceil_mode", 0),
        case.compat,
    )


def accepted_rules(case: Case) -> Found:
    """Section 3 where it computes."""
    given = case.attributes
    x = to_channels_first(case.inputs[0], case.layout)
    axes = axes_of(case, x)
    mode = given.get("auto_pad", "NOTSET") or "NOTSET"
    ceil = given.get("ceil_mode", 0) == 1
    pads = given.get("pads", [0] * 2 * len(axes))
    reach = [(a.window - 1) * a.dilation + 1 for a in axes]
    edges = [b + e for b, e in zip(pads, pads[len(axes) :], strict=False)] if mode == "NOTSET" else [0] * len(axes)
    remains = any((a.large + e - r) % a.stride for a, e, r in zip(axes, edges, reach, strict=True))
    totals = [(a.size - 1) * a.stride + r - a.large for a, r in zip(axes, reach, strict=True) if a.large]
    same = mode.startswith("SAME")
    yield "3.1", mode == "NOTSET" and not ceil and remains
    yield "3.2", ceil and remains and (mode == "NOTSET" or (mode == "VALID" and case.compat == "ort"))
    yield "3.3", mode == "VALID" and ceil and remains
    yield "3.4", same and any(a.large % a.stride for a in axes)
    yield "3.5", same and any(total > 0 and total % 2 for total in totals)
    yield "3.6", same and any(a.dilation > 1 and a.window > 1 for a in axes)
    yield "3.7", same and any(total < 0 for total in totals)
    yield "3.8", (mode != "NOTSET" and "pads" in given) or (given.get("auto_pad") == "" and any(pads))
    yield "3.9", mode == "NOTSET" and pads[: len(axes)] != pads[len(axes) :]
    wide = mode == "NOTSET" and any(pad >= axes[i % len(axes)].window for i, pad in enumerate(pads))
    yield from value_rules(case, x, axes, wide)
    yield "3.15", len(axes) >= 4 or 0 in x.shape
    yield "3.16", case.opset is not None and "strides" not in given and max(reach) > 1
    yield "3.17", case.outputs == 2 and case.opset is not None
    yield "3.18", is_missed_by_reference(case, axes, totals) or has_special_window(x, axes)


def value_rules(case: Case, x: np.ndarray, axes: Sequence[Pooled], wide: bool) -> Found:
    """The rules that depend on the values in the windows."""
    y, indices = slide(x, axes, 0)
    floats = x.dtype.kind not in "iu"
    lowest = -np.inf if floats else np.iinfo(x.dtype).min
    wide_y = y.astype(np.float64)
    planes = x.shape[0] * x.shape[1]
    order = case.attributes.get("storage_order", 0) and sum(size > 1 for size in x.shape[2:]) > 1
    yield "3.10", wide or bool((indices < 0).any())
    yield "3.11", bool(((wide_y == lowest) & (indices >= 0)).any())
    yield "3.12", bool(np.isnan(wide_y).any())
    yield "3.13", has_tie(x.astype(np.float64), axes)
    yield "3.14", bool(case.outputs == 2 and y.size and (planes > 1 or order))


def windows(x: np.ndarray, axes: Sequence[Pooled]) -> Iterator[np.ndarray]:
    """The elements that each window sees."""
    seen = [
        [
            [at for t in range(a.window) if 0 <= (at := o * a.stride + t * a.dilation - a.begin) < a.large]
            for o in range(a.size)
        ]
        for a in axes
    ]
    for plane in x.reshape(-1, *x.shape[2:]) if x.size else ():
        for positions in product(*seen):
            yield plane[np.ix_(*[np.array(p, np.intp) for p in positions])]


def has_tie(x: np.ndarray, axes: Sequence[Pooled]) -> bool:
    """Whether some window holds its maximum twice."""
    return any(
        values.size > 1 and not np.isnan(values).any() and (values == values.max()).sum() > 1
        for values in windows(x, axes)
    )


def has_special_window(x: np.ndarray, axes: Sequence[Pooled]) -> bool:
    """Whether some window is all NaN or sees only padding."""
    values = x.astype(np.float64)
    if not np.isnan(values).any() and all(a.begin <= 0 for a in axes):
        return False
    return any(np.isnan(seen).all() for seen in windows(values, axes))


def is_missed_by_reference(case: Case, axes: Sequence[Pooled], totals: Sequence[int]) -> bool:
    """Whether the case is one where onnx's ReferenceEvaluator leaves the text."""
    x = to_channels_first(case.inputs[0], case.layout)
    mode = case.attributes.get("auto_pad", "NOTSET")
    pads = case.attributes.get("pads", [0] * 2 * len(axes))
    indexed = case.outputs == 2
    if all(a.stride == 1 and a.dilation == 1 for a in axes):
        planes = indexed and x.shape[0] * x.shape[1] > 1
        ordered = indexed and case.attributes.get("storage_order", 0) == 1 and len(axes) > 1
        uneven = pads[: len(axes)] != pads[len(axes) :]
        single = mode.startswith("SAME") and any(a.window == 1 for a in axes)
        return planes or ordered or uneven or (indexed and any(pads)) or single
    lower = mode == "SAME_LOWER" and (any(a.large % a.stride for a in axes) or any(t % 2 for t in totals))
    return lower or (mode.startswith("SAME") and any(total < 0 for total in totals))
