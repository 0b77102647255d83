"""The head of the report: versions, legend, and the table of rules × runtimes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.classify import MEANING, Outcome

Json = dict[str, Any]


def versions(results: Json) -> Iterator[str]:
    """Which runtimes were asked, when and how."""
    yield f"Run on {results['date']}, {results['platform']}."
    yield ""
    yield "| runtime | version | asked through |"
    yield "|---|---|---|"
    for runtime in results["runtimes"]:
        yield f"| {runtime['title']} | {runtime['version']} | {runtime['how']} |"


def legend() -> Iterator[str]:
    """The classes."""
    for outcome in Outcome:
        yield f"- **{outcome}**: {MEANING[outcome]}"


def table(results: Json) -> Iterator[str]:
    """One row per rule, sections of several rules in bold with the share of equal answers."""
    runtimes = results["runtimes"]
    names = [runtime["name"] for runtime in runtimes]
    yield f"| rule | {' | '.join(runtime['title'] for runtime in runtimes)} |"
    yield f"|---|{'---|' * len(runtimes)}"
    for number, title in results["rules"].items():
        within = [one for one in results["questions"] if belongs(one["rule"], number)]
        own = [one for one in within if one["rule"] == number]
        differs = any(outcome not in (Outcome.EQUAL, Outcome.NOT_ASKED) for outcome in of_all(own))
        word = f"[{number}](#rule-{number.replace('.', '-')})" if differs else number
        if own:
            yield f"| {word} {title} | {' | '.join(cell(counts(own, name)) for name in names)} |"
        else:
            yield f"| **{number} {title}** | {' | '.join(f'**{share(counts(within, name))}**' for name in names)} |"
    every = [share(counts(results["questions"], name)) for name in names]
    yield f"| **all rules** | {' | '.join(f'**{one}**' for one in every)} |"


def belongs(rule: str, number: str) -> bool:
    """Whether a rule is the number or one of its section."""
    return rule == number or rule.startswith(f"{number}.")


def of_all(questions: Sequence[Json]) -> Iterator[str]:
    """Every class that any runtime got."""
    for question in questions:
        yield from question["outcomes"].values()


def counts(questions: Sequence[Json], name: str) -> Counter[str]:
    """How often the runtime got each class."""
    return Counter(question["outcomes"][name] for question in questions)


def cell(found: Counter[str]) -> str:
    """The classes of one rule and one runtime.

    >>> cell(Counter({"equal": 3})), cell(Counter({"equal": 2, "refused": 1})), cell(Counter({"n/a": 2}))
    ('equal 3/3', 'equal 2, refused 1', 'n/a')
    """
    asked = found.total() - found[Outcome.NOT_ASKED]
    if not asked:
        return str(Outcome.NOT_ASKED)
    if found[Outcome.EQUAL] == asked:
        return f"{Outcome.EQUAL} {asked}/{asked}"
    return ", ".join(f"{outcome} {found[outcome]}" for outcome in list(Outcome)[:-1] if found[outcome])


def share(found: Counter[str]) -> str:
    """Equal answers of those asked for.

    >>> share(Counter({"equal": 2, "refused": 1, "n/a": 4}))
    '2/3'
    """
    asked = found.total() - found[Outcome.NOT_ASKED]
    return f"{found[Outcome.EQUAL]}/{asked}" if asked else str(Outcome.NOT_ASKED)
