"""Decoding of pictures from strangers, in processes that can be killed.

A picture of some kilobytes can ask for gigabytes of memory, or for hours (a progressive JPEG of thousands of scans). So
each decoder is a process with limits: pixels, which the head of the picture states; memory (RLIMIT_AS); and seconds,
after which it is killed and another takes its place. Only numbers come back from it: a shape, a type, and pixels.

    python decoder.py FD MAX_PIXELS CHANNELS MAX_SECONDS    serves the socket FD; `Decoder` starts it
"""

import json
import logging
import os
import resource
import socket
import struct
import subprocess
import sys
import warnings
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from PIL import Image

from unpool.errors import ShapeError, UnsupportedError
from unpool.images import Picture, read_stream

SUFFIXES = {
    b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp", b"BM": ".bmp", b"II*\0": ".tif", b"MM\0*": ".tif",
}  # fmt: skip
"""By the first bytes of a file, the formats that strangers can send: each is code that they can reach."""

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
BYTES_PER_PIXEL = 64  # while a picture is decoded, scaled and sent, whatever its depth, channels or palette
BUFFER_BYTES = 64 << 20  # that libraries take for pictures of any size
START_SECONDS = 120  # until a new process is ready


class PictureError(Exception):
    """A picture that is refused, with a status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Decoder:
    """A process that decodes one picture after the other, for one thread at a time."""

    def __init__(self, max_pixels: int, channels: int | None, max_seconds: int) -> None:
        self._limits, self._max_seconds = (max_pixels, channels or 0, max_seconds), max_seconds
        self._start()

    def decode(self, content: bytes) -> Picture:
        """The picture with the channels of the model; PictureError if it is none, or asks for more than it may."""
        try:
            if not self._is_ready:
                self._is_ready = self._connection.poll(START_SECONDS) and not self._connection.recv_bytes()
            self._connection.send_bytes(content)
            answer = json.loads(self._connection.recv_bytes(4096))
            if "status" in answer:
                raise PictureError(answer["status"], answer["message"])
            pixels = self._connection.recv_bytes(BYTES_PER_PIXEL * self._limits[0])
            return Picture(np.frombuffer(pixels, answer["type"]).reshape(answer["shape"]), answer["white"])
        except (OSError, EOFError, ValueError) as error:  # too slow, or dead
            self.close()
            self._start()
            raise PictureError(400, f"the picture could not be decoded within {self._max_seconds} s") from error

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", self._max_seconds, 0))
        with theirs:
            command = [sys.executable, __file__, *map(str, (theirs.fileno(), *self._limits))]
            environment = os.environ | {
                "OPENBLAS_NUM_THREADS": "1",
                "TIFFFILE_NUM_THREADS": "1",
                "MALLOC_ARENA_MAX": "1",
            }
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        self._connection, self._is_ready = Connection(ours.detach()), False


def decode(content: bytes, max_pixels: int, channels: int | None) -> Picture:
    """As `Decoder.decode`, in this process; nothing is decoded before the size of the picture is known."""
    suffix = next((suffix for start, suffix in SUFFIXES.items() if content.startswith(start)), None)
    if suffix is None:
        raise PictureError(400, "expected a picture (PNG, JPEG, TIFF, WebP or BMP), got other bytes")
    stream = BytesIO(content)
    if suffix == ".tif":
        import tifffile

        with tifffile.TiffFile(stream) as file:
            width, height = file.pages[0].imagewidth, file.pages[0].imagelength
    else:
        width, height = Image.open(stream, formats=FORMATS).size
    if width * height > max_pixels:
        raise PictureError(413, f"expected up to {max_pixels} pixels, got {width} x {height}")
    return read_stream(stream, suffix, "the picture", 2, channels)


def answer(content: bytes, max_pixels: int, channels: int | None) -> tuple[dict[str, object], bytes]:
    """What a decoder sends: a description of the picture or of the error, and the pixels."""
    try:
        picture = decode(content, max_pixels, channels)
        pixels = np.ascontiguousarray(picture.pixels)
        head = {"shape": pixels.shape, "type": pixels.dtype.str, "white": picture.white_level}
        return head, pixels.tobytes()
    except PictureError as error:
        return {"status": error.status, "message": error.message}, b""
    except Exception as error:  # a decoder may raise anything
        is_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
        if is_memory:
            return {"status": 413, "message": "the picture takes too much memory"}, b""
        is_clear = isinstance(error, ShapeError | UnsupportedError)
        text = str(error)[:1000] if is_clear else "the picture is damaged, or of a kind that is not read here"
        return {"status": 400, "message": text}, b""


def serve(connection: Connection, max_pixels: int, channels: int | None, max_seconds: int) -> None:
    """Decode until the other side closes the connection."""
    Image.MAX_IMAGE_PIXELS = None
    logging.disable()
    warnings.simplefilter("ignore")
    for name in ("PNG", "JPEG", "TIFF", "WEBP", "BMP"):  # libraries are loaded before memory is limited
        Image.new("RGB", (4096, 8)).save(first := BytesIO(), name)
        answer(first.getvalue(), 4096 * 8, channels)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + BUFFER_BYTES + BYTES_PER_PIXEL * max_pixels,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(b"")
    while True:
        try:
            content = connection.recv_bytes()
        except EOFError:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        most = int(usage.ru_utime + usage.ru_stime) + max_seconds + 1
        resource.setrlimit(
            resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY)
        )  # the system ends it, even if the service does not
        head, pixels = answer(content, max_pixels, channels)
        connection.send_bytes(json.dumps(head).encode())
        if "shape" in head:
            connection.send_bytes(pixels)


if __name__ == "__main__":
    fd, max_pixels, channels, max_seconds = map(int, sys.argv[1:])
    serve(Connection(fd), max_pixels, channels or None, max_seconds)
