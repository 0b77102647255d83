"""The benchmark of onnxruntime's sessions with the library: a small network on all engines, and the tables."""

from dataclasses import replace

import pytest

from benchmarks import __main__ as command
from benchmarks import library
from benchmarks.library import LibraryNetwork
from benchmarks.library_process import ALONE, BARE, COMPILED, LIBRARY, SESSION
from benchmarks.rows import LibraryRow, read

pytestmark = pytest.mark.slow


def auto_encoder(layers, spatial):
    """A pool with indices and an unpooling, and a transposed convolution."""
    value, indices = layers.pool_with_indices(layers.conv("x", 4, 3))
    return layers.grow(layers.unpool(value, indices, spatial), 2, 2, 2, 0)


TINY = LibraryNetwork("tiny", (1, 3, 8, 10), auto_encoder)


def test_every_engine_runs_a_network(monkeypatch):
    """All give onnxruntime's result, and their rows have all figures."""
    monkeypatch.setattr(library, "TURNS", 2)
    saved = []
    rows = library.measure([TINY], 2, 1, saved.extend)
    assert rows == saved
    assert [row.reason for row in rows] == [""] * 5
    assert [row.engine for row in rows] == [ALONE, LIBRARY, BARE, COMPILED, SESSION]
    for row in rows:
        assert row.runs >= 6
        assert 0 < row.created < row.load
        assert min(row.reload, row.median, row.p95, row.memory) > 0


def test_an_engine_with_another_result_is_not_timed(monkeypatch):
    """Its row says so, and the others go on."""
    monkeypatch.setattr(library, "TURNS", 1)
    monkeypatch.setattr(library, "TOLERANCE", -1.0)
    (row,) = [row for row in library.measure([TINY], 1, 1, lambda _: None) if row.engine == LIBRARY]
    assert row.runs == 0
    assert "another result" in row.reason


ROW = LibraryRow(
    "won", "1x3x8x10", ALONE, "1.32.0", "A CPU", 2, 30, 0.0, 0.01, 0.02, 0.015, 0.004, 0.005, 80_000_000, 0.0, "",
    "2030-01-02",
)  # fmt: skip
ROWS = [
    ROW,
    replace(ROW, engine=LIBRARY, imports=0.003, load=0.03, median=0.002, p95=0.003),
    replace(ROW, engine=COMPILED, runs=0, median=0.0, reason="no plan"),
]


def test_the_command_writes_results(monkeypatch, tmp_path, capsys):
    """Rows go into the file of results, and the tables to the terminal."""
    monkeypatch.setattr(library, "NETWORKS", (TINY,))
    monkeypatch.setattr(library, "_measure", lambda *_: ROWS)
    assert command.main(["library", "tiny", "--results", str(tmp_path)]) == 0
    assert read(tmp_path / "library.csv", LibraryRow) == ROWS
    assert "geometric mean" in capsys.readouterr().out
    assert command.main(["library", "huge", "--results", str(tmp_path)]) == 2
