"""Puts the libraries of kernels into a wheel, and the tag of their platform on it.

UNPOOL_LIBRARIES names their folder, which `python -m unpool.build` writes. Without it a wheel has none, fits all
platforms, and compiles its kernels: extras that run kernels bring Numba. With libraries, those for users do not.
"""

import json
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOR_USERS = ("run", "demo", "torch", "dask", "formats", "gpu", "openvino")
"""The extras whose kernels the libraries have."""


class LibrariesHook(BuildHookInterface):
    """The hook of the build backend."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to what is built; `version` is "editable" for an installation that uses the sources in place."""
        chosen = os.environ.get("UNPOOL_LIBRARIES")
        if not chosen or version == "editable":
            return
        folder = Path(self.root, chosen)
        manifest = json.loads((folder / "manifest.json").read_text())
        names = ["manifest.json", *(entry["file"] for entry in manifest["libraries"].values())]
        build_data["force_include"] |= {str(folder / name): f"unpool/libraries/{name}" for name in names}
        build_data |= {"pure_python": False, "tag": f"py3-none-{manifest['platform']}"}
        extras = self.metadata.core.optional_dependencies
        for extra in FOR_USERS:
            extras[extra] = [requirement for requirement in extras[extra] if requirement not in extras["jit"]]
