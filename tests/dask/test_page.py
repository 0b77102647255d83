"""docs/clusters.md: its commands run, its files are what they should be, and its simulation keeps to its model."""

import re
import runpy
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import tifffile
import yaml
import zarr
from distributed import LocalCluster
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from typer.testing import CliRunner

import unpool
from tests.dask.cases import NO_DASHBOARD
from tests.docs.blocks import blocks
from tests.support import models
from unpool.cli.app import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "clusters"
SHELL = [block for block in blocks("docs/clusters.md") if block.language == "sh"]
LINES = [line for block in SHELL for line in block.code.splitlines()]
RUN_HERE = ("dask scheduler", "dask worker", "unpool run model.onnx", "python slurm.py", "python examples/clusters/")
"""How the commands begin that tests of this file run."""


def command(start):
    """The only command of the page that starts like that, as words."""
    (line,) = [line for line in LINES if line.startswith(start)]
    return line.split()


def test_every_command_is_run_or_marked():
    """Commands that are not run here stand in a block that says so."""
    lines = [line for block in SHELL if not block.reason for line in block.code.splitlines()]
    assert [line for line in lines if not line.startswith(RUN_HERE)] == []


@pytest.fixture
def here(here):
    """A folder with the files that the page names, as the current one; sizes are small."""
    text = """n (float[1, 1, h, w] x) => (float[1, 2, a, b] y) {
        pooled = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
        negative = Neg (pooled)
        y = Concat <axis = 1> (negative, pooled)
    }"""
    (here / "model.onnx").write_bytes(models.model(text).SerializeToString())
    image = np.random.default_rng(0).random((1, 1, 60, 80), np.float32)
    np.save("image.npy", image)
    zarr.create_array("image.zarr", data=image)
    Path("pod").mkdir()
    for name in ("model.onnx", "image.zarr"):
        Path("pod", name).symlink_to(here / name)
    pooled = unpool.max_pool(image, kernel_shape=3, strides=2)
    return np.concatenate([-pooled, pooled], 1)


def end(process):
    """Let a process end, and see to it that it does."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_commands_by_hand(here):
    """The scheduler, the worker and the runs, as the page says them, on another port and with smaller tiles.

    And then what runs inside of a pod, with this folder in the place of its volume.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    servers = [[word.replace("8786", port) for word in command(start)] for start in ("dask scheduler", "dask worker")]
    runs = [line.replace("8786", port).split() for line in LINES if line.startswith("unpool run model.onnx")]
    in_a_pod = " ".join(command("kubectl exec")).partition(" -- ")[2].replace("8786", port).replace("/images/", "pod/")
    with ExitStack() as stack:
        for words in servers:
            more = ["--no-dashboard", "--dashboard-address", ":0"] if words[1] == "scheduler" else []
            process = subprocess.Popen([sys.executable, "-m", *words, *more], stderr=subprocess.DEVNULL)
            stack.callback(end, process)
        for words in (*runs, in_a_pod.split()):
            small = ["32x32" if re.fullmatch(r"\d+x\d+", word) else word for word in words[1:]]
            done = CliRunner().invoke(app, small)
            assert done.exit_code == 0, done.output
    for folder in (".", "pod"):
        assert np.array_equal(zarr.open_array(f"{folder}/logits.zarr", mode="r")[...], here)
    assert np.array_equal(tifffile.imread("mask.tif"), here.argmax(1)[0])


def test_the_script_for_slurm(here, monkeypatch):
    """slurm.py as it is, with threads of this process in place of the jobs."""

    class Jobs(LocalCluster):
        """Takes the words of SLURMCluster."""

        def __init__(self, *, queue, account, cores, memory, walltime, job_script_prologue, worker_extra_args):
            assert (cores, walltime, worker_extra_args[:2]) == (16, "01:00:00", ["--lifetime", "55m"])
            super().__init__(n_workers=0, threads_per_worker=1, processes=False, **NO_DASHBOARD)

        def scale(self, jobs):
            super().scale(jobs)

    monkeypatch.setitem(sys.modules, "dask_jobqueue", type(sys)("dask_jobqueue"))
    sys.modules["dask_jobqueue"].SLURMCluster = Jobs
    words = command("python slurm.py")
    runpy.run_path(str(EXAMPLES / words[1]))["main"](*words[2:-1], "1")
    assert np.array_equal(zarr.open_array("logits.zarr", mode="r")[...], here)


def test_the_resource_for_kubernetes():
    """It is a DaskCluster whose selector, ports and volumes fit each other, and pods run what Dask's commands take."""
    found = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    worker, scheduler = (found["spec"][part]["spec"] for part in ("worker", "scheduler"))
    service = found["spec"]["scheduler"]["service"]
    assert (found["apiVersion"], found["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    assert service["selector"]["dask.org/cluster-name"] == found["metadata"]["name"] == "unpool"
    ports = {port["name"]: port["containerPort"] for port in scheduler["containers"][0]["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    for pod in (worker, scheduler):
        assert [pod["containers"][0]["volumeMounts"][0]["name"]] == [volume["name"] for volume in pod["volumes"]]
        _, role, *words = pod["containers"][0]["args"]
        assert {"worker": dask_worker, "scheduler": dask_scheduler}[role].make_context(role, words)


def test_the_simulation_keeps_to_its_model(tmp_path, capsys, monkeypatch):
    """One worker takes what the model says, many are never faster than any of its limits; the command draws."""
    words = command("python examples/clusters/scaling.py")
    small = {"100000": "9000", "1024": "512", "scaling.png": str(tmp_path / "scaling.png")}
    monkeypatch.setattr(sys, "argv", [small.get(word, word) for word in words[1:]])
    scaling = runpy.run_path(str(ROOT / words[1]), run_name="scaling")
    run = scaling["Run"](size=9000, tile=512)
    alone = scaling["limits"](run, 1)["workers"]
    scaling["main"]()
    assert abs(scaling["simulated"](run, 1) / alone - 1) < 0.1
    for workers in (10, 1000):
        limits = scaling["limits"](run, workers)
        assert scaling["simulated"](run, workers) > max(limits["storage"], limits["scheduler"], alone / workers * 0.9)
    assert run.overhead == pytest.approx((600 / 512) ** 2 - 1)
    assert "324 tiles" in capsys.readouterr().out
    assert (tmp_path / "scaling.png").read_bytes()[:4] == b"\x89PNG"
