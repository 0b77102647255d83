"""A web service: a picture in, the mask of its classes out.

    POST /mask      a picture (PNG, JPEG, TIFF, WebP or BMP) -> a PNG with the number of the class of every pixel
    GET  /health    200 once the first run is done
    GET  /metrics   counters and times for Prometheus

The model has one input, N x C x H x W, and its first output is a score for each class. What `unpool export` wrote into
its metadata (scale, mean, std, white) is applied as in `unpool run`.

400 no picture, or none that the model takes   408 the body came too slowly   413 too large   503 too many wait
504 the run took too long. Environment: MODEL, RUNTIME, THREADS, MAX_BYTES, MAX_PIXELS, MAX_MEMORY, MAX_RUNNING,
MAX_WAITING, MAX_SECONDS and MAX_DECODE_SECONDS.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from decoder import BYTES_PER_PIXEL, Decoder, PictureError
from fastapi import FastAPI, HTTPException, Request, Response
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException
from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect

from unpool.errors import UnpoolError
from unpool.execute import clear_cache
from unpool.memory import peak_rss, rss, set_pool_limit, trim_heap
from unpool.picture_input import PictureInput

ort = import_module(os.environ.get("RUNTIME", "unpool"))  # or onnxruntime, to compare them


def setting(name: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(name, default))


def container_memory() -> int:
    """Bytes that this container may use, or that the machine has."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    limits = (file.read_text().strip() for file in files if file.exists())
    return min(machine, *(int(limit) for limit in limits if limit.isdecimal()), machine)


MODEL = os.environ.get("MODEL") or os.path.join(os.path.dirname(find_spec("unpool").origin), "data", "coins.onnx")
REFUSALS = (Fail, InvalidArgument, RuntimeException)  # of a run, in both runtimes
MAX_BYTES, MAX_PIXELS = setting("MAX_BYTES", 16 << 20), setting("MAX_PIXELS", 12_000_000)
MAX_RUNNING, MAX_WAITING = setting("MAX_RUNNING", 2), setting("MAX_WAITING", 64)
MAX_SECONDS, MAX_DECODE_SECONDS = setting("MAX_SECONDS", 30), setting("MAX_DECODE_SECONDS", 3)
MAX_MEMORY = setting("MAX_MEMORY", container_memory())
MAX_HELD_BYTES = 2 * MAX_BYTES  # of all bodies that wait
KEPT_BYTES = min(128 << 20, MAX_MEMORY // 8)  # that runs have freed, and that malloc may keep for the next ones
POOL_BYTES, DECODER_BYTES = 32 << 20, 80 << 20  # that unpool keeps for next outputs; of a decoder without its picture
SHARE = 0.9  # of MAX_MEMORY that is planned for
DISCONNECT = 499  # counts clients that left before they got their answer
SILENT = ("/health", "/metrics")  # paths that the platform asks all the time

log = logging.getLogger("uvicorn.error")
registry = CollectorRegistry()
requests = Counter("mask_requests", "Requests by status, without health and metrics", ["status"], registry=registry)
seconds = Histogram("mask_seconds", "Seconds of a request that was answered", registry=registry)
waiting = Gauge("mask_waiting", "Requests that send their body, wait or run", registry=registry)
largest = Gauge("mask_max_pixels", "Pixels of the largest picture that is taken", registry=registry)


class Segmenter:
    """A session, and the threads and decoders of the requests that run."""

    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = setting("THREADS", 1)
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # onnxruntime gives memory back
        set_pool_limit(POOL_BYTES)
        self.session = ort.InferenceSession(MODEL, options)
        self.input = PictureInput(self.session)
        self.max_pixels = min(MAX_PIXELS, self.pixels_in_memory())
        largest.set(self.max_pixels)
        self.threads = ThreadPoolExecutor(MAX_RUNNING, thread_name_prefix="mask")
        limits = self.max_pixels, self.input.channels, MAX_DECODE_SECONDS
        self.all_decoders = [Decoder(*limits) for _ in range(MAX_RUNNING)]
        self.decoders: SimpleQueue[Decoder] = SimpleQueue()
        for decoder in self.all_decoders:
            self.decoders.put(decoder)
        self.count = self.held = 0  # requests, and bytes of their bodies

    def pixels_in_memory(self) -> int:
        """Pixels of MAX_RUNNING pictures at once that fit into MAX_MEMORY, by what a run takes."""
        self.peak(64)  # may take long, and more memory than later runs: kernels may compile
        (before, _), (peak, pixels) = self.peak(64), self.peak(512)
        self.most_between_runs = before + MAX_HELD_BYTES + POOL_BYTES + KEPT_BYTES
        each = (peak - before) / pixels + BYTES_PER_PIXEL
        left = SHARE * MAX_MEMORY - self.most_between_runs - MAX_RUNNING * DECODER_BYTES
        pixels = int(left / each / MAX_RUNNING)
        log.info("a run takes %d bytes per pixel: %d pixels fit into %d MiB", each, pixels, MAX_MEMORY >> 20)
        if pixels < 1:
            raise SystemExit(f"MAX_MEMORY: {MAX_MEMORY >> 20} MiB are too little. Give more, or lower MAX_RUNNING.")
        return pixels

    def peak(self, side: int) -> tuple[int, int]:
        """Bytes of this process while it runs a blank picture of a size, and pixels of the picture."""
        shape = self.session.get_inputs()[0].shape
        height, width = (size if isinstance(size, int) else side for size in shape[2:])
        trim_heap()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        self.mask(np.zeros((1, self.input.channels or 3, height, width), self.input.dtype), ort.RunOptions())
        return peak_rss(), height * width

    def mask(self, x: np.ndarray, options: Any) -> bytes:
        """The mask of an input, as a PNG."""
        scores = self.session.run(None, {self.input.name: x}, options)[0]
        answer = BytesIO()
        Image.fromarray(scores[0].argmax(axis=0).astype(np.uint8)).save(answer, "png", compress_level=1)
        return answer.getvalue()

    def run(self, content: bytes, options: Any) -> bytes:
        """The mask of a picture."""
        decoder = self.decoders.get()
        try:
            picture = decoder.decode(content)
        except PictureError as error:
            raise HTTPException(error.status, error.message) from error
        finally:
            self.decoders.put(decoder)
        try:
            x = self.input.array(picture)
        except UnpoolError as error:
            raise HTTPException(400, str(error)) from error
        try:
            return self.mask(x, options)
        except REFUSALS as error:  # its message is for developers of the model
            log.warning("a run on %s failed: %s", "x".join(map(str, x.shape)), error)
            known = self.input.size_error(x) if ort.__name__ == "unpool" else None
            raise HTTPException(400, known or "the model does not take a picture of this size") from error
        finally:
            if rss() > self.most_between_runs:
                clear_cache()  # tables of unpool for every size of pictures
                trim_heap()  # malloc keeps freed blocks of up to 32 MiB

    async def answer(self, request: Request) -> bytes:
        """The mask of the picture in the body, which has MAX_SECONDS; and so have waiting and running."""
        if self.count >= MAX_RUNNING + MAX_WAITING:
            raise HTTPException(503, "too many requests wait", headers={"Retry-After": "1"})
        content, options, loop = bytearray(), ort.RunOptions(), asyncio.get_running_loop()
        future: Future[bytes] | None = None
        self.change(1, 0)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await self.receive(request, content)
            future = self.threads.submit(self.run, bytes(content), options)
            async with asyncio.timeout(MAX_SECONDS):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            options.terminate = True
            status, what = (408, "the body") if future is None else (504, "the run")
            headers = {"Connection": "close"}  # the rest of a body may never come
            raise HTTPException(status, f"{what} took more than {MAX_SECONDS} s", headers=headers) from error
        finally:
            if future is None:
                self.change(-1, -len(content))
            else:  # a run may need a moment to end
                future.add_done_callback(lambda _: loop.call_soon_threadsafe(self.change, -1, -len(content)))

    async def receive(self, request: Request, content: bytearray) -> None:
        """Read the body, as far as it and all others together are small enough."""
        length = request.headers.get("Content-Length", "0")
        async for chunk in request.stream():
            self.change(0, len(chunk))
            content += chunk
            if len(content) > MAX_BYTES or int(length) > MAX_BYTES:
                raise HTTPException(413, f"expected up to {MAX_BYTES} bytes, got more")
            if self.held > MAX_HELD_BYTES:
                raise HTTPException(503, "too many bytes wait", headers={"Retry-After": "1"})

    def change(self, count: int, held: int) -> None:
        """Count requests and bytes that come or go."""
        self.count += count
        self.held += held
        waiting.set(self.count)

    def close(self) -> None:
        """End threads and decoders."""
        for decoder in self.all_decoders:
            decoder.close()
        self.threads.shutdown(cancel_futures=True)


class CountAnswers:
    """Counts every answer by its status; what raises becomes 500."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] in SILENT:
            await self.app(scope, receive, send)
            return
        status = 500

        async def send_and_note(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            requests.labels(status).inc()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the model, run it, and decode a picture, before the first request comes."""
    app.state.segmenter = segmenter = await asyncio.to_thread(Segmenter)
    blank = BytesIO()
    Image.new("L", (1, 1)).save(blank, "png")
    for decoder in segmenter.all_decoders:
        await asyncio.to_thread(decoder.decode, blank.getvalue())
    yield
    segmenter.close()


app = FastAPI(title="Masks", lifespan=lifespan)
app.add_middleware(CountAnswers)


@app.post("/mask")
async def mask(request: Request) -> Response:
    """The mask of the picture in the body."""
    start = time.perf_counter()
    try:
        answer = await request.app.state.segmenter.answer(request)
    except ClientDisconnect as error:
        raise HTTPException(DISCONNECT) from error
    if await request.is_disconnected():
        raise HTTPException(DISCONNECT)
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
