"""The number of cores is what affinity and the quotas of control groups, of both versions, let a process use."""

from pathlib import Path

import pytest

from unpool.kernels.cpu.machine import host

V1 = "4:cpuset:/\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"
V2 = "0::/a.slice/b.scope\n"


def quota(root: Path, files: dict[str, str]) -> int | None:
    """What a system with these files grants."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host.quota(str(root))


def v1(folder: str, quota: int, period: int = 100000) -> dict[str, str]:
    """The files of a group of the first version."""
    place = f"sys/fs/cgroup/{folder}"
    return {f"{place}/cpu.cfs_quota_us": f"{quota}\n", f"{place}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("1000 100000\n", 1), ("max 100000\n", None),
     ("300000 100000 1", None), ("", None), ("what is this", None), ("0 100000", None),
     ("100000 0", None), ("-1 100000", None)],
)  # fmt: skip
def test_version_2(tmp_path, text, expected) -> None:
    """`cpu.max` of the group: a part of a core counts as one, and what is no quota is no limit."""
    assert quota(tmp_path, {"proc/self/cgroup": V2, "sys/fs/cgroup/a.slice/b.scope/cpu.max": text}) == expected


@pytest.mark.parametrize(("micros", "expected"), [(200000, 2), (210000, 3), (-1, None), (0, None)])
def test_version_1(tmp_path, micros, expected) -> None:
    """Quota and period are two files, in the folder of the controller."""
    assert quota(tmp_path, {"proc/self/cgroup": V1} | v1("cpu,cpuacct/docker/abc", micros)) == expected


def test_the_smallest_of_all_groups_counts(tmp_path) -> None:
    """A group has no more than those that it belongs to."""
    files = {"proc/self/cgroup": V2, "sys/fs/cgroup/a.slice/b.scope/cpu.max": "800000 100000"}
    assert quota(tmp_path, files | {"sys/fs/cgroup/a.slice/cpu.max": "300000 100000"}) == 3


def test_inside_a_container(tmp_path) -> None:
    """The path may be the host's; the container's own group is then the outermost that can be seen."""
    assert quota(tmp_path / "1", {"proc/self/cgroup": V1} | v1("cpu", 400000)) == 4
    assert quota(tmp_path / "2", {"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/cpu.max": "500000 100000"}) == 5
    assert quota(tmp_path / "3", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "600000 100000"}) == 6


def test_paths_with_spaces_and_colons(tmp_path) -> None:
    """A group's name may be almost anything."""
    files = {"proc/self/cgroup": "0::/my group: one\n", "sys/fs/cgroup/my group: one/cpu.max": "200000 100000"}
    assert quota(tmp_path, files) == 2


def test_where_there_are_no_groups(tmp_path) -> None:
    """Without files, or with others than expected, there is no limit."""
    assert quota(tmp_path / "1", {}) is None
    assert quota(tmp_path / "2", {"proc/self/cgroup": "nonsense\n\n:::\n"}) is None


def test_available_obeys_both(monkeypatch) -> None:
    """Never more cores than either says, and at least one."""
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for granted, expected in ((None, 4), (9, 4), (3, 3), (1, 1)):
        monkeypatch.setattr(host, "quota", lambda granted=granted: granted)
        assert host.available_cores() == expected
    monkeypatch.delattr(host.os, "sched_getaffinity")
    monkeypatch.setattr(host.os, "cpu_count", lambda: None)
    assert host.available_cores() == 1
