"""All node tests of onnx through the session, through onnxruntime alone, and through onnxruntime with the library of
custom operators, by the same comparison.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import node_suite

pytestmark = pytest.mark.slow

SECONDS_FOR_IMPORTS = 120
SECONDS_PER_CASE = 30
MOST_DEATHS = 20
DIED = "died"


def outcomes(engine, folder):
    """Why each case failed, "" if it passed; a case in which the process dies or stands still is `DIED`."""
    file = folder / f"{engine}.jsonl"
    file.touch()
    found = {}
    for _ in range(MOST_DEATHS):
        command = [sys.executable, node_suite.__file__, engine, str(file), str(len(found))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        is_done = follow(process, file)
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found = {name: rest[0] if rest else DIED for name, *rest in lines}
        if is_done:
            break
    return found


def follow(process, file):
    """Wait for a process that writes into the file; whether it came to its end by itself."""
    limit, size, since = SECONDS_FOR_IMPORTS, file.stat().st_size, time.monotonic()
    while process.poll() is None:
        time.sleep(0.1)
        if file.stat().st_size != size:
            limit, size, since = SECONDS_PER_CASE, file.stat().st_size, time.monotonic()
        elif time.monotonic() - since > limit:
            process.kill()
            process.wait()
    return process.returncode == 0


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The outcomes of all engines, which run at the same time."""
    folder = tmp_path_factory.mktemp("node_suite")
    with ThreadPoolExecutor() as pool:
        made = pool.map(lambda engine: outcomes(engine, folder), node_suite.ENGINES)
        return dict(zip(node_suite.ENGINES, made, strict=True))


def passed(found):
    """The names of the cases that passed."""
    return {name for name, why in found.items() if not why}


@pytest.mark.parametrize("engine", ["unpool", "library"])
def test_no_case_of_onnxruntime_is_lost(found, engine, capsys):
    """Not by cutting, folding and falling back, nor by the custom operators; the counts are printed."""
    ours, theirs = passed(found[engine]), passed(found["onnxruntime"])
    with capsys.disabled():
        print(f"\nnode tests of onnx: {len(found[engine])}, onnxruntime {len(theirs)}, {engine} {len(ours)}")  # noqa: T201
    assert theirs - ours == set()
    assert found[engine].keys() == found["onnxruntime"].keys()


def test_no_case_ends_the_process(found):
    """Whatever a node test feeds, both sessions answer or raise within their time."""
    assert [name for engine in ("unpool", "library") for name, why in found[engine].items() if why == DIED] == []
    assert found["unpool"].keys() == found["onnxruntime"].keys()
