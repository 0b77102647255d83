"""Window arithmetic as a drawing that people can change: a fragment of HTML that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from unpool.operators.attributes import AUTO_PAD
from unpool.operators.contract import OPERATORS, Row, Switch, rows_of
from unpool.runtime.report.markup import Markup, data, element, joined

NEWEST = 26
"""The highest opset that can be chosen."""


@dataclass(frozen=True)
class Settings:
    """What is drawn: one spatial axis, in elements.

    Attributes:
        operator: "MaxPool", "MaxUnpool" or "ConvTranspose".
        opset: that selects the version.
        size: of the input.
        kernel: taps of the window.
        stride: between windows.
        dilation: between taps.
        begin: pads at the beginning.
        end: pads at the end.
        ceil: ceil_mode.
        auto_pad: the attribute of this name.
        output_padding: likewise.
        output_size: what output_shape asks for; None where it is not given.
    """

    operator: str = "MaxPool"
    opset: int = 22
    size: int = 9
    kernel: int = 3
    stride: int = 2
    dilation: int = 1
    begin: int = 1
    end: int = 1
    ceil: bool = False
    auto_pad: str = "NOTSET"
    output_padding: int = 0
    output_size: int | None = None


EXAMPLES: Mapping[str, Settings] = {
    "MaxPool, 3 wide, stride 2": Settings(),
    "MaxPool, dilated": Settings(stride=1, dilation=2, begin=2, end=2),
    "MaxPool, the last window hangs over": Settings(size=8, kernel=3, stride=3, begin=0, end=0, ceil=True),
    "MaxUnpool to an odd size": Settings("MaxUnpool", size=4, kernel=2, stride=2, begin=0, end=0, output_size=9),
    "ConvTranspose, twice as large": Settings("ConvTranspose", size=5, kernel=4, stride=2),
    "ConvTranspose with gaps": Settings("ConvTranspose", size=4, kernel=2, stride=3, begin=0, end=0),
}
"""What is drawn first where nothing else is asked for."""

SLIDERS = (
    ("opset", "opset", 1, NEWEST),
    ("size", "input size", 0, 32),
    ("kernel", "kernel", 1, 9),
    ("stride", "stride", 1, 6),
    ("dilation", "dilation", 1, 4),
    ("begin", "pads, begin", 0, 6),
    ("end", "pads, end", 0, 6),
    ("outputPadding", "output_padding", 0, 5),
    ("outputSize", "asked size", 0, 64),
    ("position", "window", 0, 8),
)
NUMBERS = ("version", "output", "reach", "begin", "outside", "untouched")
LEGEND = (("is-tied", "taps of this window"), ("is-padding", "outside of the axis"), ("is-untouched", "left over"))


def fragment(presets: Mapping[str, Settings] = EXAMPLES) -> str:
    """A drawing of window arithmetic, with its style and its script: it can stand in any page, several in one too.

    Args:
        presets: what can be drawn at a choice, by name; the first one is drawn first. Everything else is set by hand.

    >>> drawn = fragment({"a pool": Settings("MaxPool", size=5)})
    >>> drawn.startswith("<style>"), "a pool" in drawn, "http://www.w3.org/2000/svg" in drawn
    (True, True, True)
    """
    return joined(element("style", style()), body(presets), element("script", script()))


def style() -> Markup:
    """The style of drawings."""
    return asset("drawing.css")


def script() -> Markup:
    """The script of drawings, which starts those that stand before it in the page."""
    return Markup("{" + asset("arithmetic.js") + asset("drawing.js") + "window.windowArithmetic = windowArithmetic;}")


def body(presets: Mapping[str, Settings] = EXAMPLES) -> Markup:
    """A drawing alone, for a page that has style and script."""
    given = [{"name": name, "settings": in_script(one)} for name, one in presets.items()]
    sliders = {name: _slider(name, title, low, high) for name, title, low, high in SLIDERS}
    window = (sliders[name] for name in ("size", "kernel", "stride", "dilation", "begin", "end"))
    return element(
        "div",
        element(
            "div",
            _labelled("start from", _options(enumerate(presets), class_="presets"), "wide first"),
            _choice("operator", "operator", OPERATORS), sliders["opset"], *window,
            _check("ceil", "ceil_mode"), _choice("autoPad", "auto_pad", AUTO_PAD), sliders["outputPadding"],
            _check("asksSize", "output_shape"), sliders["outputSize"],
            class_="controls",
        ),
        element("div", element("svg", role="img"), class_="scroll", tabindex="0", role="region", aria_label="Drawing"),
        sliders["position"],
        element("output", class_="said", aria_live="polite"),
        element("dl", *(_number(name) for name in NUMBERS), class_="numbers"),
        element("ol", class_="steps", tabindex="0", aria_label="The output size, step by step"),
        element("ul", *(element("li", element("span", class_=kind), title) for kind, title in LEGEND), class_="legend"),
        data({"rows": rows(), "presets": given}),
        class_="unpool-window",
    )  # fmt: skip


def rows() -> dict[str, list[dict[str, Any]]]:
    """Every version of the three operators, as the script reads them."""
    return {name: [_row(row) for row in rows_of(name, "")] for name in OPERATORS}


def in_script(settings: Settings) -> dict[str, Any]:
    """Settings under the names that the script has for them."""
    names = {"auto_pad": "autoPad", "output_padding": "outputPadding", "output_size": "outputSize"}
    return {names.get(name, name): value for name, value in asdict(settings).items()}


@cache
def asset(name: str) -> Markup:
    """A file of the folder `assets`."""
    return Markup((resources.files(__package__) / "assets" / name).read_text(encoding="utf-8"))


def _row(row: Row) -> dict[str, Any]:
    return {
        "operator": row.operator,
        "version": row.since_version,
        "attributes": sorted(row.attributes),
        "asks": row.operator == "MaxUnpool" or "output_shape" in row.attributes,
        "swapped": Switch.ODD_SIDE_SWAPPED in row.switches,
        "bounded": Switch.OUTPUT_PADDING_UNBOUNDED not in row.switches,
    }


def _labelled(title: str, field: Markup, class_: str | None = None, *more: Markup) -> Markup:
    return element("label", element("span", title), field, *more, class_=class_)


def _slider(name: str, title: str, low: int, high: int) -> Markup:
    field = element("input", type="range", min=low, max=high, value=low, data_field=name)
    return _labelled(title, field, None, element("span", data_shows=name))


def _check(name: str, title: str) -> Markup:
    return _labelled(title, element("input", type="checkbox", data_field=name), "wide")


def _choice(name: str, title: str, words: Sequence[str]) -> Markup:
    return _labelled(title, _options(zip(words, words, strict=True), data_field=name), "wide")


def _options(pairs: Any, **attributes: Any) -> Markup:
    return element("select", *(element("option", text, value=value) for value, text in pairs), **attributes)


def _number(name: str) -> Markup:
    return element("div", element("dt", name, data_words=name), element("dd", data_number=name))
