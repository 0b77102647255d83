"""Many runs of one session of onnxruntime with the library, over changing shapes: memory does not grow.

    python -m tools.campaigns.onnxruntime_memory --count 100000 --seed 1

The model has all three operators. A run takes one of SHAPES shapes, more than a node keeps plans for, or the one of the
run before; some inputs do not fit, and are refused. Other sessions come and go. After WARM of the runs all caches are
full: from there on the resident memory may grow by MAX_GROWTH. With --without-python, no planner in Python is attached.
"""

import argparse
import sys

import numpy as np
import onnx
import onnxruntime

import unpool.onnxruntime
from tests.support.library_sessions import register_alone
from unpool.memory import rss, trim_heap

SHAPES = 400
SAMPLES = 20  # of the resident memory
WARM = 0.3
MAX_GROWTH = 8 << 20  # bytes; of the allocators, which do not return all that was freed
REPEATED = 0.7  # runs with the shape of the one before
REFUSED = 0.01
NEW_SESSION = 0.002

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
test (float[n, channels, height, width] x) => (float[n, 3, h, w] y) {
    a, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)
    s = Shape (x)
    c = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (b, i, s)
    y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (c, w1) }"""


def new_session(*, is_alone=False):
    """A session of the model, whose operators are unpool's; alone, without a planner in Python."""
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).standard_normal((4, 3, 4, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w1"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    (register_alone if is_alone else unpool.onnxruntime.register)(options, opset=17)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def campaign(count, seed, *, is_alone=False):
    """Resident bytes after each of SAMPLES equal parts of so many runs, and the number of refused inputs."""
    rng = np.random.default_rng(seed)
    shapes = [(int(n), 4, int(h), int(w)) for n, h, w in rng.integers((1, 2, 2), (4, 40, 40), (SHAPES, 3))]
    session, shape, refused, samples = new_session(is_alone=is_alone), shapes[0], 0, []
    for number in range(1, count + 1):
        if rng.random() > REPEATED:
            shape = shapes[rng.integers(SHAPES)]
        if rng.random() < NEW_SESSION:
            session = new_session(is_alone=is_alone)
        if rng.random() < REFUSED:
            try:
                session.run(None, {"x": np.zeros((1, 5, 6, 6), np.float32)})
            except Exception:
                refused += 1
        x = rng.standard_normal(shape, np.float32)
        (y,) = session.run(None, {"x": x})
        assert y.shape == (shape[0], 3, 2 * shape[2], 2 * shape[3])
        if number * SAMPLES // count > len(samples):
            trim_heap()
            samples.append(rss())
    return samples, refused


def growth(samples):
    """Bytes by which memory grew once all caches were full."""
    return samples[-1] - max(samples[: int(WARM * len(samples)) + 1])


def main():
    """Print the resident memory; exit with 1 if it has grown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-python", action="store_true", help="plan by kernels alone")
    given = parser.parse_args()
    samples, refused = campaign(given.count, given.seed, is_alone=given.without_python)
    megabytes = ", ".join(f"{each / 2**20:.1f}" for each in samples)
    sys.stdout.write(f"{given.count} runs, {refused} inputs refused; resident MiB: {megabytes}\n")
    sys.stdout.write(f"growth after the first {WARM:.0%}: {growth(samples) / 2**20:.1f} MiB\n")
    sys.exit(growth(samples) > MAX_GROWTH)


if __name__ == "__main__":
    main()
