"""A hook of MkDocs: the page of the commands, as Typer writes it from their help."""

import re
import subprocess
import sys

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = "commands.md"
WRITE = ("-m", "typer", "unpool.cli.app", "utils", "docs", "--name", "unpool", "--title", "Commands")
SECTION = re.compile(r"^## `unpool (\S+)`\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
LIST = re.compile(r"(?<=\*\*Commands\*\*:\n\n).*?(?=\n\n)", re.DOTALL)
EXAMPLE = re.compile(r"^Example: (.*)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    text = subprocess.run([sys.executable, *WRITE], check=True, capture_output=True, text=True).stdout
    files.append(File.generated(config, PAGE, content=with_examples(with_whole_sentences(text))))
    return files


def with_whole_sentences(text: str) -> str:
    """The page with a list of commands that says all of what each does, and leads to it."""
    lines = [f"* [`{name}`](#unpool-{name}): {' '.join(does.split())}" for name, does in SECTION.findall(text)]
    return LIST.sub(lambda _: "\n".join(lines), text, count=1)


def with_examples(text: str) -> str:
    """The page with examples as blocks that can be copied."""
    return EXAMPLE.sub(r"```sh\n\1\n```", text)
