"""The drawing of window arithmetic, in a real browser: its numbers are those of `geometry.py` and of the operators."""

import itertools

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from unpool.errors import UnpoolError
from unpool.geometry import pooling_walk, upsampling_walk
from unpool.operators import contract, conv_transpose, max_pool, max_unpool
from unpool.operators.attributes import Settings
from unpool.runtime.report.window_drawing import EXAMPLES, WindowSettings, fragment, script_rows, to_script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The drawing alone in a page."""
    path = tmp_path_factory.mktemp("drawing") / "drawing.html"
    path.write_text(f"<!doctype html><title>x</title><body>{fragment()}", encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def axis_of(one):
    """The row and the axis by the library; None for the axis where it refuses, and for both where no version is."""
    try:
        row = contract.version_at(one.operator, "", one.opset)
    except UnpoolError:
        return None, None
    words = {
        "kernel_shape": [one.kernel],
        "strides": [one.stride],
        "dilations": [one.dilation],
        "auto_pad": one.auto_pad,
        "ceil_mode": int(one.ceil),
        "output_padding": [one.output_padding],
    }
    if "auto_pad" not in row.attributes or one.auto_pad == "NOTSET":
        words["pads"] = [one.begin, one.end]
    if one.operator == "ConvTranspose" and one.output_size is not None:
        words["output_shape"] = [one.output_size]
    given = {name: value for name, value in words.items() if name in row.attributes}
    try:
        return row, AXES[one.operator](row, given, one)
    except UnpoolError:
        return row, None


def pooled(row, given, one):
    return max_pool.axis(max_pool.resolve(row, given), 0, one.size)


def unpooled(row, given, one):
    asked = None if one.output_size is None else (1, 1, one.output_size)
    shape = (1, 1, one.size)
    return max_unpool.call(max_unpool.resolve(row, given, Settings(index_space="output")), shape, shape, asked).axes[0]


def transposed(row, given, one):
    spec = conv_transpose.resolve(row, given)
    return conv_transpose.axis(spec, 0, conv_transpose.axis_rules(spec, (one.kernel,))[0], one.size)


AXES = {"MaxPool": pooled, "MaxUnpool": unpooled, "ConvTranspose": transposed}


def expected(one):
    """What the drawing has to find: version, sizes, begin, reach, taps outside, and large positions untouched."""
    row, axis = axis_of(one)
    if axis is None:
        return [row and row.since_version, None]
    inside = int(pooling_walk(axis).count.sum())
    untouched = np.flatnonzero(upsampling_walk(axis).count == 0).tolist()
    outside = axis.small * axis.window.size - inside
    return [row.since_version, axis.small, axis.large, axis.begin, axis.window.reach, outside, untouched]


FOUND = """
    const [rows, all] = arguments;
    return all.map((one) => {
      const found = windowArithmetic.resolve(one, rows[one.operator]);
      if (found.refusal) return [found.row ? found.row.version : null, null];
      return [found.row.version, found.small, found.large, found.begin, found.reach, found.outside, found.untouched];
    });
"""


def grid():
    """Settings of all kinds: the corners of every pair of attributes, and many drawn at random."""
    rng = np.random.default_rng(5)
    pads = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    opsets = {"MaxPool": (1, 8, 10, 11, 12, 22), "MaxUnpool": (1, 9, 11, 22), "ConvTranspose": (1, 11, 22)}
    for operator, size, mode, ceil in itertools.product(opsets, (0, 1, 2, 5, 8), pads, (False, True)):
        for opset, kernel, stride in itertools.product(opsets[operator], (1, 2, 3), (1, 2, 4)):
            dilation, begin, end, extra = (int(one) for one in rng.integers((1, 0, 0, 0), (4, 4, 4, 4)))
            asked = int(rng.integers(0, 20)) if rng.random() < 0.3 else None
            yield WindowSettings(operator, opset, size, kernel, stride, dilation, begin, end, ceil, mode, extra, asked)


def test_numbers_are_those_of_the_library(page):
    """Sizes, padding, taps outside and what no window reaches, over a grid; and what the library refuses is refused."""
    settings = list(grid())
    got = page.execute_script(FOUND, script_rows(), [to_script(one) for one in settings])
    wrong = [(one, want, have) for one, have in zip(settings, got, strict=True) if (want := expected(one)) != have]
    assert wrong[:3] == []
    refused = sum(have[1] is None for have in got)
    assert len(settings) > 3000
    assert 100 < refused < len(settings) // 2


def test_ties_are_those_of_the_walk(page):
    """Every small position is tied to the large positions that `pooling_walk` gives."""
    settings = [one for one in grid() if axis_of(one)[1] is not None][::7]
    code = (
        "const [rows, all] = arguments; return all.map((one) => windowArithmetic.resolve(one, rows[one.operator]).ties)"
    )
    found = page.execute_script(code, script_rows(), [to_script(one) for one in settings])
    for one, ties in zip(settings, found, strict=True):
        axis = axis_of(one)[1]
        walk = pooling_walk(axis)
        read = [
            [first + tap * walk.other_step for tap in range(count)]
            for first, count in zip(walk.other.tolist(), walk.count.tolist(), strict=True)
        ]
        assert [[place for place in places if 0 <= place < axis.large] for places in ties] == read


def number(page, name):
    return page.find_element(By.CSS_SELECTOR, f"[data-number='{name}']").text


def choose(page, example):
    Select(page.find_element(By.CSS_SELECTOR, ".presets")).select_by_visible_text(example)


def field(page, name):
    return page.find_element(By.CSS_SELECTOR, f"[data-field='{name}']")


STEPS = [
    ("size", 3), ("kernel", 1), ("stride", -1), ("dilation", 1), ("begin", 1), ("end", 2), ("opset", -11),
    ("outputPadding", 1), ("outputSize", 4),
]  # fmt: skip
NAMES = {"outputPadding": "output_padding", "outputSize": "output_size"}


@pytest.mark.parametrize(
    "example", ["MaxPool, 3 wide, stride 2", "MaxUnpool to an odd size", "ConvTranspose with gaps"]
)
def test_sliders_move_by_keyboard(page, example):
    """Every slider that is on moves with the arrow keys, and the numbers that can be read follow it."""
    choose(page, example)
    values = dict(vars_of(EXAMPLES[example]))
    moved = 0
    for name, by in STEPS:
        slider = field(page, name)
        if slider.is_enabled():
            slider.send_keys((Keys.ARROW_RIGHT if by > 0 else Keys.ARROW_LEFT) * abs(by))
            values[NAMES.get(name, name)] += by
            moved += 1
        assert_read(page, WindowSettings(**values))
    assert moved >= 6
    if field(page, "ceil").is_enabled():
        field(page, "ceil").send_keys(Keys.SPACE)
        assert_read(page, WindowSettings(**{**values, "ceil": True}))
    if field(page, "autoPad").is_enabled():
        field(page, "autoPad").send_keys(Keys.ARROW_DOWN * 2)
        assert_read(page, WindowSettings(**{**values, "ceil": True, "auto_pad": "SAME_LOWER"}))


def vars_of(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def assert_read(page, settings):
    """The numbers on the page are those of the library."""
    want = expected(settings)
    said = page.find_element(By.CSS_SELECTOR, ".said").text
    if want[1] is None:
        assert number(page, "output") == "–"
        assert said != ""
        return
    version, small, large, begin, reach, outside, untouched = want
    output = small if settings.operator == "MaxPool" else large
    read = [number(page, name) for name in ("version", "output", "reach", "begin", "outside", "untouched")]
    assert read == [f"{settings.operator}-{version}", *map(str, (output, reach, begin, outside, len(untouched)))]


def test_window_is_chosen_by_click_and_by_key(page):
    """A click on a small cell and the arrow keys move the same window, and the sentence says what it is tied to."""
    choose(page, "MaxPool, 3 wide, stride 2")
    page.find_element(By.CSS_SELECTOR, ".cell[data-place='2'] rect").click()
    said = page.find_element(By.CSS_SELECTOR, ".said")
    assert said.text == "Position 2 reads input 3, 4, 5."
    field(page, "position").send_keys(Keys.ARROW_RIGHT * 2)
    assert said.text == "Position 4 reads input 7, 8; 1 tap lies on padding."
    assert len(page.find_elements(By.CSS_SELECTOR, "svg .tie")) == 3


def test_every_control_has_a_name(page):
    """Whoever does not see the page hears what each control is for."""
    controls = page.find_elements(By.CSS_SELECTOR, ".unpool-window input, .unpool-window select")
    assert len(controls) == 15
    assert [one.get_attribute("outerHTML") for one in controls if not one.accessible_name] == []
