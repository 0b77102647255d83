"""Tables of the report: versions and outcomes, operators × runtimes, rules × runtimes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from conformance.classify import MEANING, Outcome

Json = dict[str, Any]

OPERATORS = ("MaxPool", "MaxUnpool", "ConvTranspose")


def versions(results: Json) -> Iterator[str]:
    """A row per runtime: its version, and the interface that ran the models."""
    yield f"Run on {results['date']}, {results['platform']}."
    yield ""
    yield "| runtime | version | run by |"
    yield "|---|---|---|"
    for runtime in results["runtimes"]:
        yield f"| {runtime['title']} | {runtime['version']} | {runtime['how']} |"


def legend() -> Iterator[str]:
    """A line per outcome."""
    for outcome in Outcome:
        yield f"- **{outcome}**: {MEANING[outcome]}"


def by_operator(results: Json) -> dict[str, list[Json]]:
    """The questions of each operator, in the order of `OPERATORS`."""
    grouped = {
        operator: [question for question in results["questions"] if question["operator"] == operator]
        for operator in OPERATORS
    }
    return {operator: questions for operator, questions in grouped.items() if questions}


def operator_table(results: Json, questions: dict[str, list[Json]], links: dict[str, str]) -> Iterator[str]:
    """One row per operator with the share of equal answers of each runtime, which links to the operator's page."""
    runtimes = results["runtimes"]
    yield f"| operator | {' | '.join(runtime['title'] for runtime in runtimes)} |"
    yield f"|---|{'---|' * len(runtimes)}"
    for operator, asked in questions.items():
        shares = [
            f"[{share(counts(asked, runtime['name']))}]({links[operator]}?runtime={quote(runtime['title'])})"
            for runtime in runtimes
        ]
        yield f"| [{operator}]({links[operator]}) | {' | '.join(shares)} |"
    totals = [share(counts(results["questions"], runtime["name"])) for runtime in runtimes]
    yield f"| **all** | {' | '.join(f'**{total}**' for total in totals)} |"


def rule_table(results: Json) -> Iterator[str]:
    """One row per rule with questions; the sections of the contract in bold, with the share of equal answers."""
    runtimes = results["runtimes"]
    names = [runtime["name"] for runtime in runtimes]
    yield f"| rule | {' | '.join(runtime['title'] for runtime in runtimes)} |"
    yield f"|---|{'---|' * len(runtimes)}"
    for number, title in results["rules"].items():
        section = [question for question in results["questions"] if belongs(question["rule"], number)]
        asked = [question for question in section if question["rule"] == number]
        outcomes = {outcome for question in asked for outcome in question["outcomes"].values()}
        has_examples = bool(outcomes - {Outcome.EQUAL, Outcome.NOT_ASKED})
        rule = f"[{number}](#rule-{number.replace('.', '-')})" if has_examples else number
        if asked:
            yield f"| {rule} {title} | {' | '.join(cell(counts(asked, name)) for name in names)} |"
        elif section:
            yield f"| **{number} {title}** | {' | '.join(f'**{share(counts(section, name))}**' for name in names)} |"
    totals = [share(counts(results["questions"], name)) for name in names]
    yield f"| **all rules** | {' | '.join(f'**{total}**' for total in totals)} |"


def belongs(rule: str, number: str) -> bool:
    """Whether a rule is this one or in the section of this number."""
    return rule == number or rule.startswith(f"{number}.")


def counts(questions: Sequence[Json], name: str) -> Counter[str]:
    """The number of questions of each outcome."""
    return Counter(question["outcomes"][name] for question in questions)


def cell(counted: Counter[str]) -> str:
    """The outcomes of one rule and one runtime.

    >>> cell(Counter({"equal": 3})), cell(Counter({"equal": 2, "refused": 1})), cell(Counter({"n/a": 2}))
    ('equal 3/3', 'equal 2, refused 1', 'n/a')
    """
    asked = counted.total() - counted[Outcome.NOT_ASKED]
    if not asked:
        return str(Outcome.NOT_ASKED)
    if counted[Outcome.EQUAL] == asked:
        return f"{Outcome.EQUAL} {asked}/{asked}"
    return ", ".join(f"{outcome} {counted[outcome]}" for outcome in list(Outcome)[:-1] if counted[outcome])


def share(counted: Counter[str]) -> str:
    """Equal answers and questions.

    >>> share(Counter({"equal": 2, "refused": 1, "n/a": 4}))
    '2/3'
    """
    asked = counted.total() - counted[Outcome.NOT_ASKED]
    return f"{counted[Outcome.EQUAL]}/{asked}" if asked else str(Outcome.NOT_ASKED)
