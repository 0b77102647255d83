"""Names of values -> names that any file system and any archive takes: ONNX allows every text."""

import re
import unicodedata
from collections.abc import Iterable

LONGEST = 100  # bytes; leaves room for a suffix in the 255 that file systems take
DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$"}
NUMBERED_DEVICES = re.compile(r"(com|lpt)[0-9¹²³]")


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """A name for each name: without separators, unique also where case does not count, and the same where it may stay.

    >>> safe_names(["y", "/head/Conv:0", "../../evil", "Y", "con", ""])
    {'y': 'y', '/head/Conv:0': '_head_Conv_0', '../../evil': '_.._evil', 'Y': 'Y_2', 'con': '_con', '': '_'}
    """
    found: dict[str, str] = {}
    given = list(names)
    taken = {_folded(name) for name in given if _safe(name) == name}
    kept: set[str] = set()
    for name in given:
        safe = _safe(name)
        may_stay = safe == name and _folded(name) not in kept
        found[name] = safe if may_stay else _free(safe, taken | kept)
        kept.add(_folded(found[name]))
    return found


def _safe(name: str) -> str:
    text = re.sub(r"[^\w.+\- ]", "_", unicodedata.normalize("NFC", name))
    text = text.encode()[:LONGEST].decode(errors="ignore")
    text = text.lstrip(". ").rstrip(". ") or "_"
    stem = text.partition(".")[0].strip().casefold()
    return f"_{text}" if stem in DEVICES or NUMBERED_DEVICES.fullmatch(stem) else text


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while _folded(free) in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())
