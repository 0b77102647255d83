"""The service of examples/docker: masks, limits, hostile uploads, and a timeout that ends the run."""

import importlib.util
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

SOURCE = Path(__file__).parents[2] / "examples" / "docker" / "service.py"


@pytest.fixture
def service(monkeypatch):
    """The module, with small limits."""
    for name, value in {"MAX_BYTES": "100000", "MAX_PIXELS": "40000", "MAX_SECONDS": "20"}.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("service", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def png(mode="L", size=(64, 48), level=128, kind="png"):
    content = BytesIO()
    Image.new(mode, size, level).save(content, kind)
    return content.getvalue()


def test_a_picture_has_a_mask(service):
    """Of its own size, with the numbers of classes; colours are turned into what the model takes."""
    with TestClient(service.app) as client:
        for content in (png(), png("RGB", level=(10, 200, 30)), png("1", level=1)):
            answer = client.post("/mask", content=content)
            assert answer.status_code == 200
            mask = np.asarray(Image.open(BytesIO(answer.content)))
            assert mask.shape == (48, 64)
            assert mask.max() <= 1
        assert client.get("/health").json()["model"] == "coins.onnx"
        assert 'mask_requests_total{status="200"} 3.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"not a picture", 400),
        (png()[:60], 400),
        (png()[:-20] + b"\0" * 20, 400),
        (png(size=(400, 400)), 413),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 200_000, 413),
        (png(size=(1, 1)), 400),
        (png(kind="ppm"), 400),
    ],
    ids=["nothing", "text", "half", "damaged", "many pixels", "many bytes", "one pixel", "another format"],
)
def test_hostile_uploads(service, content, status):
    """Each gets an answer, and the next request is answered as before."""
    with TestClient(service.app) as client:
        assert client.post("/mask", content=content).status_code == status
        assert client.post("/mask", content=png()).status_code == 200


def test_too_many_requests_are_refused(service):
    """With 503, before anything is decoded."""
    with TestClient(service.app) as client:
        service.MAX_WAITING = -service.MAX_RUNNING
        answer = client.post("/mask", content=b"not a picture")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"


def test_a_run_that_takes_too_long_ends(service, monkeypatch):
    """With 504, and its RunOptions terminate the run."""
    terminated = []

    def run(self, content, options):
        while not options.terminate:
            pass
        terminated.append(True)

    with TestClient(service.app) as client:
        monkeypatch.setattr(service.Segmenter, "run", run)
        service.MAX_SECONDS = 0.2
        assert client.post("/mask", content=png()).status_code == 504
    assert terminated == [True]
