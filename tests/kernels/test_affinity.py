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
    place = f"sys/fs/cgroup/{folder}"
    return {
        "proc/self/cgroup": V1,
        f"{place}/cpu.cfs_quota_us": f"{quota}\n",
        f"{place}/cpu.cfs_period_us": f"{period}\n",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("1000 100000\n", 1), ("max 100000\n", None),
     ("300000 100000 1", None), ("", None), ("what is this", None), ("0 100000", None),
     ("100000 0", None), ("-1 100000", None)],
)  # fmt: skip
def test_version_2(tmp_path, text, expected) -> None:
    """`cpu.max` of the group: a part of a core counts as one, and what is no quota is no limit."""
    assert quota(tmp_path, v2(text)) == expected


def v2(text: str, folder: str = "a.slice/b.scope/", group: str = V2) -> dict[str, str]:
    """The files of a group of the second version."""
    return {"proc/self/cgroup": group, f"sys/fs/cgroup/{folder}cpu.max": text}


@pytest.mark.parametrize(("micros", "expected"), [(200000, 2), (210000, 3), (-1, None), (0, None)])
def test_version_1(tmp_path, micros, expected) -> None:
    """Quota and period are two files, in the folder of the controller."""
    assert quota(tmp_path, v1("cpu,cpuacct/docker/abc", micros)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (v2("800000 100000") | v2("300000 100000", "a.slice/"), 3),  # no more than the group that it belongs to
        (v1("cpu", 400000), 4),  # the path may be the host's: the container's group is the outermost that is seen
        (v2("500000 100000", "", "0::/../x\n"), 5),
        (v2("600000 100000", "", "0::/\n"), 6),
        (v2("200000 100000", "my group: one/", "0::/my group: one\n"), 2),
        ({}, None),
        ({"proc/self/cgroup": "nonsense\n\n:::\n"}, None),
    ],
)
def test_where_groups_are_found(tmp_path, files, expected) -> None:
    """Around a group, in a container, under any name; without files, or with others than expected, nothing limits."""
    assert quota(tmp_path, files) == expected


def test_available_obeys_both(monkeypatch) -> None:
    """Never more cores than either says, and at least one."""
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for granted, expected in ((None, 4), (9, 4), (3, 3), (1, 1)):
        monkeypatch.setattr(host, "quota", lambda granted=granted: granted)
        assert host.available_cores() == expected
    monkeypatch.delattr(host.os, "sched_getaffinity")
    monkeypatch.setattr(host.os, "cpu_count", lambda: None)
    assert host.available_cores() == 1
