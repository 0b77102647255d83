"""Section 4: which rules a ConvTranspose case exercises."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.record import Case
from tests.cases.rules_max_pool import bad_lists, bad_row
from tests.oracle.rows import row_version, to_channels_first

Found = Iterator[tuple[str, bool]]


def conv_transpose_rules(case: Case, answer: tuple[np.ndarray, ...] | None) -> Found:
    """Pairs of a rule and whether it decided something."""
    yield from refused_rules(case) if answer is None else accepted_rules(case, answer[0])


def per_axis(case: Case, name: str, default: int, rank: int) -> list[int]:
    """A list attribute, or its default."""
    return list(case.attributes.get(name, [default] * rank))


def reach_of(case: Case, w: np.ndarray) -> list[int]:
    """Extent of the dilated window of every axis."""
    dilations = per_axis(case, "dilations", 1, w.ndim - 2)
    return [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]


def mode_of(case: Case) -> str:
    return str(case.attributes.get("auto_pad", "NOTSET") or "NOTSET")


def refused_rules(case: Case) -> Found:
    """Section 4 where it refuses."""
    x, w, b = case.inputs
    given = case.attributes
    x = to_channels_first(x, case.layout)
    rank = x.ndim - 2
    group = given.get("group", 1)
    channels = group < 1 or x.shape[1] % group != 0 or w.shape[0] != x.shape[1]
    bias = b is not None and b.shape != (w.shape[1] * group,)
    unknown = mode_of(case) not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    beside = mode_of(case) != "NOTSET" and any(given.get("pads", ()))
    yield "4.16", w.ndim != x.ndim
    if w.ndim != x.ndim:
        return
    window = tuple(given.get("kernel_shape", w.shape[2:])) != w.shape[2:]
    yield "4.12", channels
    yield "4.13", bias and not channels
    yield "4.14", window
    yield "4.15", 0 in w.shape[2:]
    yield "4.2", unknown or beside
    wrong = [channels, bias, window, unknown, beside, 0 in w.shape[2:], bad_lists(given, rank), bad_row(case)]
    if any(wrong) or w.dtype != x.dtype:
        return
    asked = given.get("output_shape")
    bad_shape = asked is not None and not is_output_shape(asked, rank, [x.shape[0], w.shape[1] * group])
    yield "4.10", bad_shape
    bad_padding = is_padding_refused(case, rank)
    yield "4.11", bad_padding
    sizes = not bad_shape and not bad_padding and asked is None and mode_of(case) in ("NOTSET", "VALID")
    yield "4.1", sizes and mode_of(case) == "NOTSET"


def is_output_shape(asked: list[int], rank: int, head: list[int]) -> bool:
    """Whether output_shape has n sizes, or N, M and n sizes."""
    return min(asked) >= 0 and (len(asked) == rank or (len(asked) == rank + 2 and asked[:2] == head))


def is_padding_refused(case: Case, rank: int) -> bool:
    """Whether output_padding breaks its bound."""
    old = case.opset is not None and row_version("ConvTranspose", case.opset, case.layout) == 1
    more, strides = per_axis(case, "output_padding", 0, rank), per_axis(case, "strides", 1, rank)
    spread = per_axis(case, "dilations", 1, rank)
    late = not old and any(m >= max(s, d) for m, s, d in zip(more, strides, spread, strict=True) if m)
    return late or (case.compat == "ort" and any(m >= s for m, s in zip(more, strides, strict=True) if m))


def accepted_rules(case: Case, y: np.ndarray) -> Found:
    """Section 4 where it computes."""
    given: Any = case.attributes
    x, w, b = case.inputs
    x, y = to_channels_first(x, case.layout), to_channels_first(y, case.layout)
    rank = x.ndim - 2
    strides, more = per_axis(case, "strides", 1, rank), per_axis(case, "output_padding", 0, rank)
    pads = given.get("pads", [0] * 2 * rank)
    asked = given.get("output_shape")
    reach = reach_of(case, w)
    full = [(n - 1) * s + r + m for n, s, r, m in zip(x.shape[2:], strides, reach, more, strict=True)]
    mode = mode_of(case)
    free, same = asked is None, asked is None and mode.startswith("SAME")
    totals = [
        f - (n * s if same else size) for f, n, s, size in zip(full, x.shape[2:], strides, y.shape[2:], strict=True)
    ]
    yield "4.1", free and mode == "NOTSET" and any(pads)
    yield "4.2", (free and mode == "VALID" and any(more)) or (mode != "NOTSET" and "pads" in given)
    yield "4.3", same and max(strides) > 1
    yield "4.4", same and any(total > 0 and total % 2 for total in totals)
    yield "4.5", same and any(total < 0 for total in totals)
    yield "4.6", same and any(more)
    yield "4.7", not free and any(total > 0 and total % 2 for total in totals)
    yield "4.8", not free and any(total < 0 for total in totals)
    yield "4.9", not free and (any(more) or any(pads) or mode == "VALID")
    yield "4.10", not free and (len(asked) != rank or 0 in y.shape[2:])
    yield "4.11", free and not same and reveals(case, strides, more, pads)
    yield "4.12", given.get("group", 1) > 1
    yield "4.13", b is not None and y.size > 0
    yield "4.15", 0 in x.shape or 0 in w.shape or 0 in y.shape
    yield "4.16", rank >= 4
    yield "4.17", not all(np.isfinite(array.astype(np.float64)).all() for array in (x, w))


def reveals(case: Case, strides: list[int], more: list[int], pads: list[int]) -> bool:
    """Whether output_padding lies beyond the stride, or shows cells that pads would have cut."""
    beyond = any(m >= s for m, s in zip(more, strides, strict=True) if m)
    ends = pads[len(more) :] if mode_of(case) == "NOTSET" else [0] * len(more)
    return beyond or any(m and end for m, end in zip(more, ends, strict=True))
