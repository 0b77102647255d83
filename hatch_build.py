"""Puts the libraries of kernels into a wheel, and the tag of their platform on it.

UNPOOL_LIBRARIES names their folder, which `python -m unpool.build` writes. Without it a wheel has none, fits all
platforms, and compiles its kernels: extras that run kernels bring Numba. With libraries, those for users do not.
Libraries that are not what their manifest says, lack kernels, or were built from other sources are refused.
"""

import hashlib
import json
import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOR_USERS = ("run", "demo", "torch", "dask", "formats", "gpu", "openvino")
"""The extras whose kernels the libraries have."""

KERNELS = Path("src/unpool/kernels/cpu")


class LibrariesHook(BuildHookInterface):
    """The hook of the build backend."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to what is built; `version` is "editable" for an installation that uses the sources in place."""
        chosen = os.environ.get("UNPOOL_LIBRARIES")
        if not chosen or version == "editable":
            return
        folder = Path(self.root, chosen)
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            problem = find_problem(Path(self.root), folder, manifest)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"its manifest cannot be read: {error!r}"
        if problem:
            self.app.abort(f"UNPOOL_LIBRARIES={folder}: {problem}. Run python -m unpool.build --output {folder}")
        names = ["manifest.json", *(entry["file"] for entry in manifest["libraries"].values())]
        build_data["force_include"] |= {str(folder / name): f"unpool/libraries/{name}" for name in names}
        build_data |= {"pure_python": False, "tag": f"py3-none-{manifest['platform']}"}
        extras = self.metadata.core.optional_dependencies
        for extra in FOR_USERS:
            extras[extra] = [requirement for requirement in extras[extra] if requirement not in extras["jit"]]


def find_problem(root: Path, folder: Path, manifest: dict[str, Any]) -> str:
    """Why a folder does not hold the libraries of the sources below `root`; empty if it does."""
    digest_files = runpy.run_path(str(root / KERNELS / "machine" / "checked_files.py"))["digest_files"]
    if manifest["sources"] != digest_files(root / KERNELS, ".py"):
        return "the libraries were built from other sources than those of this wheel"
    if manifest["only"]:
        return f"the libraries hold only the kernels with {manifest['only']!r} in their names"
    if not manifest["libraries"]:
        return "its manifest has no libraries"
    for entry in manifest["libraries"].values():
        path = folder / entry["file"]
        if not path.is_file():
            return f"{path.name} is missing"
        if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            return f"{path.name} is damaged, or of another build"
    return ""
