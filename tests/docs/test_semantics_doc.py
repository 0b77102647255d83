"""docs/semantics.md: its numbers are those of the cases, and all its examples hold."""

import doctest
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unpool
from tests.cases.contract import CASES, RULES

PATH = Path(__file__).parents[2] / "docs" / "semantics.md"
PAGE = PATH.read_text(encoding="utf-8")
HEADING = re.compile(r"^#{2,3} (\d(?:\.\d+)?) ", re.MULTILINE)
NUMBERS = HEADING.findall(PAGE)
CALL = re.compile(r"`((?:max_pool|max_unpool|conv_transpose)\([^`]+\))`")
EXAMPLE = re.compile(CALL.pattern + r"\s+→ (?:`([^`]+)`|(error))")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHORT = {"k": ("kernel_shape", 1), "s": ("strides", 1), "d": ("dilations", 1), "p": ("pads", 2)}
CHECKED_BY_DOCTEST_ONLY = {"8.3"}


def sections() -> dict[str, str]:
    """The text under each number, without that of the rules below it."""
    parts = HEADING.split(PAGE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def plane(values: Any, kind: Any) -> np.ndarray:
    """A list as one (n, c) plane; an array as it is."""
    return values if isinstance(values, np.ndarray) else np.array(values, kind)[np.newaxis, np.newaxis]


def spelled_out(given: dict[str, Any], rank: int) -> dict[str, Any]:
    """The attributes under their names, a number repeated for every spatial axis."""
    named = {}
    for name, value in given.items():
        full, share = SHORT.get(name, (name, 0))
        named[full] = [value] * (share * rank) if share and isinstance(value, int) else value
    return named


def max_pool(x: Any, *, dtype: str = "float32", opset: int | None = None, **given: Any) -> Any:
    """Y and Indices of a plane; Y alone where the version has no Indices."""
    x = plane(x, np.dtype(dtype))
    indexed = opset is None or opset >= 8
    result = unpool.max_pool(x, return_indices=indexed, opset=opset, **spelled_out(given, x.ndim - 2))
    return result if indexed else (result, None)


def max_unpool(x: Any, i: Any, shape: Any = None, *, dtype: str = "float32", **given: Any) -> Any:
    """The output of a plane."""
    x = plane(x, np.dtype(dtype))
    return unpool.max_unpool(x, plane(i, np.int64), shape, **spelled_out(given, x.ndim - 2)), None


def conv_transpose(x: Any, w: Any, b: Any = None, *, dtype: str = "float32", **given: Any) -> Any:
    """The output of a plane."""
    kind = np.dtype(dtype)
    x, w, b = plane(x, kind), plane(w, kind), None if b is None else np.array(b, kind)
    return unpool.conv_transpose(x, w, b, **spelled_out(given, x.ndim - 2)), None


NAMES = {
    "max_pool": max_pool,
    "max_unpool": max_unpool,
    "conv_transpose": conv_transpose,
    "nan": np.nan,
    "inf": np.inf,
    "zeros": lambda *shape: np.zeros(shape, np.float32),
    "indices": lambda *shape: np.zeros(shape, np.int64),
}


def evaluate(text: str) -> Any:
    return eval(text, dict(NAMES))


@pytest.mark.sample(2)
@pytest.mark.parametrize(("call", "expected", "error"), EXAMPLE.findall(PAGE))
def test_example(call: str, expected: str, error: str) -> None:
    """A call on one plane gives what stands behind its arrow, signs of zeros included."""
    if error:
        with pytest.raises(unpool.UnpoolError):
            evaluate(call)
        return
    y, indices = evaluate(call)
    values, _, places = expected.partition(" at ")
    right = plane(evaluate(values), y.dtype)
    np.testing.assert_array_equal(y, right)
    signs = [np.signbit(array.astype(np.float64)) & ~np.isnan(right.astype(np.float64)) for array in (y, right)]
    assert np.array_equal(*signs)
    if places:
        np.testing.assert_array_equal(indices, plane(evaluate(places), np.int64))


def test_every_call_is_an_example() -> None:
    """No call on the page goes without a result that is checked, and there are many."""
    assert len(EXAMPLE.findall(PAGE)) == len(CALL.findall(PAGE)) >= 80


def test_python_blocks_print_what_they_say() -> None:
    """The Python blocks of the page, run in order as one session."""
    code = "\n".join(BLOCK.findall(PAGE))
    session = doctest.DocTestParser().get_doctest(code, {}, "semantics.md", str(PATH), 0)

    assert len(session.examples) >= 10
    assert doctest.DocTestRunner().run(session).failed == 0


def test_numbers_count_on() -> None:
    """Sections are 1 to 8, and the rules of each count up from 1."""
    assert [number for number in NUMBERS if "." not in number] == list("12345678")
    for section in "123468":
        rules = [number for number in NUMBERS if number.startswith(f"{section}.")]
        assert rules == [f"{section}.{count}" for count in range(1, len(rules) + 1)]


def test_every_rule_of_a_case_has_a_heading() -> None:
    """A number that a case or the list of rules names is explained."""
    assert {*RULES, *(case.rule for case in CASES)} - set(NUMBERS) == set()


def test_every_heading_has_a_case() -> None:
    """A rule, or a section without rules, is exercised by a case of that number."""
    text = sections()
    parents = {number.partition(".")[0] for number in NUMBERS if "." in number}
    bare = set(NUMBERS) - parents - {case.rule for case in CASES}

    assert bare <= CHECKED_BY_DOCTEST_ONLY
    assert all(EXAMPLE.search(text[number]) or BLOCK.search(text[number]) for number in bare)


def test_ort_rules_are_listed_on_top() -> None:
    """The rules that say what compat='ort' does are those of the table in the introduction, in their order."""
    _, _, table = PAGE.partition("\n## Where onnxruntime differs\n")
    listed = re.findall(r"^\| (\d\.\d+) \|", table.partition("\n## ")[0], re.MULTILINE)

    assert listed == [number for number, text in sections().items() if "**ort:**" in text]
    assert listed
