"""The service of examples/docker: masks, limits, hostile uploads, and a timeout that ends the run."""

import importlib.util
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
import tifffile
from fastapi.testclient import TestClient
from onnx import helper
from PIL import Image

import unpool
from tests.support.command import invoke
from unpool import memory

FOLDER = Path(__file__).parents[2] / "examples" / "docker"
LIMITS = {"MAX_BYTES": "100000", "MAX_PIXELS": "40000", "MAX_SECONDS": "20", "MAX_RUNNING": "1"}


@pytest.fixture
def load(monkeypatch):
    """A function that loads the module, with small limits and other settings."""
    monkeypatch.syspath_prepend(FOLDER)

    def load(**settings):
        for name, value in (LIMITS | settings).items():
            monkeypatch.setenv(name, value)
        spec = importlib.util.spec_from_file_location("service", FOLDER / "service.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def service(load):
    """The module, with small limits."""
    return load()


def png(mode="L", size=(64, 48), level=128, kind="png", **options):
    content = BytesIO()
    Image.new(mode, size, level).save(content, kind, **options)
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


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def claim(width, height):
    """A PNG that claims a size, and has almost nothing of it."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", b"x")


def scans(width, height, size):
    """A progressive JPEG of some bytes, whose last scan comes again and again."""
    content = png(size=(width, height), kind="jpeg", progressive=True)[:-2]
    last = content[content.rindex(b"\xff\xda") :]
    return content + last * ((size - len(content)) // len(last)) + b"\xff\xd9"


def odd_tiff():
    """A TIFF whose offset of its pixels is a fraction."""
    content = bytearray(png(kind="tiff"))
    for at in range(8, len(content) - 12, 2):
        if content[at : at + 4] == struct.pack("<HH", 273, 4):
            content[at + 2 : at + 4] = struct.pack("<H", 11)
    return bytes(content)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"not a picture", 400),
        (png()[:60], 400),
        (png()[:-20] + b"\0" * 20, 400),
        (png(size=(400, 400)), 413),
        (claim(30_000, 30_000), 413),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 200_000, 413),
        (png(size=(1, 1)), 400),
        (png(kind="ppm"), 400),
        (odd_tiff(), 400),
    ],
    ids=["nothing", "text", "half", "damaged", "many pixels", "claim", "many bytes", "one pixel", "another format",
         "odd tiff"],
)  # fmt: skip
def test_hostile_uploads(service, content, status):
    """Each gets an answer, which names no address, file or node; it is counted, and the next is answered as before."""
    with TestClient(service.app) as client:
        answer = client.post("/mask", content=content)
        assert answer.status_code == status
        assert not any(word in answer.text for word in ("0x", "object at", "node_", "/", "Error"))
        assert client.post("/mask", content=png()).status_code == 200
        assert counts(client) == {str(status): 1, "200": 1}


def counts(client):
    """The number of answers by status, as metrics have it."""
    lines = client.get("/metrics").text.splitlines()
    return {line.split('"')[1]: float(line.split()[1]) for line in lines if line.startswith("mask_requests_total")}


@pytest.mark.slow
def test_a_picture_that_takes_too_long_is_refused(load):
    """Its decoder is killed, and another one decodes the next picture."""
    service = load(MAX_DECODE_SECONDS="1", MAX_BYTES=str(8 << 20))
    with TestClient(service.app) as client:
        answer = client.post("/mask", content=scans(200, 200, 8 << 20))
        assert (answer.status_code, "within 1 s" in answer.text) == (400, True)
        assert client.post("/mask", content=png()).status_code == 200


@pytest.mark.slow
def test_a_decoder_that_dies_is_replaced(service):
    """Whatever kills it, its picture is refused, and the next is answered."""
    with TestClient(service.app) as client:
        (decoder,) = client.app.state.segmenter.all_decoders
        decoder._process.kill()
        assert client.post("/mask", content=png()).status_code == 400
        assert client.post("/mask", content=png()).status_code == 200


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["png", "tiff", "webp"])
@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_the_largest_picture(load, mode, kind):
    """As many pixels as are allowed are decoded, whatever they are."""
    picture = BytesIO()
    (Image.new("RGB", (200, 200)).quantize(16) if mode == "P" else Image.new(mode, (200, 200))).save(picture, kind)
    with TestClient(load(MAX_BYTES="200000").app) as client:
        assert client.post("/mask", content=picture.getvalue()).status_code == 200


@pytest.mark.slow
def test_memory_limits_pixels(load):
    """With less memory, smaller pictures are taken; with too little, the service does not start."""
    here = memory.rss()  # other tests ran in this process
    service = load(MAX_PIXELS="12000000", MAX_MEMORY=str(here + (2 << 30)))
    with TestClient(service.app) as client:
        half = client.app.state.segmenter.max_pixels
    service.MAX_MEMORY = here + (4 << 30)
    with TestClient(service.app) as client:
        assert half < client.app.state.segmenter.max_pixels
    service.MAX_MEMORY = 1 << 20
    with pytest.raises(SystemExit, match="MAX_MEMORY"):
        service.Segmenter()


@pytest.mark.slow
def test_memory_of_runs_is_given_back(load):
    """After pictures of many sizes, the service holds little more than before the first."""
    service = load(MAX_PIXELS="160000", MAX_MEMORY=str(8 << 30))
    service.KEPT_BYTES = service.POOL_BYTES = 8 << 20
    with TestClient(service.app) as client:
        memory.trim_heap()
        before = memory.rss()
        for height in range(280, 401, 40):
            assert client.post("/mask", content=png(size=(400, height))).status_code == 200
        assert memory.rss() < before + (32 << 20)


STEPS = {"unpool.input_scale": "1/255", "unpool.input_mean": "0.4", "unpool.input_std": "0.2"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("entries", [{}, STEPS, {"unpool.input_white": "4095"}], ids=["plain", "steps", "white"])
def test_masks_are_those_of_the_command(load, entries, tmp_path, monkeypatch):
    """What the model's metadata say of its input counts as in `unpool run`."""
    monkeypatch.chdir(tmp_path)
    model = onnx.load(str(unpool.__path__[0]) + "/data/coins.onnx")
    helper.set_model_props(model, entries)
    onnx.save(model, "m.onnx")
    pixels = np.random.default_rng(3).integers(0, 4096, (40, 56)).astype(np.uint16)
    tifffile.imwrite("a.tif", np.repeat(np.repeat(pixels[::8, ::8], 8, axis=0), 8, axis=1))
    assert invoke("run", "m.onnx", "-i", "a.tif", "-o", "a.png", "--argmax").exit_code == 0
    with TestClient(load(MODEL="m.onnx").app) as client:
        answer = client.post("/mask", content=Path("a.tif").read_bytes())
    np.testing.assert_array_equal(Image.open(BytesIO(answer.content)), Image.open("a.png"))


@pytest.mark.slow
def test_every_answer_is_counted(service, monkeypatch):
    """Also those of other paths and methods, and faults of the service; not those of health and metrics."""
    with TestClient(service.app, raise_server_exceptions=False) as client:
        assert [client.get(path).status_code for path in ("/none", "/mask", "/health")] == [404, 405, 200]
        monkeypatch.setattr(service.Segmenter, "mask", lambda *_: 1 / 0)
        assert client.post("/mask", content=png()).status_code == 500
        assert counts(client) == {"404": 1, "405": 1, "500": 1}


def call(service, client, receive):
    """The status of a request whose body comes from `receive`, and those that were counted."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mask",
        "headers": [],
        "query_string": b"",
        "http_version": "1.1",
    }
    client.portal.call(service.app, scope, receive, send)
    return sent[0]["status"], counts(client)


@pytest.mark.slow
def test_a_slow_body_is_refused(service):
    """With 408, after which nothing of it is held."""
    service.MAX_SECONDS = 0.1
    messages = [{"type": "http.request", "body": b"some", "more_body": True}]

    async def receive():
        if messages:
            return messages.pop()
        return await service.asyncio.Event().wait()

    with TestClient(service.app) as client:
        assert call(service, client, receive) == (408, {"408": 1})
        assert (client.app.state.segmenter.count, client.app.state.segmenter.held) == (0, 0)


@pytest.mark.slow
def test_a_client_that_leaves_is_counted(service):
    """As 499, and without a traceback."""

    async def receive():
        return {"type": "http.disconnect"}

    with TestClient(service.app) as client:
        assert call(service, client, receive) == (499, {"499": 1})


@pytest.mark.slow
def test_bodies_that_wait_are_bounded(service):
    """Bytes of all bodies together are limited: 503."""
    with TestClient(service.app) as client:
        service.MAX_HELD_BYTES = 10
        assert client.post("/mask", content=png()).status_code == 503


def test_a_small_picture_is_told_the_smallest(service):
    """In the words of the command, not of a node inside the model."""
    with TestClient(service.app) as client:
        assert "the model runs from 8x8 on, got 4x4" in client.post("/mask", content=png(size=(4, 4))).json()["detail"]


def test_too_many_requests_are_refused(service):
    """With 503, before anything is decoded."""
    with TestClient(service.app) as client:
        service.MAX_WAITING = -service.MAX_RUNNING
        answer = client.post("/mask", content=b"not a picture")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"


@pytest.mark.slow
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
