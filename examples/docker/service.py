"""A web service: a picture in, the mask of its classes out.

    POST /mask      a picture of one of FORMATS -> a PNG with the number of the class of every pixel
    GET  /health    200 once the first run is done
    GET  /metrics   counters and times for Prometheus

A request that is too large, that cannot be read, that comes while too many wait, or that takes too long is refused with
413, 400, 503 or 504. Environment: MODEL, RUNTIME, THREADS, MAX_BYTES, MAX_PIXELS, MAX_RUNNING, MAX_WAITING and
MAX_SECONDS.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

ort = import_module(os.environ.get("RUNTIME", "unpool"))  # or onnxruntime, to compare them


def setting(name: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(name, default))


MODEL = os.environ.get("MODEL") or os.path.join(os.path.dirname(find_spec("unpool").origin), "data", "coins.onnx")
REFUSALS = (ort.UnpoolError,) if hasattr(ort, "UnpoolError") else (RuntimeError, ValueError)
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP")  # each that Pillow reads is a decoder that strangers can reach
MAX_BYTES, MAX_PIXELS = setting("MAX_BYTES", 16 << 20), setting("MAX_PIXELS", 20_000_000)
MAX_RUNNING, MAX_WAITING, MAX_SECONDS = (
    setting("MAX_RUNNING", 2),
    setting("MAX_WAITING", 64),
    setting("MAX_SECONDS", 30),
)

registry = CollectorRegistry()
requests = Counter("mask_requests", "Requests by status", ["status"], registry=registry)
seconds = Histogram("mask_seconds", "Seconds of a request that was answered", registry=registry)
waiting = Gauge("mask_waiting", "Requests that wait or run", registry=registry)


class Segmenter:
    """A session, and the threads that run it."""

    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = setting("THREADS", 1)
        self.session = ort.InferenceSession(MODEL, options)
        (self.input,) = self.session.get_inputs()
        self.mode = "L" if self.input.shape[1] == 1 else "RGB"
        self.threads = ThreadPoolExecutor(MAX_RUNNING, thread_name_prefix="mask")
        self.count = 0  # of requests that wait or run

    def decode(self, content: bytes) -> np.ndarray:
        """The picture as the model takes it; nothing is decoded before its size is known."""
        picture = Image.open(BytesIO(content), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            raise HTTPException(413, f"expected up to {MAX_PIXELS} pixels, got {picture.width} x {picture.height}")
        pixels = np.asarray(picture.convert(self.mode), np.float32)
        return pixels[None, None] if self.mode == "L" else pixels.transpose(2, 0, 1)[None].copy()

    def run(self, content: bytes, options: Any) -> bytes:
        """The mask of a picture, as a PNG."""
        try:
            x = self.decode(content)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise HTTPException(400, f"expected a picture, got something else: {error}") from error
        try:
            logits = self.session.run(None, {self.input.name: x}, options)[0]
        except REFUSALS as error:
            raise HTTPException(400, str(error)) from error
        answer = BytesIO()
        Image.fromarray(logits[0].argmax(axis=0).astype(np.uint8)).save(answer, "png", compress_level=1)
        return answer.getvalue()

    async def answer(self, content: bytes) -> bytes:
        """As `run`, in a thread, for MAX_SECONDS at most."""
        if self.count >= MAX_RUNNING + MAX_WAITING:
            raise HTTPException(503, "too many requests wait", headers={"Retry-After": "1"})
        self.count += 1
        waiting.set(self.count)
        options = ort.RunOptions()
        future = self.threads.submit(self.run, content, options)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._forget))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), MAX_SECONDS)
        except TimeoutError as error:
            options.terminate = True
            raise HTTPException(504, f"the run took more than {MAX_SECONDS} s") from error

    def _forget(self) -> None:
        self.count -= 1
        waiting.set(self.count)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the model and run it once, before the first request comes."""
    app.state.segmenter = segmenter = Segmenter()
    blank = BytesIO()
    Image.new(segmenter.mode, (64, 64)).save(blank, "png")
    await asyncio.to_thread(segmenter.run, blank.getvalue(), ort.RunOptions())  # may take long: kernels may compile
    yield
    segmenter.threads.shutdown(cancel_futures=True)


app = FastAPI(title="Masks", lifespan=lifespan)


@app.post("/mask")
async def mask(request: Request) -> Response:
    """The mask of the picture in the body."""
    start = time.perf_counter()
    try:
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_BYTES:
                raise HTTPException(413, f"expected up to {MAX_BYTES} bytes, got more")
        answer = await request.app.state.segmenter.answer(bytes(content))
    except HTTPException as error:
        requests.labels(error.status_code).inc()
        raise
    requests.labels(200).inc()
    seconds.observe(time.perf_counter() - start)
    return Response(answer, media_type="image/png")


@app.get("/health")
async def health() -> dict[str, str]:
    """The service is up: it starts after the first run."""
    return {"model": os.path.basename(MODEL), ort.__name__: ort.__version__}


@app.get("/metrics")
async def metrics() -> Response:
    """Counters for Prometheus."""
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")
