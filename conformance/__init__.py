"""Cases × runtimes: which runtime reads MaxPool, MaxUnpool and ConvTranspose as the contract does.

`python -m conformance` runs every runtime, writes conformance/results.json and renders docs/differences/ from it.
The cases and the contract's answers are those of the tests (`tests.cases`, `tests.oracle`): start it where the
folder tests/ lies.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
