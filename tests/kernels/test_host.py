"""What the processor says of itself."""

from pathlib import Path

import pytest

from unpool.kernels.cpu.machine import host


def caches(folder: Path, *found: tuple[str, str]) -> Path:
    """A folder as Linux has it, with level and size of each cache."""
    for number, (level, size) in enumerate(found):
        index = folder / f"index{number}"
        index.mkdir(parents=True)
        (index / "level").write_text(f"{level}\n")
        (index / "size").write_text(f"{size}\n")
    return folder


@pytest.mark.parametrize(
    ("found", "size"),
    [
        ([("1", "48K"), ("1", "32K"), ("2", "2048K"), ("3", "266240K")], 2 << 20),
        ([("1", "32K"), ("2", "512K")], 512 << 10),
        ([("1", "32K")], 0),
        ([("2", "large")], 0),
        ([], 0),
    ],
    ids=["server", "desktop", "one level", "unreadable", "nothing there"],
)
def test_the_second_cache(monkeypatch, tmp_path, found, size):
    """Linux says it in KiB; where nobody says anything it counts as none."""
    monkeypatch.setattr(host, "_CACHES", caches(tmp_path, *found))
    host.second_cache_bytes.cache_clear()
    try:
        assert host.second_cache_bytes() == size
    finally:
        host.second_cache_bytes.cache_clear()
