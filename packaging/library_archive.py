"""Writes an archive of the library for onnxruntime, for programs without Python, from the wheel of a platform.

    PYTHONPATH=. python packaging/library_archive.py dist/unpool-1.0.0-py3-none-win_amd64.whl archives

It has the files of the wheel, byte for byte: the library and its kernels in lib/, the header in include/, the licence;
and packaging/library/README.md. What exports other names, or needs a newer glibc than the wheel says, ends it.
"""

import gzip
import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.binaries import exports_of, glibc_versions, machine_of, needs_of_elf

README = Path(__file__).parent / "library" / "README.md"
ENTRY = "RegisterCustomOps"
OWN = re.compile(r"unpool_\w+")  # names for the Python package, and kernels
OF_LINKERS = {"_mh_dylib_header", "__dso_handle"}  # names that every library of macOS has
OLDEST_GLIBC = (2, 17)
_TIME = (1980, 1, 1, 0, 0, 0)  # that of all files, so that an archive is the same when it is written again


def members(wheel: Path) -> dict[str, bytes]:
    """The files of an archive, by their names in it."""
    found = {"README.md": README.read_bytes()}
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            folder, _, file = name.rpartition("/")
            if folder in ("unpool/onnxruntime/lib", "unpool/libraries") and not file.endswith(".json"):
                found[f"lib/{file}"] = content.read(name)
            elif name == "unpool/onnxruntime/unpool.h":
                found["include/unpool.h"] = content.read(name)
            elif file == "LICENSE":
                found["LICENSE"] = content.read(name)
    return found


def problem(found: dict[str, bytes]) -> str:
    """Why these files are no archive; empty if they are one."""
    libraries = {name: content for name, content in found.items() if name.startswith("lib/")}
    operators = [name for name in libraries if ENTRY in exports_of(name, libraries[name])]
    if len(operators) != 1 or len(libraries) < 2:
        return f"a library of operators and its kernels are wanted, got {', '.join(sorted(libraries)) or 'none'}"
    machines = {(Path(name).suffix, machine_of(content, Path(name).suffix)) for name, content in libraries.items()}
    if len(machines) != 1:
        return f"libraries of several platforms: {', '.join(sorted(libraries))}"
    if missing := {"README.md", "LICENSE", "include/unpool.h"} - found.keys():
        return f"{', '.join(sorted(missing))} is missing"
    for name, content in libraries.items():
        others = {each for each in exports_of(name, content) - {ENTRY} - OF_LINKERS if not OWN.fullmatch(each)}
        if others:
            return f"{name} exports {', '.join(sorted(others))}"
        if name.endswith(".so"):
            needs = {each for each in needs_of_elf(content) if not each.startswith("ld-linux-")}
            if needs - {"libc.so.6", "libm.so.6"}:
                return f"{name} needs {', '.join(sorted(needs))}"
            newest = max(glibc_versions(content), default=OLDEST_GLIBC)
            if newest > OLDEST_GLIBC:
                return f"{name} needs glibc {'.'.join(map(str, newest))}"
    return ""


def write_archive(wheel: Path, folder: Path) -> Path:
    """Write the archive of a wheel to a folder: a zip for Windows, otherwise a tar.gz."""
    _, version, _, _, platform = wheel.stem.split("-")
    found, name = members(wheel), f"libunpool-{version}-{platform}"
    if fault := problem(found):
        sys.exit(f"{wheel.name}: {fault}.")
    folder.mkdir(parents=True, exist_ok=True)
    if platform.startswith("win"):
        path = folder / f"{name}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, content in sorted(found.items()):
                archive.writestr(zipfile.ZipInfo(f"{name}/{file}", _TIME), content, zipfile.ZIP_DEFLATED)
        return path
    path, packed = folder / f"{name}.tar.gz", io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file, content in sorted(found.items()):
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size, info.mode = len(content), 0o755 if file.startswith("lib/") else 0o644
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return path


if __name__ == "__main__":
    archive = write_archive(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB\n")
