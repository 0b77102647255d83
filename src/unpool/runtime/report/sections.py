"""The parts of the page: records in, HTML out."""

from collections.abc import Iterable, Sequence

from unpool.runtime.lint.finding import Finding
from unpool.runtime.measure.bench import ModelTimes, StepTime
from unpool.runtime.plan.lines import Record
from unpool.runtime.report.accuracy import Distance, StepAccuracy
from unpool.runtime.report.contents import Contents
from unpool.runtime.report.drawing import EXAMPLES, body
from unpool.runtime.report.maps import FeatureMap, MapPair
from unpool.runtime.report.markup import Markup, element, joined
from unpool.runtime.report.memory import INPUT, Memory
from unpool.runtime.report.names import title
from unpool.runtime.report.summary import Fact, milliseconds, percent, scientific, size

NOTHING = "–"


def steps(report: Contents) -> Markup:
    """The plan, step by step, with the time that each takes."""
    records: dict[int, list[Record]] = {}
    for record in report.plan:
        records.setdefault(record.step, []).append(record)
    times = [] if report.times is None else list(report.times.steps)
    found: Sequence[StepTime | None] = times if len(times) == len(records) else [None] * len(records)
    titles = ["step", "node", "runs on", "why"] + (["ms", "share", "onnxruntime ms"] if times else [])
    rows = [_step(number, own, time) for (number, own), time in zip(records.items(), found, strict=True)]
    return joined(
        None if times else element("p", "Times were not measured."),
        element("p", f"{TIMES_NOTE} {_rest(report.times)}", class_="note") if report.times is not None else None,
        table(titles, rows),
    )


TIMES_NOTE = (
    "Median of every step, as profiles say it. onnxruntime fuses and lays out nodes in ways of its own, so only a node "
    "that its profile names has a time there; a partition of several nodes has none, nor has an unknown node."
)


def _rest(times: ModelTimes) -> str:
    """The time of the steps that onnxruntime's profile does not name, in both runtimes."""
    if times.onnxruntime is None:
        return ""
    known = [one.onnxruntime for one in times.steps if one.onnxruntime is not None]
    own = sum(one.seconds for one in times.steps if one.onnxruntime is None)
    theirs = max(0.0, times.onnxruntime.median - sum(known))
    return f"All other steps together: unpool {milliseconds(own)} ms, onnxruntime about {milliseconds(theirs)} ms."


def _step(number: int, records: Sequence[Record], time: StepTime | None) -> list[Markup | str]:
    first = records[0]
    if len(records) == 1:
        node: Markup | str = joined(element("b", first.node), element("span", first.operator_version, class_="under"))
    else:
        inside = [element("li", f"{one.node} ({one.operator_version})") for one in records]
        node = element(
            "details", element("summary", f"{first.node} and {len(records) - 1} more"), element("ul", *inside)
        )
    reasons = "; ".join(dict.fromkeys(one.reason for one in records if one.reason))
    words: list[Markup | str] = [str(number), node, _runner(first.runner), reasons]
    if time is not None:
        theirs = NOTHING if time.onnxruntime is None else milliseconds(time.onnxruntime)
        words += [milliseconds(time.seconds), bar(time.share, percent(time.share)), theirs]
    return words


def _runner(name: str) -> Markup:
    return element("span", name, class_=f"runner {name}")


def accuracy(steps: Sequence[StepAccuracy]) -> Markup:
    """How exact every step is."""
    if not steps:
        return element("p", "Steps were not evaluated once more.")
    rows = [
        [one.node, _runner(one.runner), _largest(one.exact), _differing(one.exact), _against(one.onnxruntime)]
        for one in steps
    ]
    titles = ["step", "runs on", "largest error", "elements that differ from float64 rounding", "against onnxruntime"]
    return joined(element("p", ACCURACY_NOTE, class_="note"), table(titles, rows))


ACCURACY_NOTE = (
    "Every step was evaluated once more in float64, on the values that it really read, so errors of earlier steps do "
    "not count: MaxPool, MaxUnpool and ConvTranspose by unpool's float64 operators, Conv as products of matrices, all "
    "others by onnx's ReferenceEvaluator. "
    "The largest error is over the largest value of the step. What unpool runs was also held against onnxruntime, "
    "on the same values and in the same type."
)


def _largest(found: Distance) -> str:
    return f"not evaluated: {found.refusal}" if found.refusal else scientific(found.largest)


def _differing(found: Distance) -> str:
    if found.refusal:
        return NOTHING
    return f"{found.differing:,} of {found.elements:,}" if found.differing else "none"


def _against(found: Distance | None) -> str:
    if found is None:
        return "run by onnxruntime"
    if found.refusal:
        return f"cannot run it: {found.refusal}"
    return "equal bit for bit" if not found.differing else f"{scientific(found.largest)} apart"


def findings(found: Sequence[Finding]) -> Markup:
    """What `unpool check` finds."""
    if not found:
        return element("p", "Nothing found: runtimes read every node alike, as far as the model says.")
    return joined(
        element("p", "For the rules see docs/semantics.md in the source of unpool.", class_="note"),
        *map(_finding, found),
    )


def _finding(one: Finding) -> Markup:
    return element(
        "article",
        element("h3", title(one.operator, one.node)),
        element("p", f"Rule {one.rule}: {one.problem}"),
        element("dl", _said("effect", one.affected), _said("repair", one.repair)),
        class_="finding",
    )


def _said(title: str, text: Markup | str) -> Markup:
    return element("div", element("dt", title), element("dd", text))


def fact(one: Fact) -> Markup:
    """A fact of the summary as an entry of a list."""
    return _said(one.title, joined(element("b", one.words), element("span", one.more) if one.more else None))


def memory(found: Memory) -> Markup:
    """What the values between steps take."""
    most = max(found.alive, default=0) or 1
    alive = [[str(step), bar(count / most, size(count))] for step, count in enumerate(found.alive)]
    values = [
        [
            one.name,
            f"{one.type} {NOTHING if one.shape is None else '×'.join(map(str, one.shape)) or 'scalar'}",
            size(one.bytes),
            "input" if one.made == INPUT else f"step {one.made}",
            f"step {one.last}",
        ]
        for one in found.values
    ]
    return joined(
        element("p", _forecast(found)),
        element("h3", "Alive while a step runs"),
        table(["step", "values that steps hand on"], alive),
        element(
            "details",
            element("summary", f"All {len(values)} values"),
            table(["value", "type and shape", "takes", "made by", "last read by"], values),
        ),
    )


def _forecast(found: Memory) -> str:
    if found.forecast is None:
        return f"No peak can be foretold: {found.refusal}"
    return (
        f"A run takes about {size(found.forecast)} at its peak, beside inputs and session: a forecast from the plan, "
        "with what is inside of partitions and 16 MiB for buffers."
    )


def maps(found: Iterable[MapPair], left_out: int) -> Markup:
    """Feature maps before and after poolings and unpoolings."""
    drawn = [_pair(pair) for pair in found]
    if not drawn:
        return element("p", "The model has no pooling or unpooling that can be drawn.")
    more = f" {left_out} more are left out." if left_out else ""
    return joined(element("p", MAPS_NOTE + more, class_="note"), *drawn)


MAPS_NOTE = (
    "The channel of the first image whose small side varies most. Dots mark the positions that a pooling chose, or "
    "that an unpooling wrote to; close-ups are those around the largest element."
)


def _pair(pair: MapPair) -> Markup:
    depth = f", depth {', '.join(map(str, pair.depth))}" if pair.depth else ""
    return element(
        "article",
        element("h3", title(pair.operator, pair.node)),
        element("p", f"channel {pair.channel}{depth}", class_="note"),
        element("div", _map("before", pair, pair.before), _map("after", pair, pair.after), class_="pair"),
        class_="maps",
    )


def _map(when: str, pair: MapPair, one: FeatureMap) -> Markup:
    rows, columns = (
        f"{start} to {start + count - 1}" for start, count in zip(one.area.begin, one.area.size, strict=True)
    )
    marked = "" if one.marked is None else f"; {one.marked} positions are marked"
    span = f"from {one.low:.3g}, dark, to {one.high:.3g}, bright"
    plane = f"{one.name}, {when} {pair.operator}, channel {pair.channel}: {span}"
    near = f"rows {rows}, columns {columns}"
    return element(
        "figure",
        element(
            "div",
            element("img", src=Markup(one.whole), alt=f"{plane}."),
            element("img", src=Markup(one.near), alt=f"Close-up of {one.name} {when} {pair.operator}: {near}{marked}."),
            class_="both",
        ),
        element("figcaption", element("b", when), f" {one.name}, {'×'.join(map(str, one.shape))}, close-up {near}"),
    )


def windows(report: Contents) -> Markup:
    """The window arithmetic of the model as a drawing."""
    return joined(
        element(
            "p", "Which elements belong together along one axis. Choose a window of the model, or change anything."
        ),
        body(report.windows or EXAMPLES),
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[Markup | str]]) -> Markup:
    """A table, which becomes a list of cards where the screen is narrow."""
    head = element("thead", element("tr", *(element("th", title, scope="col") for title in titles)))
    lines = [element("tr", *map(_cell, titles, row)) for row in rows]
    return element("div", element("table", head, element("tbody", *lines)), class_="table")


def _cell(title: str, text: Markup | str) -> Markup:
    return element("td", element("div", text), data_title=title)


def bar(share: float, text: str) -> Markup:
    """A bar as long as the share, from 0 to 1, beside its text."""
    return element("span", element("span", text), class_="bar", style=f"--share:{share:.4f}")
