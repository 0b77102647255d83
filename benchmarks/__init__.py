"""How fast the three operators and whole models are, next to onnxruntime, PyTorch and OpenVINO.

`python -m benchmarks run` measures, `report` writes the pages of speed, their pictures and the README's rows from the
results, `check` holds them against the goals.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
