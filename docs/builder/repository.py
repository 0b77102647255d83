"""A hook of MkDocs: pages that lie outside docs/, and links from one file of the repository to another.

Pages link as files of the repository do, so that they can be read there. On the site a link leads to the page of its
file; where a file has no page, its path is shown instead.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples/coins/README.md": "project/coins.md",
    "examples/onnxruntime/README.md": "project/onnxruntime-examples.md",
    "README.md": "index.md",
}
"""Files of the repository, and the pages of the site that show them, or stand for them."""

FILES = {page: file for file, page in OUTSIDE.items() if page != "index.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for page, file in FILES.items():
        files.append(File.generated(config, page, abs_src_path=str(_root(config) / file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages."""
    uri = page.file.src_uri
    place = PurePosixPath(FILES.get(uri, f"docs/{uri}")).parent

    def on_site(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if picture or not path or "://" in path or files.get_file_from_path(normpath(f"{_parent(uri)}/{path}")):
            return match.group()
        file = normpath(f"{place}/{path}")
        wanted = page_of(file)
        if files.get_file_from_path(wanted):
            return f"[{text}]({relpath(wanted, _parent(uri))}{hash_sign}{anchor})"
        if not (_root(config) / file).exists():
            return match.group()
        return text if text.strip("`") in file else f"{text} (`{file}`)"

    parts = re.split(f"({FENCE.pattern})", markdown, flags=FENCE.flags)
    return "".join(part if part.startswith("```") else LINK.sub(on_site, part) for part in parts)


def page_of(file: str) -> str:
    """The page that shows a file of the repository, if there is one.

    >>> page_of("SECURITY.md"), page_of("docs/tutorial.md"), page_of("examples/notebooks/a.ipynb")
    ('project/security.md', 'tutorial.md', 'notebooks/a.md')
    """
    if file.endswith(".ipynb"):
        return f"notebooks/{PurePosixPath(file).stem}.md"
    return OUTSIDE.get(file, file.removeprefix("docs/"))


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _parent(uri: str) -> str:
    return str(PurePosixPath(uri).parent)
