"""Files and classes are named by nouns or verbs of the field, no two classes share a name, no imports form a circle."""

import ast
import graphlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "unpool"
FILES = sorted(SOURCE.rglob("*.py"))
PRONOUNS = {
    "about", "alone", "anew", "apart", "away", "besides", "beyond", "earlier", "else", "ever", "far", "further", "how",
    "later", "near", "one", "others", "otherwise", "own", "rest", "same", "such", "thing", "way", "ways", "what",
    "which", "who", "whole", "why",
}  # fmt: skip
PARTICIPLES = {
    "begun", "brought", "built", "chosen", "done", "drawn", "fed", "found", "given", "held", "kept", "known",
    "left", "lent", "lost", "made", "meant", "said", "seen", "sent", "shown", "spent", "taken", "told",
    "tried", "understood", "won", "written",
}  # fmt: skip
ADJECTIVES = {
    "big", "busy", "certain", "clean", "deep", "double", "even", "fastest", "foreign", "good", "hidden", "large",
    "least", "light", "longest", "lonely", "most", "much", "narrow", "open", "plain", "quick", "quiet", "ready",
    "right", "small", "strange", "uneven", "wide", "wrong", "young",
}  # fmt: skip
SUFFIXES = ("ed", "ingly", "ward", "wise")
"""Ends of participles and adverbs; words of the field that end so are in `FIELD`."""

GERUNDS = {"being", "choosing", "doing", "going", "making", "opening", "placing", "putting", "raising", "running",
           "seeing", "stopping", "telling", "turning", "watching", "writing"}  # fmt: skip
FIELD = {"backward", "cached", "elementwise", "embed", "feed", "forward", "need", "pointwise", "seed", "speed"}
"""Nouns and words of the field that look like participles or adverbs."""


def words(name):
    """The words of a name in snake case or in camel case, in lower case.

    >>> words("OutputSpec"), words("shape_cache"), words("_KernelParams2D")
    (['output', 'spec'], ['shape', 'cache'], ['kernel', 'params2', 'd'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def is_refused(name):
    """Whether the last word of a name, which has to be a noun or a verb, is a participle, adjective or pronoun."""
    *_, last = words(name)
    if last in FIELD:
        return False
    return last in PRONOUNS | PARTICIPLES | ADJECTIVES | GERUNDS or last.endswith(SUFFIXES)


def place(path):
    """A file as it is written in this test: its path below src/unpool without the suffix."""
    return path.relative_to(SOURCE).with_suffix("").as_posix()


@cache
def tree(path):
    """The program of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def classes():
    """Every class of the package: the place of its file, and its name."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                yield place(path), node.name


def imports():
    """The modules of the package that each module imports when it is imported itself, by their places.

    Imports inside functions and for types only come later, or never; they close no circle.
    """
    modules = {place(path).removesuffix("/__init__"): path for path in FILES}
    return {name: set(imported(path, modules)) - {name} for name, path in modules.items()}


def imported(path, modules):
    """The modules that the statements at the top of a file import."""
    for node in at_import(tree(path).body):
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            parts = f"{module}{alias.name}".split(".")
            found = [known for end in (len(parts), len(parts) - 1) if (known := "/".join(parts[1:end])) in modules]
            if parts[0] == "unpool" and found:
                yield found[0]


def at_import(body):
    """The import statements that run with a module: at its top, or in an `if` or `try` there, except for types."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from at_import([*node.body, *node.orelse, *node.finalbody])


def test_names_are_nouns_or_verbs():
    """The last word of a file or class is no participle, adjective or pronoun; docs/glossary.md has better ones."""
    files = {place(path) for path in FILES if path.stem not in ("__init__", "__main__") and is_refused(path.stem)}
    folders = {place(path.parent) for path in FILES if path.parent != SOURCE and is_refused(path.parent.name)}
    found = files | folders | {f"{file}.py: {name}" for file, name in classes() if is_refused(name)}
    assert found == set()


def test_a_class_has_a_name_of_its_own():
    """Two classes of one name are two meanings of one word; private ones count."""
    counts = Counter(name for _, name in classes())
    assert {name: count for name, count in counts.items() if count > 1} == {}


def test_no_file_imports_itself():
    """Following imports from a file never leads back to it."""
    graphlib.TopologicalSorter(imports()).prepare()
