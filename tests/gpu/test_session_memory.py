"""What torch is asked for where the memory of a session is that of a GPU, without one."""

import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import onnxruntime
import pytest
import torch

from tests.support import models
from unpool.runtime.backends.cuda import CudaMemory


@pytest.fixture
def told(monkeypatch):
    """What torch is told, in order, in the place of what it would do on GPU 2."""
    found = []

    class Stream:
        def __init__(self, handle, device):
            self.handle = handle
            found.append(f"stream {handle} of {device}")

        def synchronize(self):
            found.append(f"wait for {self.handle}")

    @contextmanager
    def inside(what):
        found.append(f"into {getattr(what, 'handle', what)}")
        yield
        found.append("out")

    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)
    monkeypatch.setattr(torch.cuda, "device", inside)
    monkeypatch.setattr(torch.cuda, "stream", inside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("current", device))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: found.append(f"wait for {device}"))
    return found


def test_a_step_waits_in_front_and_behind(told):
    """For torch's current stream on the device of the session, which is chosen for as long."""
    with CudaMemory(2).running():
        told.append("step")

    wait = ["stream current of cuda:2", "wait for current"]
    assert told == ["into 2", *wait, "step", *wait, "out"]


def test_a_step_that_fails_is_waited_for_too(told):
    """What it started may still read memory that its caller gives back."""
    with pytest.raises(KeyError), CudaMemory(2).running():
        raise KeyError

    assert told.count("wait for current") == 2


def test_a_run_that_onnxruntime_does_not_end_is_waited_for_on_all_streams(told):
    """Its streams are not known to anybody else."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    with CudaMemory(2).running(options):
        pass

    assert told[-2:] == ["wait for cuda:2", "out"]


def test_a_stream_of_the_caller_is_worked_on_and_not_waited_for(told):
    """Everything is in its order already."""
    with CudaMemory(2, 7340).running():
        told.append("step")

    assert told == ["stream 7340 of cuda:2", "into 2", "into 7340", "step", "out", "out"]


def test_what_onnxruntime_is_told_of_a_tensor():
    """Device, number, type, shape and address; types that NumPy lacks go by their number in ONNX."""
    memory = CudaMemory(2)
    x = torch.zeros(2, 3, dtype=torch.float16)
    b = torch.zeros(3, dtype=torch.bfloat16)

    assert memory.binding(x) == ("cuda", 2, np.float16, (2, 3), x.data_ptr())
    assert memory.binding(b)[2:4] == (16, (3,))
    assert str(memory) == "cuda:2"


def test_a_session_on_the_cpu_imports_nothing_of_it(tmp_path):
    """Neither torch nor Triton is loaded by those who have no use for a GPU."""
    path = tmp_path / "net.onnx"
    path.write_bytes(models.branches().SerializeToString())
    code = "import sys, unpool; unpool.InferenceSession(sys.argv[1]); print({'torch', 'triton'} & {*sys.modules})"

    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
