"""Results as JSON: what was asked, what the contract says, what each runtime gave; one line per question."""

import json
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from conformance import ROOT
from conformance.questions import Question
from conformance.run import FINE, Judged, Report

CONTRACT = ROOT / "docs" / "semantics.md"
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?) (.+)$", re.MULTILINE)
ATTRIBUTE_TYPE = re.compile(r": (?:ints?|string)(?= = (?!\[\]))")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}
Json = dict[str, Any]


def record(asked: Sequence[Question], reports: Sequence[Report]) -> Json:
    """Everything that the report is rendered from."""
    entries = [
        entry(question, {one.runtime.name: one.judged[i] for one in reports}) for i, question in enumerate(asked)
    ]
    titles = dict(HEADING.findall(CONTRACT.read_text(encoding="utf-8")))
    numbers = {number for question in asked for number in (question.rule, question.rule.split(".")[0])}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "runtimes": [
            {"name": one.runtime.name, "title": one.runtime.title, "version": one.version, "how": one.runtime.how}
            for one in reports
        ],
        "rules": {number: titles[number] for number in titles if number in numbers},
        "questions": without_repeats(entries),
    }


def entry(question: Question, judged: dict[str, Judged]) -> Json:
    """One question; model, inputs and answers only where a runtime differs."""
    found: Json = {
        "name": question.name,
        "rule": question.rule,
        "operator": question.operator,
        "outcomes": {name: str(one.outcome) for name, one in judged.items()},
    }
    different = {name: one for name, one in judged.items() if one.outcome not in FINE}
    if not different:
        return found
    expected = question.expected
    return found | {
        "why": question.why,
        "opset": question.opset,
        "model": model_text(question.model),
        "feeds": {name: stored(array) for name, array in question.feeds.items()},
        "contract": None if expected is None else [stored(array) for array in expected],
        "answers": {name: answer_of(one) for name, one in different.items()},
    }


def without_repeats(entries: Sequence[Json]) -> list[Json]:
    """The questions, those that repeat a newer opset's answers with its name instead of the details."""
    kept: dict[tuple[str, str], list[Json]] = {}
    short: dict[str, Json] = {}
    for one in sorted(entries, key=lambda one: -int(one.get("opset", 0))):
        if "model" not in one:
            continue
        newer = kept.setdefault((one["rule"], one["why"]), [])
        like = next((other for other in newer if is_repeat(one, other)), None)
        if like is None:
            newer.append(one)
        else:
            short[one["name"]] = {key: one[key] for key in ("name", "rule", "operator", "outcomes", "opset")} | {
                "like": like["name"]
            }
    return [short.get(one["name"], one) for one in entries]


def is_repeat(one: Json, other: Json) -> bool:
    """Whether the answers of two opsets are the same wherever both were asked; messages may differ."""
    names = [name for name, outcome in one["outcomes"].items() if "n/a" not in (outcome, other["outcomes"][name])]
    return one["contract"] == other["contract"] and all(
        one["outcomes"][name] == other["outcomes"][name] and outputs_in(one, name) == outputs_in(other, name)
        for name in names
    )


def outputs_in(one: Json, name: str) -> Any:
    """The outputs that a runtime gave, if it differs."""
    return one["answers"].get(name, {}).get("outputs")


def answer_of(judged: Judged) -> Json:
    """Outputs, their shapes alone if the values mean nothing, or the message."""
    answer = judged.answer
    if judged.varies:
        bare = [{"type": array.dtype.name, "shape": list(array.shape)} for array in answer.outputs]
        return {"outputs": bare, "varies": True}
    if answer.kind == "shapes":
        return {"outputs": [{"shape": list(shape)} for shape in answer.shapes]}
    if answer.kind == "outputs":
        return {"outputs": [stored(array) for array in answer.outputs]}
    return {"message": answer.message}


def model_text(model: onnx.ModelProto) -> str:
    """ONNX's text form, its head on one line, types of attributes left out where nothing is lost by it."""
    text = onnx.printer.to_text(model).strip()
    head, rest = text.split("\n>\n", maxsplit=1)
    text = f"<{' '.join(head.removeprefix('<').split())}>\n{rest}"
    plain = ATTRIBUTE_TYPE.sub("", text)
    return plain if onnx.parser.parse_model(plain) == model else text


def stored(array: np.ndarray) -> Json:
    """Type, shape and elements of an array; its bits too if it holds a NaN that is not the usual one."""
    found: Json = {
        "type": array.dtype.name,
        "shape": list(array.shape),
        "values": [number(value) for value in array.reshape(-1)],
    }
    if array.dtype.kind in "fV" and has_odd_nan(array):
        found["bits"] = array.reshape(-1).view(UNSIGNED[array.dtype.itemsize]).tolist()
    return found


def number(value: Any) -> int | float | str:
    """A JSON number with as many digits as the type needs, or the word for what JSON has none for."""
    if isinstance(value, np.integer):
        return int(value)
    with np.errstate(invalid="ignore"):
        return float(str(value)) if np.isfinite(value) else str(float(value))


def has_odd_nan(array: np.ndarray) -> bool:
    """Whether some NaN has other bits than the type's usual one."""
    unsigned = UNSIGNED[array.dtype.itemsize]
    usual = np.array([np.nan], array.dtype).view(unsigned)[0]
    with np.errstate(invalid="ignore"):
        nan = np.isnan(array.reshape(-1).astype(np.float64))
    return bool((array.reshape(-1).view(unsigned)[nan] != usual).any())


def loaded(found: Json) -> np.ndarray:
    """The array that `stored` has written."""
    kind = BFLOAT16 if found["type"] == "bfloat16" else np.dtype(found["type"])
    if "bits" in found:
        return np.array(found["bits"], UNSIGNED[kind.itemsize]).view(kind).reshape(found["shape"])
    return np.array([kind.type(value) for value in found["values"]], kind).reshape(found["shape"])


def written(results: Json) -> str:
    """The JSON text, one question to a line."""
    head = {name: value for name, value in results.items() if name != "questions"}
    lines = [
        json.dumps(one, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for one in results["questions"]
    ]
    opened = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return opened + ',\n "questions": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
