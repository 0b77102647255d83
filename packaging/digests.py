"""Prints the digests of all files of a folder as one line of JSON, or ends with an error if they are not as given.

python packaging/digests.py dist                 prints {"unpool-1.0.0.tar.gz": "…", …}
python packaging/digests.py dist '{"unpool-…'    compares: no other content, no file more and none less
"""

import hashlib
import json
import sys
from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file, by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    folder, *expected = sys.argv[1:]
    found = digests(Path(folder))
    if not expected:
        sys.stdout.write(f"{json.dumps(found)}\n")
    else:
        built = json.loads(expected[0])
        changed = sorted(name for name in built.keys() | found.keys() if built.get(name) != found.get(name))
        sys.exit(f"{folder}: {', '.join(changed)} differ from what was built. Do not publish them." if changed else 0)
