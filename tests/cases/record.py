"""One case of the contract, and the rows of text in which cases are written.

    3.4 | SAME rounds up | - 1 12 | MaxPool kernel_shape=[2] strides=[2] auto_pad=SAME_LOWER | 1..5 => 1 3 5 , 0 2 4

are the rule, the fact, the opsets (- for the newest meaning), the operator with its attributes and settings, and inputs
and outputs. An array is its numbers: a plane, whose rows end with `;`, or after its sizes, `1x2x3: 0..5`, where a
single number fills it; - is an input left out. `type` is that of X, without which it is float32; another one precedes
its array. A number that begins with 0x is the bits of a float.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # the name bfloat16
import numpy as np

Arrays = tuple[np.ndarray | None, ...]
SETTINGS = ("layout", "compat", "index_space", "tolerance", "outputs")
ARRAY = re.compile(r"((?:u?int|b?float)\d+ )?(?:([\dx]+):)?(.*)")


@dataclass(frozen=True, eq=False)
class Case:
    """A call and what the contract says about it."""

    name: str  # unique; the rule, then what is special
    rule: str  # number of the rule in the contract, "3.2"
    why: str  # the fact that the case defends
    operator: str  # ONNX name
    inputs: Arrays  # in ONNX order; None is an optional input left out
    attributes: Mapping[str, Any] = field(default_factory=dict)  # ONNX attributes as Python values
    expected: tuple[np.ndarray, ...] | None = None  # outputs in ONNX order; None: refused
    outputs: int = 1  # how many outputs are asked for
    opset: int | None = None  # version of the operator set, or None for the newest meaning
    layout: str = "NCHW"
    compat: str = "spec"
    index_space: str = "auto"
    tolerance: float = 0.0  # relative; 0 asks for equality


def read_cases(path: Path) -> list[Case]:
    """The cases of a file, one per row and opset."""
    rows = path.read_text(encoding="utf-8").splitlines()
    return [case for row in rows if not row.startswith("#") for case in cases_of(row)]


def cases_of(row: str) -> Iterator[Case]:
    """The case of a row once per opset, its name made of rule, fact and opset."""
    rule, why, opsets, call, arrays = (part.strip() for part in row.split("|"))
    operator, *words = call.split()
    given = dict(map(attribute, words))
    kind = np.dtype(given.pop("type", "float32"))
    settings = {name: given.pop(name) for name in SETTINGS if name in given}
    inputs, outputs = (part.strip().split(" , ") for part in f"{arrays} ".split("=> "))
    inputs += ["-"] * ({"MaxPool": 1, "MaxUnpool": 3, "ConvTranspose": 3}[operator] - len(inputs))
    of_indices = kind if operator == "ConvTranspose" else np.dtype(np.int64)
    expected = None
    if outputs != ["refused"]:
        expected = tuple(array(text, kind if n == 0 else of_indices, 3) for n, text in enumerate(outputs))
        settings = {"outputs": len(expected)} | settings
    values = tuple(
        None if text == "-" else array(text, kind if n == 0 else of_indices, 1 if n == 2 else 3)
        for n, text in enumerate(inputs)
    )
    label = f"{rule}-{why.replace(' ', '_')}"
    case = Case(label, rule, why, operator, values, given, expected, **settings)
    for opset in opsets.split():
        yield case if opset == "-" else replace(case, name=f"{label}-opset{opset}", opset=int(opset))


def attribute(word: str) -> tuple[str, Any]:
    """Name and value of `strides=[2]` or `auto_pad=VALID`."""
    name, _, text = word.partition("=")
    try:
        return name, json.loads(text)
    except json.JSONDecodeError:
        return name, text


def array(text: str, kind: np.dtype[Any], rank: int) -> np.ndarray:
    """An array as a row has it; one without sizes has the rank, or an axis more if it has several rows."""
    named, sizes, body = ARRAY.fullmatch(text).groups()  # type: ignore[union-attr]
    kind = np.dtype(named.strip()) if named else kind
    rows = [[value for word in row.split() for value in numbers(word, kind)] for row in body.split(";")]
    values = np.array(rows[0] if len(rows) == 1 else rows, kind)
    if sizes is None:
        return values.reshape((1,) * (rank - 1) + values.shape)
    shape = tuple(map(int, sizes.split("x")))
    return np.full(shape, values[0]) if values.size == 1 else values.reshape(shape)


def numbers(word: str, kind: np.dtype[Any]) -> list[Any]:
    """The values of `7`, `-0.`, `nan`, `0..5` or `0x7fc00000`."""
    first, is_range, last = word.partition("..")
    if is_range:
        return [*range(int(first), int(last) + 1)]
    if word.startswith("0x"):
        return [np.array(int(word, 16), f"u{kind.itemsize}").view(kind)]
    return [int(word) if re.fullmatch(r"-?\d+", word) else float(word)]
