"""The blocks of code of a page, and what they print."""

import re
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?:\*Not run by the tests: ([^*]+)\*\n\n)?^```(\w*)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
EXIT_CODE = re.compile(r"# exit code (\d+)$")


@dataclass(frozen=True)
class Block:
    """One block of a page.

    Attributes:
        reason: why the tests do not run it, as the page says above it; "" where they do.
        language: python, sh, or "" for drawings.
        code: what stands in it.
        text: what the block of text below it says that it prints; "" without one.
    """

    reason: str
    language: str
    code: str
    text: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page, by its path in the repository."""
    return [Block(*found) for found in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


def pages() -> list[str]:
    """Every page of the repository that people read, as its path."""
    found = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
    found += [path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def check(page, found, instead=None, hidden=()):
    """Run blocks of a page in the current folder; fail unless they print what stands below them.

    Three dots stand for anything, and columns of a command may be closer together. Without a text below, a command may
    print anything.

    Args:
        page: its path, for messages.
        found: blocks of it.
        instead: words of commands, and those to run in their place.
        hidden: modules that cannot be imported, of a process that has not.
    """
    sys.modules.update(dict.fromkeys(hidden))
    if "" not in sys.path:
        sys.path.insert(0, "")
    names = {"__name__": "page"}
    for block in found:
        printed = run(block.language, block.code, names, instead)
        how = ELLIPSIS if block.language == "python" else ELLIPSIS | NORMALIZE_WHITESPACE
        is_free = block.language == "sh" and not block.text
        is_as_said = is_free or OutputChecker().check_output(block.text, printed, how)
        assert is_as_said, f"{page}:\n{block.code}printed\n{printed}"


def run(language, code, names, instead=None):
    """What a block prints, blanks at the ends of lines left out.

    Args:
        language: python or sh.
        code: of the block.
        names: of the module in which Python runs.
        instead: words of commands, and those to run in their place.
    """
    if language == "python":
        stream = StringIO()
        with redirect_stdout(stream):
            exec(compile(code, "page", "exec"), names)
        printed = stream.getvalue()
    else:
        assert language == "sh", f"expected python or sh, or text below one, got {language!r}:\n{code}"
        printed = "".join(run_line(line, instead or {}) for line in code.splitlines())
    return re.sub(r" +$", "", printed, flags=re.MULTILINE)


def run_line(line, instead):
    """What a command prints; it ends with 0 or with the code behind it.

    What begins with pip is not run: CI begins with such lines of the README.
    """
    words = [instead.get(word, word) for word in shlex.split(line, comments=True)]
    if words[0] == "pip":
        return ""
    given = place = None
    if words[0] == "cat":
        given, words = Path(words[1]).read_bytes(), words[3:]
    if words[-2] == ">":
        place, words = Path(words[-1]), words[:-2]
    assert words[0] == "unpool", f"expected a command of unpool, got {line}"
    from typer.testing import CliRunner  # not at the top: a page of `.[torch]` has no typer

    from unpool.cli.app import app

    result = CliRunner().invoke(app, words[1:], input=given)
    code = EXIT_CODE.search(line)
    assert result.exit_code == (int(code[1]) if code else 0), f"{line}\n{result.output}"
    if place is not None:
        place.write_bytes(result.stdout_bytes)
        return ""
    return result.output
