"""Names of files: their suffix, what they are called without it, and the order in which people list them."""

import re
from pathlib import Path

DOUBLE = ".nii.gz"


def suffix_of(path: Path) -> str:
    """The suffix in small letters; that of a compressed NIfTI file is `.nii.gz`.

    >>> suffix_of(Path("a.b.TIF")), suffix_of(Path("ct.nii.gz")), suffix_of(Path("a"))
    ('.tif', '.nii.gz', '')
    """
    return DOUBLE if path.name.lower().endswith(DOUBLE) else path.suffix.lower()


def stem_of(path: Path) -> str:
    """The name without its suffix.

    >>> stem_of(Path("ct.nii.gz")), stem_of(Path("in/a.b.png"))
    ('ct', 'a.b')
    """
    return path.name[: -len(DOUBLE)] if suffix_of(path) == DOUBLE else path.stem


def natural(path: Path) -> tuple[object, ...]:
    """A key for sorting: numbers in a name count as numbers.

    >>> [path.name for path in sorted(map(Path, ["s10.png", "s9.png", "S1.png", "a.png"]), key=natural)]
    ['a.png', 'S1.png', 's9.png', 's10.png']
    """
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return *(parts[at] if at % 2 == 0 else int(parts[at]) for at in range(len(parts))), path.name
