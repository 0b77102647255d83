"""The menu of the pages on differences, in a real browser: it shows the examples and the column of one runtime."""

from html import escape

import markdown
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.docs.blocks import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "differences" / "max-unpool.md"
SCRIPT = ROOT / "docs" / "builder" / "differences.js"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page as HTML with the script, as MkDocs writes it but for the theme."""
    text = PAGE.read_text(encoding="utf-8")
    body = markdown.markdown(text, extensions=["tables", "fenced_code", "md_in_html"])
    path = tmp_path_factory.mktemp("site") / "page.html"
    script = SCRIPT.read_text(encoding="utf-8")
    title = escape(text.splitlines()[0].removeprefix("# "))
    path.write_text(
        f"<!doctype html><title>{title}</title><article>{body}</article><script>{script}</script>", encoding="utf-8"
    )
    return path.as_uri()


def shown(browser, tag):
    """The texts of the elements that are displayed."""
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, tag) if element.is_displayed()]


def test_everything_is_shown_at_first(browser, address):
    """Without a choice all examples and all columns are there."""
    browser.get(address)

    assert Select(browser.find_element(By.ID, "runtime")).first_selected_option.text == "all"
    assert len(shown(browser, "h4")) == PAGE.read_text(encoding="utf-8").count("\n#### ")
    assert len(shown(browser, "table:first-of-type th")) == 7


def test_a_runtime_is_chosen(browser, address):
    """The examples of a runtime are those where it differs; the address keeps the choice, and `all` undoes it."""
    browser.get(address)
    total = len(shown(browser, "h4"))
    Select(browser.find_element(By.ID, "runtime")).select_by_visible_text("PyTorch")

    assert shown(browser, "table:first-of-type th") == ["rule", "PyTorch"]
    assert len(shown(browser, "h4")) == PAGE.read_text(encoding="utf-8").count("\n- **PyTorch**, ") < total
    assert "1.2 Pads move nothing" not in shown(browser, "h3")
    assert browser.current_url.endswith("?runtime=PyTorch")

    Select(browser.find_element(By.ID, "runtime")).select_by_visible_text("all")
    assert len(shown(browser, "h4")) == total


def test_the_address_chooses_a_runtime(browser, address):
    """A cell of the index leads to the page with its runtime; a runtime without differences has no examples."""
    browser.get(f"{address}?runtime=onnx%20ReferenceEvaluator")
    assert shown(browser, "table:first-of-type th") == ["rule", "onnx ReferenceEvaluator"]

    browser.get(f"{address}?runtime=unpool")
    assert shown(browser, "h4") == []

    browser.get(f"{address}?runtime=unknown")
    assert len(shown(browser, "table:first-of-type th")) == 7
