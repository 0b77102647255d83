"""docs/how-it-works.md names what is there: its picture shows every room, and its walk is the way that a call takes."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "unpool"
PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
WALK = PAGE.partition("\n## The longest route")[2].partition("\n## ")[0]
STEP = re.compile(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`", re.MULTILINE)
PARTS = [STEP.findall(part) for part in WALK.split("\n### ")[1:]]
STEPS = [step for part in PARTS for step in part]

TRACE = """
import json, sys
from pathlib import Path
import numpy as np
import unpool

source = Path(unpool.__file__).parent
x = np.zeros({shape}, np.float32)
for _ in range(2):
    seen = []

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(source):
            seen.append((file.relative_to(source).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(note)
    {call}
    sys.setprofile(None)
    print(json.dumps(seen))
"""


def rooms_on_disk(folder):
    """What a folder of the package holds that somebody may import."""
    names = [path for path in folder.iterdir() if path.is_dir() or path.suffix == ".py"]
    return {path.name for path in names} - {"__init__.py", "__pycache__", "libraries"}


def rooms_in_picture():
    """The entries of the picture; those that are set in belong to the folder above them."""
    picture = PAGE.partition("```\nsrc/unpool/\n")[2].partition("```")[0]
    found, room = {"": set()}, ""
    for line in picture.splitlines():
        depth, name = len(line) - len(line.lstrip()), line.split()[0].rstrip("/")
        if depth == 2:
            room = name
            found[""].add(name.partition("/")[0])
        else:
            assert depth == 4, line
            found.setdefault(room, set()).add(name)
    return found


def test_picture_shows_every_room():
    """The picture has every file and folder of the package, of the kernels and of the runtime, and no other."""
    found = rooms_in_picture()

    assert sorted(found) == ["", "kernels/cpu", "kernels/gpu", "runtime"]
    for room, names in found.items():
        assert names == rooms_on_disk(SOURCE / room), room


def test_files_on_the_page_are_there():
    """Every file and folder that the page names in code font is in the package or in the repository."""
    names = re.findall(r"`([\w/-]+(?:\.py|\.md|/))`", PAGE)

    assert len(names) > len(STEPS)
    assert [name for name in names if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []


def defined(path):
    """Functions, classes and methods of a file, methods as Class.method, and functions inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def test_walk_has_its_three_parts():
    """No step of the walk is overlooked: every numbered line of it names a file and a function."""
    numbered = re.findall(r"^\d+\. ", WALK, re.MULTILINE)

    assert len(PARTS) == 3
    assert all(len(part) >= 5 for part in PARTS)
    assert len(STEPS) == len(numbered)
    assert STEPS[0] == ("functional.py", "max_pool")


def test_steps_of_the_walk_are_there():
    """The file of a step exists and defines the function or method that the step names."""
    assert [(file, name) for file, name in STEPS if name not in set(defined(SOURCE / file))] == []


@pytest.fixture(scope="module")
def calls():
    """What two equal calls, of the example of the page, call in Python in an interpreter of their own."""
    call = re.search(r"^unpool\.max_pool\(.*\)$", WALK, re.MULTILINE)[0]
    shape = re.search(r"of shape (\([\d, ]+\))", WALK)[1]
    code = TRACE.format(call=call, shape=shape)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return [[tuple(one) for one in json.loads(line)] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", [0, 1])
def test_calls_take_the_steps_in_order(calls, number):
    """The first call takes the steps of the first part and then of the second; the next call those of the second."""
    seen = iter(calls[number])
    steps = PARTS[0] + PARTS[1][2:] if number == 0 else PARTS[1]

    for step in steps:
        assert step in seen, f"{step} is not called after the steps before it"


def test_second_call_prepares_nothing(calls):
    """What the first part does is done once."""
    once = {name for _, name in PARTS[0]} - {"max_pool", "call"}

    assert {name for _, name in calls[0]} >= once
    assert once & {name for _, name in calls[1]} == set()
