"""Packages: the versions that the tests are installed with, and all that an extra brings on this machine."""

import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins(file):
    """Package -> version, as a file of the repository pins them."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found = (line.partition(" ")[0].split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in found}


def brought_by(*extras):
    """Names of all packages that extras of a clone bring, and unpool itself.

    What unpool requires is read from pyproject.toml, and what packages require from those that are installed.
    """
    seen, left = set(), [("unpool", extra) for extra in ("", *extras)]
    while left:
        name, extra = left.pop()
        if (name, extra) not in seen:
            seen.add((name, extra))
            found = own(extra) if name == "unpool" else required(name, extra)
            left += [(canonicalize_name(each.name), asked) for each in found for asked in ("", *each.extras)]
    return {name for name, _ in seen}


def modules_without(packages):
    """Names of the installed modules that come with none of some packages."""
    found = packages_distributions().items()
    return sorted(name for name, owners in found if not packages & set(map(canonicalize_name, owners)))


def own(extra):
    """What unpool requires for an extra, or without one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate()]


def required(name, extra):
    """What an installed package requires for an extra, or without one; nothing if it is not installed."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return []
    return [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate({"extra": extra})]
