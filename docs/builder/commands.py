"""A hook of MkDocs: what Typer writes about the commands, from their help, goes into the page of the command line."""

import re
import subprocess
import sys
from functools import cache

from mkdocs.structure.pages import Page

PAGE = "command-line.md"
WRITE = ("-m", "typer", "unpool.cli.app", "utils", "docs", "--name", "unpool")
SECTION = re.compile(r"^## `unpool (\S+)`\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^Example: (.*)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Put the list of the commands, and their sections, where the page wants them."""
    if page.file.src_uri != PAGE:
        return markdown
    return markdown.replace("<!-- commands -->", listed(written())).replace("<!-- options -->", sections(written()))


@cache
def written() -> str:
    """What Typer writes."""
    return subprocess.run([sys.executable, *WRITE], check=True, capture_output=True, text=True).stdout


def listed(text: str) -> str:
    r"""A list of the commands that says all of what each does, and leads to its section.

    >>> listed("# unpool\n\n## `unpool run`\n\nRun a model\non arrays.\n\n**Usage**:")
    '- [`run`](#unpool-run): Run a model on arrays.'
    """
    return "\n".join(f"- [`{name}`](#unpool-{name}): {' '.join(does.split())}" for name, does in SECTION.findall(text))


def sections(text: str) -> str:
    """A section for each command, with its example as a block that can be copied."""
    return EXAMPLE.sub(r"```sh\n\1\n```", text[text.index("\n## ") :])
