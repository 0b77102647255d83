"""The control groups of this process, by which a system limits what a container may take (Linux; elsewhere none)."""

from collections.abc import Iterator
from pathlib import Path


def groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Folders that may hold the limits of one controller, from the outermost that can be seen to the process's own.

    Args:
        controller: such as "cpu" or "memory"; versions 1 and 2 are looked through.
        root: the folder with /proc and /sys.
    """
    for line in text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in (controllers, controller) if controllers else ("", "unified"):
            for depth in range(len(names) + 1):
                yield root.joinpath("sys/fs/cgroup", mount, *names[:depth])


def text(path: Path) -> str:
    """What a file of the system says; nothing where it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
