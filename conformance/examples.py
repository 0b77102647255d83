"""The body of the report: for every difference one model that can be pasted, and what each runtime made of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance import literals
from conformance.classify import Outcome

Json = dict[str, Any]
Signature = tuple[tuple[str, str], ...]
FINE = (Outcome.EQUAL, Outcome.NOT_ASKED)
BRIEF = (Outcome.REFUSED, Outcome.ACCEPTED)
LONGEST_LINE = 100
OUTPUTS = ("Y", "Indices")


@dataclass
class Difference:
    """A case with the same answers at several opsets.

    Attributes:
        question: at the newest of these opsets.
        opsets: all of them, ascending.
        others: more cases of the same rule and operator that differ in the same way.
    """

    question: Json
    opsets: list[int]
    others: list["Difference"] = field(default_factory=list)


def differences(questions: Sequence[Json]) -> list[Difference]:
    """The differences of one rule: questions that a runtime answers differently, in groups.

    Cases that are only refused or accepted, by the same runtimes, become one: the one with the shortest example
    stands for them.
    """
    opsets: dict[str, list[int]] = {}
    for one in questions:
        if "opset" in one:
            opsets.setdefault(one["like"] if "like" in one else one["name"], []).append(one["opset"])
    gathered: dict[tuple[str, Signature], list[Difference]] = {}
    for one in questions:
        if "model" in one:
            classes = signature(one)
            brief = all(outcome in BRIEF for _, outcome in classes)
            key = (one["operator"] if brief else one["name"], classes)
            gathered.setdefault(key, []).append(Difference(one, sorted(opsets[one["name"]])))
    return [standing(alike) for alike in gathered.values()]


def signature(question: Json) -> Signature:
    """Who differs, and how."""
    return tuple((name, outcome) for name, outcome in question["outcomes"].items() if outcome not in FINE)


def standing(alike: list[Difference]) -> Difference:
    """The one with the shortest example, which names the others."""
    shortest = min(alike, key=lambda one: len(code(one.question)))
    shortest.others = [one for one in alike if one is not shortest]
    return shortest


def code(question: Json) -> str:
    """Python that makes `model` and `feeds`."""
    model = f'model = onnx.parser.parse_model("""{question["model"]}""")'
    feeds = [f'"{name}": {literals.python(array)}' for name, array in question["feeds"].items()]
    line = f"feeds = {{{', '.join(feeds)}}}"
    if len(line) <= LONGEST_LINE:
        return f"{model}\n{line}"
    return "\n".join([model, "feeds = {", *(f"    {feed}," for feed in feeds), "}"])


def example(difference: Difference, titles: dict[str, str]) -> Iterator[str]:
    """Heading, code, answers."""
    question = difference.question
    yield f"#### {question['why']}"
    yield ""
    yield f"{question['operator']}, {opsets_of(difference)}."
    yield ""
    yield "```python"
    yield code(question)
    yield "```"
    yield ""
    contract = question["contract"]
    yield f"- **contract**: {'refused' if contract is None else outputs_text(contract, None)}"
    for name, answer in question["answers"].items():
        outcome = question["outcomes"][name]
        yield f"- **{titles[name]}**, {outcome}: {answer_text(answer, outcome, contract)}"
    for outcome in FINE:
        same = [titles[name] for name, got in question["outcomes"].items() if got == outcome]
        if same:
            yield f"- {outcome}: {', '.join(same)}"
    yield ""
    if difference.others:
        others = "; ".join(f"{one.question['why']} ({opsets_of(one)})" for one in difference.others)
        yield f"Answered in the same ways: {others}."
        yield ""


def opsets_of(difference: Difference) -> str:
    """The opsets in words."""
    opsets = difference.opsets
    return f"opset{'s' * (len(opsets) > 1)} {', '.join(str(opset) for opset in opsets)}"


def answer_text(answer: Json, outcome: str, contract: Sequence[Json] | None) -> str:
    """What a runtime gave."""
    if "message" in answer:
        return f"`{answer['message'].replace('`', chr(39))}`"
    if answer.get("varies"):
        shapes = ", ".join(str(tuple(output["shape"])) for output in answer["outputs"])
        return f"shape {shapes}, other values at every call"
    return outputs_text(answer["outputs"], contract, outcome == Outcome.SHAPE)


def outputs_text(outputs: Sequence[Json], contract: Sequence[Json] | None, with_shape: bool = False) -> str:
    """The outputs by name; the type where it is not the contract's, the shape where elements do not show it."""
    words = []
    for i, (name, output) in enumerate(zip(OUTPUTS, outputs, strict=False)):
        word = name
        if "values" in output:
            word += f" `{literals.text(output)}`"
        if with_shape or not output.get("values"):
            word += f" of shape {tuple(output['shape'])}"
        expected = None if contract is None or i >= len(contract) else contract[i]["type"]
        if expected and output.get("type", expected) != expected:
            word += f" of type {output['type']}"
        words.append(word)
    return ", ".join(words)
