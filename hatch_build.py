"""Puts machine code into a wheel, and the tag of its platform on it.

The library of operators for onnxruntime is compiled by zig; in an installation that uses the sources in place, it gets
into a folder there. A system that it cannot be compiled for gets none, which the log says.

UNPOOL_LIBRARIES names a folder of libraries of kernels, which `python -m unpool.build` writes. A wheel without them
compiles its kernels: extras that run kernels bring Numba. With libraries, those for users do not. Libraries that are
not what their manifest says, lack kernels, or were built from other sources are refused.
"""

import hashlib
import json
import os
import platform
import runpy
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOR_USERS = ("run", "demo", "torch", "dask", "formats", "gpu", "openvino")
"""The extras whose kernels the libraries have."""

KERNELS = Path("src/unpool/kernels/cpu")
OPERATORS = Path("src/unpool/onnxruntime")
TARGETS = Path("src/unpool/build/targets.py")


class LibrariesHook(BuildHookInterface):
    """The hook of the build backend."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to what is built; `version` is "editable" for an installation that uses the sources in place."""
        chosen = os.environ.get("UNPOOL_LIBRARIES")
        tag = ""
        if chosen and version != "editable":
            tag = add_kernels(self, Path(self.root, chosen), build_data)
        self.folder = Path(tempfile.mkdtemp())
        add_operators(self, version, tag, build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what is in the wheel now."""
        shutil.rmtree(self.folder)


def add_kernels(hook: Any, folder: Path, build_data: dict[str, Any]) -> str:
    """Add the libraries of a folder to a wheel; the tag of their platform."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        problem = find_problem(Path(hook.root), folder, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"its manifest cannot be read: {error!r}"
    if problem:
        hook.app.abort(f"UNPOOL_LIBRARIES={folder}: {problem}. Run python -m unpool.build --output {folder}")
    names = ["manifest.json", *(entry["file"] for entry in manifest["libraries"].values())]
    build_data["force_include"] |= {str(folder / name): f"unpool/libraries/{name}" for name in names}
    extras = hook.metadata.core.optional_dependencies
    for extra in FOR_USERS:
        extras[extra] = [requirement for requirement in extras[extra] if requirement not in extras["jit"]]
    platform_tag: str = manifest["platform"]
    build_data |= {"pure_python": False, "tag": f"py3-none-{platform_tag}"}
    return platform_tag


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


def add_operators(hook: Any, version: str, tag: str, build_data: dict[str, Any]) -> None:
    """Compile the library of operators for the platform of a tag, by default this machine, and add it."""
    targets, library = (runpy.run_path(str(Path(hook.root, path))) for path in (TARGETS, OPERATORS / "library.py"))
    target = targets["host_target"]()
    if tag:
        target = next(each for each in targets["TARGETS"].values() if each.tag == tag)
    if target is None:
        hook.app.display_warning(
            f"{platform.system()} on {platform.machine()}: unpool.onnxruntime has no library for it, and does not work."
        )
        return
    name = library["NAMES"][target.system]
    path = library["FOLDER"] / name if version == "editable" else hook.folder / name
    try:
        library["compile_library"](target.name, target.system, path)
    except FileNotFoundError:
        hook.app.abort("the package ziglang compiles the library for onnxruntime, and is missing: pip install ziglang")
    except subprocess.CalledProcessError as error:
        hook.app.abort(f"the library for onnxruntime does not compile, see above: {error}")
    if version == "editable":
        return
    build_data["force_include"][str(path)] = f"unpool/onnxruntime/lib/{name}"
    if not tag:
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{here}"}
