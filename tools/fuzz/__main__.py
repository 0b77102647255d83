"""A campaign from the command line.

python -m tools.fuzz --minutes 30 --seed 1 --folder findings
python -m tools.fuzz --again findings/1-77.onnx --action run
"""

import argparse
import time
from pathlib import Path

from tools.fuzz.watch import again, watch


def main() -> int:
    """Run a campaign, or one file again; the exit status is 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("findings"))
    parser.add_argument("--again", type=Path, help="a file that was found")
    parser.add_argument("--action", default="run")
    given = parser.parse_args()
    if given.again:
        why, words = again(given.action, given.again)
        print(words, why or "nothing wrong")
        return int(bool(why))
    given.folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    report = watch(given.folder, given.seed, seconds=60 * given.minutes)
    for name, count in sorted(report.counts.items()):
        print(f"{count:8} {name}")
    seconds = time.monotonic() - begun
    print(f"{report.tried} files in {seconds:.0f} s, findings in {given.folder}: {report.findings or 'none'}")
    return int(bool(report.findings))


if __name__ == "__main__":
    raise SystemExit(main())
