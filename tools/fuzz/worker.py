"""One process of a campaign: draws files and tries them; the file in hand lies where the watchdog finds it.

python -m tools.fuzz.worker FOLDER SEED CASES [ACTION FILE]
"""

import faulthandler
import json
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tools.fuzz.actions import ACTIONS, attempt
from tools.fuzz.damage import files
from tools.fuzz.graphs import models

MEMORY = 6 * 2**30
"""Bytes of address space of a worker, its libraries included."""

SETTINGS = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
NAMES = ("run", "run", "run", "run a file", *ACTIONS)


def campaign(folder: Path, start: int, cases: int) -> None:
    """Try so many files; a file whose attempt raises what is not of unpool is kept with its traceback."""
    counts: Counter[str] = Counter()
    drawn = iter(range(10**9))

    @seed(start)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(NAMES), files(models()))
    def each(action: str, content: bytes) -> None:
        number = next(drawn)
        (folder / "case.part").write_bytes(content)
        (folder / "case.part").replace(folder / "case.onnx")
        put(folder / "case.json", {"action": action, "number": number, "began": time.time()})
        try:
            counts[f"{action}: {attempt(action, content)}"] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            keep(folder, start, number, action, content)
            counts[f"{action}: {type(error).__name__}, a finding"] += 1
        put(folder / "counts.json", counts)

    each()


def put(path: Path, content: object) -> None:
    """Write a file that is never seen half written."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


def keep(folder: Path, start: int, number: int, action: str, content: bytes) -> None:
    """Write down a finding."""
    stem = f"{start}-{number}"
    (folder / f"{stem}.onnx").write_bytes(content)
    (folder / f"{stem}.txt").write_text(f"action: {action}\n{traceback.format_exc()}")


def main() -> None:
    """Limit the memory, then run a campaign, or one file again."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder, start, cases = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if len(sys.argv) > 4:
        begun = time.process_time()
        done = attempt(sys.argv[4], Path(sys.argv[5]).read_bytes())
        print(done, time.process_time() - begun)
    else:
        campaign(folder, start, cases)


if __name__ == "__main__":
    main()
