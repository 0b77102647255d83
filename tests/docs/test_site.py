"""The site: the reference names what is public, and notebooks are kept without what they print."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def public_names(file):
    """What a module lists in `__all__`; it is not imported."""
    for node in ast.parse((ROOT / "src" / "unpool" / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [target.id for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{file}: no __all__")


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("unpool", "__init__.py"),
        ("unpool.dask", "dask/__init__.py"),
        ("unpool.tiles", "tiles.py"),
        ("unpool.torch", "torch/__init__.py"),
    ],
)
def test_reference_has_every_public_name(module, file):
    """Every public name has an entry in the reference; errors have a section of their own."""
    known = re.findall(r"^(?:::: | +heading: )([\w.]+)", REFERENCE, re.MULTILINE)
    known += [f"unpool.{name}" for name in re.findall(r"^## (\w+)", ERRORS, re.MULTILINE)]

    assert {f"{module}.{name}" for name in public_names(file)} - set(known) == set()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_output(path):
    """Every build of the site runs them, so what they print is not stored."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]

    assert cells
    assert [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"]] == []
