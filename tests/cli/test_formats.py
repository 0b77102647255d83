"""Formats of files: what a record of `unpool.images.formats` says is what commands do."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unpool import images
from unpool.cli.app import app
from unpool.images.formats import BY_SUFFIX, FORMATS, format_of_content
from unpool.images.raster import write_planes

DOCS = Path(__file__).parents[2] / "docs"


def test_the_help_names_every_format():
    """Each format that is read, and each that is written, with `--format`."""
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert [each.name for each in FORMATS if each.suffixes[0] not in text] == []
    assert f"<{'|'.join(each.name for each in FORMATS if each.is_written)}>" in text


@pytest.mark.parametrize("suffix", [suffix for suffix, each in BY_SUFFIX.items() if each.channels])
def test_a_file_is_known_by_its_first_bytes(suffix, tmp_path):
    """What is written in a format is read as this format, whatever name it has."""
    path = tmp_path / f"x{suffix}"
    with path.open("wb") as stream:
        write_planes(stream, BY_SUFFIX[suffix].name, np.zeros((2, 3, 1), np.uint8), "x")
    assert format_of_content(path.read_bytes()) is BY_SUFFIX[suffix]
    assert images.read(path).pixels.shape == (2, 3, 1)


def test_the_page_of_pictures_names_every_format():
    """A new format is in docs/pictures.md."""
    text = (DOCS / "pictures.md").read_text()
    assert [each.name for each in FORMATS if f".{each.name}" not in text] == []
