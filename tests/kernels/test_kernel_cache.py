"""Compiled kernels are found again by the next process, until a source changes; without a cache they still run."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import unpool

pytestmark = pytest.mark.slow

PROBE = Path(__file__).parents[1] / "support" / "cache_probe.py"
HELPERS = ("vector/arithmetic.py", "max_pool/elements.py", "fold_axes.py")
BORROWING = {
    "conv_transpose.rows.conv_transpose_rows",  # a kernel that it imports
    "max_pool.direct.pool_rows",  # functions that it imports
    "max_unpool.scatter.scatter_planes",  # attributes of the module `vector`
    "max_pool.rolling.roll_planes",  # the same, in a factory
}
"""Kernels that contain code of another file, one for each way to name it."""

DROP_FROM_BOUNDING_SET, DAC_OVERRIDE = 24, 1  # of Linux' prctl: what lets root write where no permission says so


@dataclass(frozen=True)
class House:
    """A copy of the package, and folders of its own for everything that is written."""

    package: Path  # the folder `unpool`
    home: Path  # HOME of its processes
    cache: Path | None  # NUMBA_CACHE_DIR, or None

    def probe(self, *work: str, before: Callable[[], None] | None = None) -> tuple[dict[str, Any], str]:
        """What a new process says that calls the kernels, and its log."""
        hidden = ("NUMBA_", "PYTHON", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        chosen = {"HOME": str(self.home), "PYTHONPATH": str(self.package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        chosen["UNPOOL_KERNELS"] = "compiled"
        if self.cache is not None:
            chosen["NUMBA_CACHE_DIR"] = str(self.cache)
        run = subprocess.run(
            [sys.executable, str(PROBE), *work], env=kept | chosen, capture_output=True, text=True, check=False,
            preexec_fn=before,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr[-3000:]
        report = json.loads(run.stdout)
        assert report["package"] == str(self.package)
        return report, run.stderr


def copied(folder: Path, cache: Path | None = None) -> House:
    """The package without anything compiled, in a new folder, and an empty home."""
    package, home = folder / "site" / "unpool", folder / "home"
    shutil.copytree(Path(unpool.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    return House(package, home, cache)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> tuple[House, dict[str, Any]]:
    """A house whose cache the first process has filled, and what that one said."""
    folder = tmp_path_factory.mktemp("cache")
    house = copied(folder, folder / "numba")
    return house, house.probe()[0]


def test_first_process_compiles_everything(filled) -> None:
    """The probe reaches every function that the sources hand to Numba; a new one has to be called there too."""
    _, first = filled
    assert set(first["written"]) <= set(first["compiled"])
    assert not first["found"]


def test_second_process_compiles_nothing(filled) -> None:
    """Every kernel that Python calls, and all that `unpool warmup` lists, is found with what it contains."""
    house, first = filled
    second, _ = house.probe()
    assert second["compiled"] == []
    assert set(first["written"]) - set(first["inner"]) <= set(second["found"]) <= set(first["written"])


def test_nothing_is_imported_to_find_kernels(filled) -> None:
    """Linear algebra is imported by a process that compiles, not by one that finds what it needs."""
    house, first = filled
    second, _ = house.probe("pool", "unpool_again", "backward")
    assert second["compiled"] == []
    assert second["heavy"] == []
    assert "numba.np.linalg" in first["heavy"]


def test_change_of_a_helper_compiles_again(filled) -> None:
    """A comment in the helpers' files makes every kernel that contains code of another file miss its cache."""
    house, first = filled
    changed = copied(house.package.parents[1] / "changed", house.cache)
    shutil.rmtree(house.package)
    changed.package.rename(house.package)
    for name in HELPERS:
        path = house.package / "kernels" / "cpu" / name
        path.write_text(path.read_text() + "# changed\n")
    third, _ = house.probe("pool", "unpool_again", "deconvolve", "backward", "normalize", "snake", "hand_over")
    borrowing = set(first["borrowing"]) & set(first["written"])
    assert borrowing >= BORROWING
    assert borrowing <= set(third["compiled"])
    assert not borrowing & set(third["found"])


@pytest.mark.parametrize("is_read_only", [False, True])
def test_package_folder_is_the_cache(tmp_path: Path, is_read_only: bool) -> None:
    """Without any setting kernels are kept beside their sources, or, where those are read-only, in the user's cache."""
    house = copied(tmp_path)
    if is_read_only:
        read_only(house.package)
    house.probe("backward", before=without_override)
    place = house.home if is_read_only else house.package / "kernels" / "cpu"
    assert list(place.rglob("kernels-*/*"))
    assert house.probe("backward", before=without_override)[0]["compiled"] == []


def read_only(folder: Path) -> None:
    """Take the permission to write from a folder and all folders in it."""
    for each in (folder, *folder.rglob("*")):
        if each.is_dir():
            each.chmod(0o555)


def without_override() -> None:
    """In a new process, let permissions hold for root as for anybody else."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, DAC_OVERRIDE, 0, 0, 0):
        os._exit(1)


def block_folders(house: House) -> None:
    """Files where the cache's folders would be."""
    for folder in {path.parent for path in house.package.rglob("*.py")}:
        (folder / "__pycache__").write_text("")
    (house.home / ".cache").write_text("")
    (house.home / "Library").write_text("")


def forbid_writing(house: House) -> None:
    """Permissions of an installation for all, and of a service's home."""
    read_only(house.package)
    read_only(house.home)


@pytest.mark.parametrize("spoil", [block_folders, forbid_writing])
def test_runs_where_nothing_can_be_written(tmp_path: Path, spoil: Callable[[House], None]) -> None:
    """Neither the package nor the home can be written: kernels compile without a cache, and the log says so once."""
    house = copied(tmp_path)
    spoil(house)
    report, log = house.probe("backward", before=without_override)
    assert {"max_unpool.per_plane.spread_planes"} <= set(report["compiled"])
    assert report["found"] == []
    said = [line for line in log.splitlines() if "cache" in line.lower()]
    assert len(said) == 1, log
    assert not list(tmp_path.rglob("kernels-*"))


ENTRIES = """
import sys
import numpy as np
from unpool.kernels.cpu import convert
launches = [convert.launch(np.dtype(name), np.dtype(name), 1, 3, 4) for name in sys.argv[1:]]
for launch in launches:
    x = np.zeros(12, launch._kernel.name[-8:-1])
    launch.run((x, np.empty_like(x)), 1)
print(*{launch._kernel.c_entry((0, 0, *launch._args, 0, 1)) for launch in launches})
"""


def test_kernels_of_two_processes_keep_their_entries(tmp_path: Path) -> None:
    """Specialisations that two processes compiled, each as its first, are two functions in a third one."""
    chosen = {"NUMBA_CACHE_DIR": str(tmp_path), "UNPOOL_KERNELS": "compiled"}
    for names in (["float32"], ["float64"], ["float64", "float32"]):
        command = [sys.executable, "-c", ENTRIES, *names]
        done = subprocess.run(command, env=os.environ | chosen, capture_output=True, text=True, check=True)
        assert len(done.stdout.split()) == len(names)
