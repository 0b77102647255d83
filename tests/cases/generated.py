"""Seeded random cases over versions, types, ranks, layouts, compat and index spaces; some are invalid on purpose.

`case(seed)` makes the case, `judged(seed)` adds what the oracle says.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from tests import oracle
from tests.cases.draft import WIDEST, Draft, Rng, chance, ints, pick, spoil_lists
from tests.cases.record import Case
from tests.cases.values import exact_or_real, pool_values
from tests.support.kernel_choice import is_chosen
from tests.support.runners import Outputs, run_oracle

OPERATORS = ("MaxPool", "MaxUnpool", "ConvTranspose")
MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def max_pool(rng: Rng) -> Case:
    draft = Draft("MaxPool", rng)
    rank, attributes = draft.rank, draft.attributes
    kernel = ints(rng, 1, WIDEST[rank], rank)
    attributes["kernel_shape"] = kernel
    draft.maybe(0.6, "strides", 1, 5 if rank == 1 else 3)
    if draft.has(10) or chance(rng, 0.05):
        draft.maybe(0.5, "dilations", 1, 3)
    mode = pick(rng, (None, *MODES, "", "SAME"), (38, 12, 16, 16, 22, 3, 1))
    if mode is not None:
        attributes["auto_pad"] = mode
    pool_pads(draft, kernel, mode or "NOTSET")
    if draft.has(10) or chance(rng, 0.03):
        attributes["ceil_mode"] = pick(rng, (0, 1, 2), (15, 83, 2) if mode == "VALID" else (40, 58, 2))
    if draft.has(8) or chance(rng, 0.05):
        attributes["storage_order"] = pick(rng, (0, 1, 2), (60, 38, 2))
    outputs = pool_outputs(draft)
    draft.active()
    if chance(rng, 0.07):
        spoil_lists(draft)
    shape = (*draft.outer(), *draft.sizes())
    x = pool_values(rng, shape, draft.kind)
    if chance(rng, 0.01):
        x = x.reshape(-1, 1) if x.size else x.reshape(0, 1)
    return draft.case((x,), outputs=outputs, tolerance=curved(draft))


def pool_outputs(draft: Draft) -> int:
    """With indices or without, as is chosen for the type and stride; versions without indices get a stride to fit."""
    strides, has_lanes = draft.attributes.get("strides", [1]), draft.layout == "NCHW"
    if draft.has(8):
        both = (each for each in (True, False) if is_chosen(draft.kind, strides[-1] if has_lanes else 1, each))
        return 1 + pick(draft.rng, tuple(both))
    if has_lanes and not is_chosen(draft.kind, strides[-1], has_indices=False):
        draft.attributes["strides"] = [*strides[:-1], 1 if strides[-1] > 1 else 2]
    return 2 if chance(draft.rng, 0.08) else 1


def pool_pads(draft: Draft, kernel: list[int], mode: str) -> None:
    """Pads that mostly stay below the kernel; beside auto_pad mostly none."""
    rng = draft.rng
    wide = chance(rng, 0.25) and (draft.compat == "spec" or chance(rng, 0.3))
    pads = [int(rng.integers(0, k + 3 if wide else k)) for k in kernel * 2]
    if mode == "NOTSET":
        given = chance(rng, 0.7)
    elif draft.compat == "ort":
        given = chance(rng, 0.5)
    else:
        given = chance(rng, 0.25)
        pads = pads if chance(rng, 0.3) else [0] * len(pads)
    if given:
        draft.attributes["pads"] = pads


def max_unpool(rng: Rng) -> Case:
    """A MaxUnpool case: indices of a genuine pool, or any; now and then one that is out of range."""
    draft = Draft("MaxUnpool", rng)
    rank, attributes = draft.rank, draft.attributes
    kernel = ints(rng, 1, WIDEST[rank], rank)
    attributes["kernel_shape"] = kernel
    draft.maybe(0.7, "strides", 1, 4 if rank == 1 else 3)
    if chance(rng, 0.35):
        attributes["pads"] = [int(rng.integers(0, k + (chance(rng, 0.1)))) for k in kernel * 2]
    steps, pads = attributes.get("strides", [1] * rank), attributes.get("pads", [0] * 2 * rank)
    small = [min(size, 4) for size in draft.sizes()]
    cut = [begin + end for begin, end in zip(pads[:rank], pads[rank:], strict=True)]
    inferred = [(n - 1) * s + k - c for n, s, k, c in zip(small, steps, kernel, cut, strict=True)]
    head = draft.outer()
    large, output_shape = requested(draft, head, inferred)
    space = index_space(draft, large, inferred)
    counted = inferred if chance(rng, 0.4) or space == "inferred" else large
    genuine = chance(rng, 0.6)
    indices = unpool_indices(rng, (*head, *small), counted, (kernel, steps, pads[:rank]), genuine)
    draft.active()
    x = pool_values(rng, (*head, *small), draft.kind)
    if chance(rng, 0.18):
        x, indices = spoil_unpool(draft, x, indices, (*head, *large))
    return draft.case((x, indices, output_shape), index_space=space, tolerance=curved(draft))


def requested(draft: Draft, head: tuple[int, int], inferred: list[int]) -> tuple[list[int], np.ndarray | None]:
    """The sizes of the output, and the output_shape input, sometimes malformed."""
    rng = draft.rng
    if chance(rng, 0.35) or (draft.compat == "ort" and min(inferred) < 0):
        return inferred, None
    large = [max(0, size + pick(rng, (0, 1, 2, -1, -2), (40, 25, 15, 12, 8))) for size in inferred]
    whole = [*head, *large]
    if chance(rng, 0.08):
        how = pick(rng, ("spatial only", "channels", "samples", "negative", "int32"))
        if how == "spatial only":
            whole = large
        elif how == "int32":
            return large, np.array(whole, np.int32)
        else:
            whole[{"channels": 1, "samples": 0, "negative": 2}[how]] = -1 if how == "negative" else 4
    return large, np.array(whole, np.int64)


def index_space(draft: Draft, large: list[int], inferred: list[int]) -> str:
    """Any of the three; "inferred" only where the inferred block fits and compat leaves the choice."""
    fits = all(size >= inner >= 0 for size, inner in zip(large, inferred, strict=True))
    choices = ("auto", "output", "inferred") if fits and draft.compat == "spec" else ("auto", "output")
    return str(pick(draft.rng, choices))


def unpool_indices(
    rng: Rng,
    shape: tuple[int, ...],
    counted: list[int],
    window: tuple[list[int], list[int], list[int]],
    genuine: bool,
) -> np.ndarray:
    """Indices into (N, C, *counted): of a cell in each element's own window, or anywhere."""
    whole = (*shape[:2], *(max(size, 0) for size in counted))
    count = int(np.prod(whole))
    indices = np.zeros(shape, np.int64)
    for place in np.ndindex(*shape):
        near = [
            int(np.clip(o * s - b + rng.integers(k), 0, max(size - 1, 0)))
            for o, k, s, b, size in zip(place[2:], *window, counted, strict=True)
        ]
        inside = genuine and min(whole) > 0
        indices[place] = np.ravel_multi_index((*place[:2], *near), whole) if inside else rng.integers(max(count, 1))
    return indices


def spoil_unpool(
    draft: Draft, x: np.ndarray, indices: np.ndarray, large: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Break the indices, their type or shape, an attribute, or the rank."""
    rng = draft.rng
    how = pick(rng, ("range", "shape", "type", "list", "rank"), (5, 4, 1, 4, 2))
    if how == "range" and indices.size:
        indices.reshape(-1)[int(rng.integers(indices.size))] = pick(rng, (-1, int(np.prod(large)), 10**12))
    elif how == "shape":
        indices = np.concatenate([indices, indices[:1]])[: indices.shape[0] + 1, :, :1]
    elif how == "type":
        indices = indices.astype(np.int32)
    elif how == "list":
        spoil_lists(draft)
    elif how == "rank":
        x, indices = x.reshape(-1)[np.newaxis], indices.reshape(-1)[np.newaxis]
    return x, indices


def conv_transpose(rng: Rng) -> Case:
    draft = Draft("ConvTranspose", rng)
    rank, attributes = draft.rank, draft.attributes
    kernel = ints(rng, 1, WIDEST[rank], rank)
    draft.maybe(0.85, "strides", 1, 5 if rank == 1 else 3)
    draft.maybe(0.35, "dilations", 1, 3 if rank < 3 else 2)
    if chance(rng, 0.4):
        attributes["kernel_shape"] = list(kernel)
    mode = pick(rng, (None, *MODES, "", "SAME"), (36, 10, 22, 22, 12, 2, 1))
    if mode is not None:
        attributes["auto_pad"] = mode
    group = pick(rng, (1, 2, 3), (70, 20, 10))
    if group > 1 or chance(rng, 0.2):
        attributes["group"] = group
    n, c = draft.outer()
    channels = c * group
    maps = 0 if chance(rng, 0.01) else ints(rng, 1, 2 if rank > 2 else 3, 1)[0]
    small = [min(size, 5) for size in draft.sizes()]
    grow_sizes(draft, small, kernel, (n, maps * group))
    integers, tolerance = exact_or_real(rng, draft.kind)
    x, w = integers((n, channels, *small)), integers((channels, maps, *kernel))
    b = integers((maps * group,)) if chance(rng, 0.5) else None
    draft.active()
    if chance(rng, 0.16):
        x, w, b = spoil_conv_transpose(draft, x, w, b)
    return draft.case((x, w, b), tolerance=max(tolerance, curved(draft)))


def curved(draft: Draft) -> float:
    """The tolerance that an activation other than the piecewise linear ones asks for."""
    curves = ("Tanh", "Sigmoid", "HardSwish", "HardSigmoid")
    steep = {"float64": 1e-12, "float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    return steep.get(draft.kind.name, 0.0) if draft.attributes.get("activation") in curves else 0.0


def grow_sizes(draft: Draft, small: list[int], kernel: list[int], head: tuple[int, int]) -> None:
    """output_padding, pads and output_shape, right and wrong."""
    rng, attributes, rank = draft.rng, draft.attributes, draft.rank
    steps, spread = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    if chance(rng, 0.5):
        free = chance(rng, 0.25)
        more = [int(rng.integers(0, max(s, d) + 3 * free)) for s, d in zip(steps, spread, strict=True)]
        attributes["output_padding"] = more
    more = attributes.get("output_padding", [0] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    full = [(n - 1) * s + r + p for n, s, r, p in zip(small, steps, reach, more, strict=True)]
    explicit = attributes.get("auto_pad", "") in ("", "NOTSET")
    if chance(rng, 0.6 if explicit else 0.1):
        pads = [int(rng.integers(0, r + 1)) for r in reach * 2]
        attributes["pads"] = pads if explicit or chance(rng, 0.3) else [0] * 2 * rank
    if chance(rng, 0.4) and (explicit or not any(attributes.get("pads", ()))):
        wanted = [max(0, size + int(rng.integers(-4, 4))) for size in full]
        wrong = chance(rng, 0.05)
        if chance(rng, 0.15):
            wanted = [head[0] + wrong, head[1], *wanted]
        elif wrong:
            wanted = pick(rng, ([*wanted, 1], [-1, *wanted[1:]]))
        attributes["output_shape"] = wanted


def spoil_conv_transpose(
    draft: Draft, x: np.ndarray, w: np.ndarray, b: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Break a list, the weights, the bias, the group or a type."""
    rng, attributes = draft.rng, draft.attributes
    how = pick(
        rng, ("list", "kernel_shape", "group", "channels", "bias", "type", "rank", "kernel 0"), (2, 3, 2, 2, 2, 1, 1, 1)
    )
    if how == "list":
        spoil_lists(draft)
    elif how == "kernel_shape":
        attributes["kernel_shape"] = [k + 1 for k in w.shape[2:]]
    elif how == "group":
        attributes["group"] = pick(rng, (0, -1, 7))
    elif how == "channels":
        w = np.concatenate([w, w[:1]]) if w.size else np.ones((4, 1, *w.shape[2:]), w.dtype)
    elif how == "bias":
        b = np.ones((w.shape[1] * attributes.get("group", 1) + 1,), x.dtype)
    elif how == "type":
        w = w.astype(np.float64 if w.dtype != np.float64 else np.float32)
    elif how == "rank":
        w = w[..., np.newaxis]
    else:
        w = w[:, :, :0]
        attributes.pop("kernel_shape", None)
    return x, w, b


MAKERS = {"MaxPool": max_pool, "MaxUnpool": max_unpool, "ConvTranspose": conv_transpose}


def case(seed: int) -> Case:
    """The case of a seed; the operators take turns."""
    operator = OPERATORS[seed % 3]
    made = MAKERS[operator](np.random.default_rng(seed))
    return replace(made, name=f"seed {seed}: {describe(made)}")


def describe(made: Case) -> str:
    """One line that says the whole call apart from the values."""
    shapes = ", ".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in made.inputs)
    words = f"{made.layout} {made.compat} {made.index_space} outputs={made.outputs}"
    return f"{made.operator} opset {made.opset} ({shapes}) {dict(made.attributes)} {words}"


@cache
def judged(seed: int) -> tuple[Case, Outputs | None]:
    """The case, and the oracle's outputs; None: refused."""
    made = case(seed)
    try:
        return made, run_oracle(made)
    except oracle.Refused:
        return made, None
