"""Pages to follow along: their blocks run in order, in one folder, and print what stands below them."""

import re
import shlex
from contextlib import redirect_stdout
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path

import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

from tests.support import models
from unpool.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / name for name in ("index.md", "tutorial.md", "exit-codes.md", "lowering.md", "openvino.md")]
PAGES += sorted((DOCS / "tasks").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"# exit code (\d+)$")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_print_what_they_say(page, tmp_path, monkeypatch):
    """Python and commands of a page, run as a reader would, print the text below.

    Three dots stand for anything, and columns of a command may be closer together. Without a
    text below, a command may print anything.
    """
    monkeypatch.chdir(tmp_path)
    put_what_pages_take_for_granted()
    names = {"__name__": "page"}
    for language, code, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        printed = run(language, code, names)
        how = ELLIPSIS if language == "python" else ELLIPSIS | NORMALIZE_WHITESPACE
        is_free = language == "sh" and not text
        assert is_free or OutputChecker().check_output(text, printed, how), f"{page.name}:\n{code}printed\n{printed}"


def put_what_pages_take_for_granted():
    """A network and a picture that it takes; pages to follow along make their own."""
    onnx.save(models.segnet(), "segnet.onnx")
    Image.new("RGB", (10, 12)).save("photo.png")


def run(language, code, names):
    """What a block prints; blanks at the ends of lines are left out."""
    if language == "python":
        stream = StringIO()
        with redirect_stdout(stream):
            exec(compile(code, "page", "exec"), names)
        printed = stream.getvalue()
    else:
        assert language == "sh", f"expected a block of python or sh, or text below one, got {language}:\n{code}"
        printed = "".join(map(run_line, code.splitlines()))
    return re.sub(r" +$", "", printed, flags=re.MULTILINE)


def run_line(line):
    """What a command prints; it ends with 0 or with the code behind it. What pip does is not run."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        return ""
    assert words[0] == "unpool", f"expected a command of unpool, got {line}"
    result = CliRunner().invoke(app, words[1:])
    code = EXIT_CODE.search(line)
    assert result.exit_code == (int(code[1]) if code else 0), f"{line}\n{result.output}"
    return result.output
