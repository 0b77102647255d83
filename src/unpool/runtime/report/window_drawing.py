"""Interactive drawing of window arithmetic: a fragment of HTML that needs no other file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from unpool.display import display_line
from unpool.extras import require
from unpool.operators.attributes import AUTO_PAD
from unpool.operators.contract import OPERATORS, Switch, versions_of

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_OPSET = 26  # the highest that can be chosen


@dataclass(frozen=True)
class WindowSettings:
    """The window of an operator along one spatial axis, in elements; `output_size` is from output_shape."""

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


EXAMPLES: Mapping[str, WindowSettings] = {
    "MaxPool, 3 wide, stride 2": WindowSettings(),
    "MaxPool, dilated": WindowSettings(stride=1, dilation=2, begin=2, end=2),
    "MaxPool, the last window hangs over": WindowSettings(size=8, kernel=3, stride=3, begin=0, end=0, ceil=True),
    "MaxUnpool to an odd size": WindowSettings("MaxUnpool", size=4, kernel=2, stride=2, begin=0, end=0, output_size=9),
    "ConvTranspose, twice as large": WindowSettings("ConvTranspose", size=5, kernel=4, stride=2),
    "ConvTranspose with gaps": WindowSettings("ConvTranspose", size=4, kernel=2, stride=3, begin=0, end=0),
}


def fragment(presets: Mapping[str, WindowSettings] = EXAMPLES) -> str:
    """A drawing of window arithmetic with its style and its script, for any page; a page may hold several.

    The reader chooses from the presets, of which the first is drawn first, and can change every setting.

    >>> drawing = fragment({"a pool": WindowSettings("MaxPool", size=5)})
    >>> drawing.startswith("<style>"), "a pool" in drawing, "http://www.w3.org/2000/svg" in drawing
    (True, True, True)
    """
    html = templates().get_template("window_drawing.html.jinja").render(drawing_context(presets))
    return f"<style>{asset('drawing.css')}</style>{html}<script>{script()}</script>"


def drawing_context(presets: Mapping[str, WindowSettings]) -> dict[str, Any]:
    """The variables of the drawing's template."""
    return {
        "presets": list(presets),
        "operators": OPERATORS,
        "auto_pads": AUTO_PAD,
        "max_opset": MAX_OPSET,
        "script_data": {
            "rows": script_rows(),
            "presets": [{"name": name, "settings": to_script(preset)} for name, preset in presets.items()],
        },
    }


def script() -> str:
    """The script of drawings, which starts those that stand before it in the page."""
    return "{" + asset("arithmetic.js") + asset("drawing.js") + "window.windowArithmetic = windowArithmetic;}"


def script_rows() -> dict[str, list[dict[str, Any]]]:
    """Every version of the three operators, as the script reads them."""
    return {
        name: [
            {
                "operator": version.operator,
                "version": version.since_version,
                "attributes": sorted(version.attributes),
                "asks": version.operator == "MaxUnpool" or "output_shape" in version.attributes,
                "swapped": Switch.ODD_SIDE_SWAPPED in version.switches,
                "bounded": Switch.OUTPUT_PADDING_UNBOUNDED not in version.switches,
            }
            for version in versions_of(name, "")
        ]
        for name in OPERATORS
    }


def to_script(settings: WindowSettings) -> dict[str, Any]:
    """Settings by the names that the script has for them."""
    names = {"auto_pad": "autoPad", "output_padding": "outputPadding", "output_size": "outputSize"}
    return {names.get(name, name): value for name, value in asdict(settings).items()}


@cache
def asset(name: str) -> str:
    """The text of a file in the folder `assets`."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def templates() -> "Environment":
    """The templates in the folder `assets`; they escape control and bidirectional characters of texts, then HTML."""
    require("unpool report", "run", "jinja2")
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else display_line(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
