"""A hook of MkDocs: the page of the commands, as Typer writes it from their help."""

import re
import subprocess
import sys

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = "commands.md"
WRITE = ("-m", "typer", "unpool.cli.app", "utils", "docs", "--name", "unpool", "--title", "Commands")
EXAMPLE = re.compile(r"^Example: (.*)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    text = subprocess.run([sys.executable, *WRITE], check=True, capture_output=True, text=True).stdout
    files.append(File.generated(config, PAGE, content=EXAMPLE.sub(r"```sh\n\1\n```", text)))
    return files
