"""Load for the service: clients that each send one picture after the other, and what they see.

    python load.py http://127.0.0.1:8000 --clients 32 --seconds 60 --pid PID

Prints requests per second, percentiles of their times, answers by status, and how much the process PID has grown.
"""

import argparse
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from PIL import Image


def picture(height: int, width: int) -> bytes:
    """A PNG of blobs."""
    rng = np.random.default_rng(1)
    blobs = Image.fromarray(rng.integers(0, 255, (height // 16, width // 16), np.uint8)).resize((width, height))
    content = BytesIO()
    blobs.save(content, "png")
    return content.getvalue()


def resident(pid: int | None) -> int:
    """MiB of a process that are in memory; 0 without one."""
    if pid is None:
        return 0
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def send(address: str, body: bytes, end: float, times: list[float], statuses: Counter[int]) -> None:
    """Send one request after the other until `end`."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    while time.monotonic() < end:
        start = time.perf_counter()
        connection.request("POST", "/mask", body)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - start)
        statuses[answer.status] += 1


def main() -> None:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--size", type=int, nargs=2, default=(304, 384))
    parser.add_argument("--pid", type=int)
    options = parser.parse_args()
    body, times, statuses = picture(*options.size), [], Counter()
    send(options.address, body, time.monotonic() + 2, [], Counter())
    before, end = resident(options.pid), time.monotonic() + options.seconds
    clients = [
        threading.Thread(target=send, args=(options.address, body, end, times, statuses))
        for _ in range(options.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    p50, p95, p99 = np.percentile(times, [50, 95, 99]) * 1000
    print(f"{len(times) / options.seconds:.1f} requests/s, p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms")
    print(f"answers {dict(statuses)}, memory {before} -> {resident(options.pid)} MiB")


if __name__ == "__main__":
    main()
