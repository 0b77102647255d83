"""Where Numba lacks something beside its public interface, kernels compute the same without it, and the log says so."""

import ast
import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unpool
from unpool.kernels.cpu.machine import numba_seam

SOURCE = Path(unpool.__file__).parent / "kernels"
PUBLIC = (":", "extending:", "core:cgutils", "core:types")
"""How imports from Numba begin, as `imported` names them, that all kernels may use."""


def said_by(function: str, mode: str = "") -> Any:
    """What a function of this file gives in a process of its own, whose UNPOOL_NUMBA is `mode`."""
    places = os.pathsep.join((str(Path(__file__).parent), str(Path(unpool.__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", f"import test_numba_seam as own; own.{function}()"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": places, "UNPOOL_NUMBA": mode}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tell(message: Any) -> None:
    """Hand something over to `said_by`."""
    print(json.dumps(message))  # noqa: T201


def without_each_name() -> None:
    """In a new process: for each name that is needed, what a child computes whose Numba calls it otherwise."""
    import numba

    numba.njit(lambda: None)()  # imports what compiling takes, once for all children
    found = {}
    for name in numba_seam.NEEDED:
        source, target = os.pipe()
        if os.fork() == 0:
            numba_seam.NEEDED[f"{name}_of_old"] = numba_seam.NEEDED.pop(name)
            os.write(target, json.dumps(small_call()).encode())
            os._exit(0)
        os.close(target)
        with open(source, "rb") as answer:
            found[name] = json.loads(answer.read() or b"null")
        os.wait()
    tell(found)


def small_call() -> tuple[list[int], list[str]]:
    """Two calls of an operator, and what the log says of them."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("unpool").addHandler(handler)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    y = [unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2]) for _ in range(2)][1]
    return y.ravel().astype(int).tolist(), said


def operators() -> None:
    """In a new process: whether it is plain, and digests of what all operators give, on one thread and two."""
    import test_threads

    test_threads.splitter.available = test_threads.splitter.cores = lambda: 2  # whatever machine this is
    tell([numba_seam.is_plain(), {
        f"{work.__name__}, {threads}": hashlib.sha256(b"".join(work(np.float32, threads))).hexdigest()
        for work in test_threads.WORK
        for threads in (1, 2)
    }])  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_any_name_may_be_missing() -> None:
    """Without any one of the names results are right, and the log says once which it is."""
    found = said_by("without_each_name")
    assert set(found) == set(numba_seam.NEEDED)
    for name, (values, said) in found.items():
        assert values == [5, 7, 13, 15], name
        assert len(said) == 1, said
        assert f"no {name}_of_old " in said[0]


def test_plain_results_are_the_same() -> None:
    """All operators give the same bits in the plain mode, on one thread and on two."""
    is_plain, expected = said_by("operators")
    assert not is_plain
    assert said_by("operators", "plain") == [True, expected]


@pytest.fixture
def asked(monkeypatch):
    """`is_plain` as a new process asks it, with a copy of the names."""
    monkeypatch.delenv("UNPOOL_NUMBA", raising=False)
    monkeypatch.setattr(numba_seam, "NEEDED", dict(numba_seam.NEEDED))
    return numba_seam.is_plain.__wrapped__


def test_this_numba_has_all(asked, caplog) -> None:
    """The version that the tests run with has every name, and nothing is said."""
    assert not asked()
    assert not caplog.messages


@pytest.mark.parametrize("name", [name for name, parameters in numba_seam.NEEDED.items() if parameters])
def test_other_parameters_are_noticed(asked, name, caplog) -> None:
    """What takes other parameters than it did is not called."""
    numba_seam.NEEDED[name] += " more"
    assert asked()
    assert len(caplog.messages) == 1
    assert name in caplog.text


def test_a_missing_module_is_noticed(asked, monkeypatch, caplog) -> None:
    """So is a module that is not there: all names that it had are listed, in one line."""
    monkeypatch.setitem(sys.modules, "numba.core.caching", None)
    assert asked()
    (said,) = caplog.messages
    assert all(name in said for name in numba_seam.NEEDED if name.startswith("numba.core.caching:"))


def test_plain_by_wish(asked, monkeypatch, caplog) -> None:
    """Whoever asks for the plain mode is not warned of it."""
    monkeypatch.setenv("UNPOOL_NUMBA", "plain")
    with caplog.at_level(logging.WARNING, "unpool"):
        assert asked()
    assert not caplog.messages


def test_other_wishes_are_refused(asked, monkeypatch) -> None:
    """A word that nothing is known of is not taken for another."""
    monkeypatch.setenv("UNPOOL_NUMBA", "plane")
    with pytest.raises(ValueError, match="expected plain or nothing, got 'plane'"):
        asked()


def imported(path: Path) -> set[str]:
    """What a file imports from Numba, at its top or in a function: `module:name`, the module without `numba`."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    found = set()
    for node in nodes:
        module = getattr(node, "module", None) or ""
        if (module or node.names[0].name).partition(".")[0] == "numba":
            found |= {f"{module.removeprefix('numba').removeprefix('.')}:{each.name}" for each in node.names}
    return found


def test_only_the_seam_reaches_into_numba() -> None:
    """All other files of the kernels import from Numba what its documentation has, and names and types of its IR."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "numba_seam.py":
            assert all(each.startswith(PUBLIC) for each in imported(path)), path


def test_all_that_is_imported_is_asked_for() -> None:
    """No name that the seam imports is missing in its list."""
    inner = {each for each in imported(SOURCE / "cpu" / "machine" / "numba_seam.py") if each.startswith("core")}
    assert len(inner) > 5
    for each in inner:
        module, _, name = each.partition(":")
        starts = (f"numba.{module}:{name}", f"numba.{module}.{name}:")
        assert any(known.startswith(starts) for known in numba_seam.NEEDED), each
