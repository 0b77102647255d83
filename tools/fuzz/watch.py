"""The watchdog: workers one after the other, each ended when a file takes too long, and what they found."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 10.0  # seconds of one file
START = 120.0  # seconds until a worker has its first file
CASES = 2000  # files of one worker
ROOT = Path(__file__).parents[2]


@dataclass
class Report:
    """How many attempts came to what, and the names of the findings in the folder."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """How many files."""
        return sum(self.counts.values())


def watch(folder: Path, seed: int, *, seconds: float, cases: int = CASES, most: int | None = None) -> Report:
    """Run workers until the time is over or `most` files are tried; every worker has a seed of its own."""
    report, end = Report(), time.monotonic() + seconds
    while time.monotonic() < end and (most is None or report.tried < most):
        left = cases if most is None else min(cases, most - report.tried)
        why = _worker(folder, seed, left, end)
        counts = _read(folder / "counts.json")
        report.counts.update(counts)
        if why:
            _keep(report, folder, seed, why)
            report.counts[f"{_read(folder / 'case.json').get('action')}: {why}"] += 1
        seed += 1
    report.findings += sorted(path.stem for path in folder.glob("*-*.txt") if path.stem not in report.findings)
    return report


def again(action: str, path: Path) -> tuple[str, str]:
    """What is wrong with one file, "" if nothing, and what a worker of its own said.

    Seconds are those of the processor, and count only where a second worker needs them too: the first may compile.
    """
    command = [sys.executable, "-m", "tools.fuzz.worker", str(path.parent), "0", "1", action, str(path)]
    words = ""
    for _ in range(3):
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=START, check=False
            )
        except subprocess.TimeoutExpired:
            return "hang", ""
        words = done.stdout + done.stderr
        if done.returncode:
            return f"exit status {done.returncode}", words
        if float(done.stdout.split()[-1]) < LIMIT:
            return "", words
    return f"more than {LIMIT} seconds", words


def _worker(folder: Path, seed: int, cases: int, end: float) -> str:
    """Run one worker; why it had to end, "" if it was done or the time was over."""
    for name in ("counts.json", "case.json"):
        (folder / name).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tools.fuzz.worker", str(folder), str(seed), str(cases)]
    with open(folder / "stderr.txt", "w") as words:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=words, stderr=words)
        begun = time.time()
        while process.poll() is None:
            time.sleep(0.05)
            case = _read(folder / "case.json")
            late = time.time() - case["began"] > LIMIT if case else time.time() - begun > START
            if late or time.monotonic() > end:
                process.kill()
                process.wait()
                return f"more than {LIMIT} seconds" if late else ""
    return f"exit status {process.returncode}" if process.returncode else ""


def _keep(report: Report, folder: Path, seed: int, why: str) -> None:
    """A file that ended a worker is a finding if it does so again: the first time, kernels may have been compiled."""
    case = _read(folder / "case.json")
    stem = f"{seed}-{case.get('number', 'start')}"
    if not case:
        (folder / f"{stem}.txt").write_text(f"{why} before the first file\n{(folder / 'stderr.txt').read_text()}")
    else:
        shutil.copy(folder / "case.onnx", folder / f"{stem}.onnx")
        second, words = again(case["action"], folder / f"{stem}.onnx")
        if not second:
            (folder / f"{stem}.onnx").rename(folder / f"once-{stem}.onnx")
            return
        (folder / f"{stem}.txt").write_text(
            f"action: {case['action']}\n{why}, then {second}\n{words}\n{(folder / 'stderr.txt').read_text()}"
        )
    report.findings.append(stem)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _read(path: Path) -> dict:
    """What a worker wrote; {} while it writes."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
