"""A hook of MkDocs: notebooks become pages. Every build runs them, and one that fails ends the build."""

from base64 import b64decode
from functools import cache
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

NOTEBOOKS = "examples/notebooks"
SECONDS = 120
QUIET = ["--log-level=40"]  # not even a warning that messages on this machine are not encrypted


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page and its pictures for every notebook."""
    for path in sorted((Path(config.config_file_path).parent / NOTEBOOKS).glob("*.ipynb")):
        text, pictures = page(path, path.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


@cache
def page(path: Path, source: str) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook that was run, and its pictures by name.

    Args:
        path: where the notebook lies, and where it runs.
        source: its content.

    Raises:
        CellExecutionError: a cell fails.
    """
    notebook = nbformat.reads(source, as_version=4)
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS, resources=place, extra_arguments=QUIET).execute()
    parts, pictures = [], {}
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = b64decode(data["image/png"])
                parts.append(f"![{cell.metadata['alt']}]({name})")
            else:
                text = output.text if output.output_type == "stream" else data["text/plain"]
                parts.append(f"```text\n{text.rstrip()}\n```")
    where = f"This page is the notebook `{NOTEBOOKS}/{path.name}`, as it ran when the site was built."
    return "\n\n".join([*parts, where]) + "\n", pictures
