"""The library of custom operators as a file: its names, and how zig compiles the C sources beside this file.

The build backend runs this file alone, without unpool: it imports the standard library only.
"""

import hashlib
import os
import platform
import sys
from pathlib import Path

SOURCES = Path(__file__).parent

FOLDER = SOURCES / "lib"
"""The folder of the library; it is no package, for `pkgutil` would take the library for a module."""

NAMES = {"Linux": "libunpool.so", "Darwin": "libunpool.dylib", "Windows": "unpool.dll"}
"""File names of the library, by `platform.system()`."""

PATH = FOLDER / NAMES.get(platform.system(), "libunpool.so")
"""The library of this installation."""

_OPTIONS = {
    "Linux": ("-Wl,-z,defs", "-Wl,-Bsymbolic"),
    "Darwin": (f"-Wl,-install_name,@rpath/{NAMES['Darwin']}",),  # in place of the folder of this build
    "Windows": ("-Wl,-Brepro",),  # a digest in place of the time
}
_MACOS = "11.0"  # the oldest that the library runs on, as the tags of wheels say


def source_digest() -> str:
    """The SHA-256 of the C sources."""
    digest = hashlib.sha256()
    for name in sorted(each for each in os.listdir(SOURCES) if each.endswith((".c", ".h"))):
        content = (SOURCES / name).read_bytes().replace(b"\r\n", b"\n")  # git may write the ends of lines of Windows
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def compile_library(target: str, system: str, path: Path) -> None:
    """Write the library for a target of zig, whose system is one of `NAMES`, to a file.

    The package `ziglang` compiles, or else the program `zig`.

    Raises:
        subprocess.CalledProcessError: a source has an error, which zig has printed.
        FileNotFoundError: neither is installed.
    """
    import subprocess
    import tempfile
    from importlib.util import find_spec

    zig = [sys.executable, "-m", "ziglang"] if find_spec("ziglang") else ["zig"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, path.name)
        subprocess.run(
            [
                *zig, "cc", "-target", f"{target}.{_MACOS}" if system == "Darwin" else target,
                "-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-shared", "-s",
                f'-DUNPOOL_SOURCES="{source_digest()}"', *_OPTIONS[system], "-o", str(output),
                *[source.name for source in sorted(SOURCES.glob("*.c"))],
            ],
            check=True, cwd=SOURCES, env=os.environ | _cache(folder),
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(output.read_bytes())
        part.replace(path)  # a process may have loaded the earlier one


def _cache(folder: str) -> dict[str, str]:
    """The environment that gives zig a cache, where it has no home folder for it."""
    home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "HOME", "")
    return {} if os.access(home, os.W_OK) else {"ZIG_GLOBAL_CACHE_DIR": str(Path(folder, "cache"))}
