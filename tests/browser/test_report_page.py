"""The page of a report, in a real browser: it needs no network, fits every screen, and can be read by everybody."""

import pytest

import unpool
from tests.support import models
from unpool.graph.random_inputs import random_feed
from unpool.runtime.report.report import ReportOptions, report

pytestmark = pytest.mark.slow

WIDTHS = (390, 1280)

CONTRAST = """
    const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const behind = (element) => {
      for (let one = element; one; one = one.parentElement) {
        const style = getComputedStyle(one), colours = parts(style.backgroundColor);
        if (style.backgroundImage !== "none") return parts(style.backgroundImage);
        if (colours.length === 3 || colours[3] > 0) return colours;
      }
      return [255, 255, 255];
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement, style = getComputedStyle(element);
      const isRead = walker.currentNode.textContent.trim() && !element.closest("script, .off, svg");
      if (!isRead || !element.checkVisibility()) continue;
      const [one, other] = [light(parts(style.color)), light(behind(element))].sort((a, b) => b - a);
      found.push([(one + 0.05) / (other + 0.05), walker.currentNode.textContent.trim(), element.className]);
    }
    return found;
"""


@pytest.fixture(scope="module")
def found():
    """The report of a small model."""
    model = models.segnet()
    return report(model, options=ReportOptions(effort=None, accuracy=False))


@pytest.fixture
def page(found, browser, tmp_path):
    """Its page, open."""
    found.save(tmp_path / "report.html")
    browser.get_log("browser")
    browser.get((tmp_path / "report.html").as_uri())
    return browser


def test_page_loads_nothing_and_runs(page):
    """The only thing that is loaded is the page, nothing is refused or fails, and the drawing is drawn."""
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [one for one in loaded if not one.startswith("data:")] == []
    assert page.get_log("browser") == []
    assert page.execute_script("return document.querySelectorAll('.unpool-window[data-ready] svg .cell').length") > 5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_the_screen_and_has_contrast(page, screen, width, dark):
    """Nothing hangs over the side of a phone, and every text has the contrast of WCAG AA, by day and by night."""
    screen(width, dark=dark)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    texts = page.execute_script(CONTRAST)
    assert len(texts) > 100
    assert [one for one in texts if one[0] < 4.5] == []


def test_pictures_say_what_they_show(page, found):
    """Every picture is there and has words of its own; headings go down one level at a time."""
    pictures = page.execute_script("return [...document.images].map((one) => [one.alt, one.naturalWidth])")
    assert len(pictures) == 4 * len(found.maps) == 16
    assert len({words for words, _ in pictures}) == 16
    assert min(width for _, width in pictures) > 10
    levels = page.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map((one) => one.tagName)")
    assert levels[:2] == ["H1", "H2"]
    assert levels.count("H1") == 1


def test_nothing_in_a_model_becomes_script(browser, tmp_path):
    """Names of a hostile model are text on the page, wherever they stand."""
    bad = '"></script><script>document.title = 1</script><img src=x onerror="document.title = 2">'
    model = models.segnet()
    model.graph.input[0].name = model.graph.node[0].input[0] = bad
    model.graph.node[3].name = bad + "pool"
    feed = random_feed(unpool.InferenceSession(model).get_inputs(), {})
    done = report(model, feed, options=ReportOptions(effort=None, accuracy=False))
    done.save(tmp_path / "bad.html")
    browser.get((tmp_path / "bad.html").as_uri())
    assert browser.title == "a model in memory: unpool report"
    assert browser.execute_script("return document.querySelectorAll('script').length") == 2
    assert browser.execute_script("return document.querySelectorAll('[onerror]').length") == 0
    assert browser.execute_script("return document.body.textContent").count(bad) >= 4
    assert browser.get_log("browser") == []
