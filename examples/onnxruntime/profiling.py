"""Profile a session: how often each operator ran, and whether its times were recorded."""

import collections
import importlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np
from onnx import parser

ort = importlib.import_module(os.environ.get("RUNTIME", "onnxruntime"))

RUNS = 5
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    profiled (float[1, 1, 16, 16] x) => (float[1, 1, 16, 16] z) {
        r = Sigmoid (x)
        y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        u = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (y, i)
        z = Mul (u, u)
    }"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "trace")
        session = ort.InferenceSession(parser.parse_model(MODEL).SerializeToString(), options)
        for _ in range(RUNS):
            session.run(None, {"x": np.ones((1, 1, 16, 16), np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    runs = sum(event["name"] == "model_run" for event in events)
    times = collections.defaultdict(list)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("kernel_time"):
            times[event["args"]["op_name"]].append(event["dur"])
    print(f"{runs} runs, started at {'some time' if session.get_profiling_start_time_ns() > 0 else 'no time'}")
    for operator, durations in sorted(times.items()):
        print(f"{operator}: {len(durations)} times, {'measured' if min(durations) >= 0 else 'not measured'}")


if __name__ == "__main__":
    main()
