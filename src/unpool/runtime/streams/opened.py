"""What is wanted of a file that is opened, and what is said where a package for it is missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Wanted:
    """How a file is to be read.

    Attributes:
        rank: of the tensor: batch, channels and the spatial axes.
        layout: "NCHW" or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: of the tensor; None where any number will do.
    """

    rank: int = 4
    layout: str = "NCHW"
    level: int = 0
    channels: int | None = None


def require(what: str, packages: Sequence[str]) -> None:
    """Refuse what needs packages that are not installed.

    Raises:
        ModuleNotFoundError: one of them is not there.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{what}: expected the packages {', '.join(packages)}, {', '.join(missing)} is not installed. "
            "Run: pip install 'unpool[formats]'",
            name=missing[0],
        )
