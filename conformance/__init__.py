"""Cases × runtimes: which runtime reads MaxPool, MaxUnpool and ConvTranspose as the contract does.

`python -m conformance` asks every runtime, writes conformance/results.json and renders docs/differences.md from it.
The cases and the contract's answers are those of the tests (`cases`, `oracle`, `runners`), which lie in tests/.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if str(ROOT / "tests") not in sys.path:
    sys.path.insert(1, str(ROOT / "tests"))
