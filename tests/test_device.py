"""Threads: affinity, cgroup quota and OMP_NUM_THREADS are respected; a library call changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard import device
from regard.device import available_cores, choose_machine, cpu_quota, default_threads
from regard.tasks import load


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of cgroups; eight cores in the affinity mask, no OMP_NUM_THREADS."""
    monkeypatch.setattr(device, "CGROUPS", tmp_path)
    monkeypatch.setattr(device, "PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_limit_every_core_of_the_mask_is_used(cgroups: Path) -> None:
    assert cpu_quota() is None
    assert default_threads() == len(available_cores()) == 8
    write(cgroups, own="0::/\n", cpu__max="max 100000\n")
    assert cpu_quota() is None and default_threads() == 8


def test_a_quota_of_cgroup_version_2_is_respected_also_of_a_parent(cgroups: Path) -> None:
    """`docker --cpus=2` on a host of 64 cores once gave 64 threads."""
    write(cgroups, own="0::/pod/container\n")
    write(cgroups / "pod", cpu__max="250000 100000\n")
    write(cgroups / "pod" / "container", cpu__max="max 100000\n")
    assert cpu_quota() == 2.5
    assert default_threads() == 2
    assert choose_machine("cpu").threads == 2
    write(cgroups, cpu__max="50000 100000\n")
    assert cpu_quota() == 0.5 and default_threads() == 1


def test_a_quota_of_cgroup_version_1_is_respected(cgroups: Path) -> None:
    write(cgroups, own="5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n")
    write(
        cgroups / "cpu", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n"
    )  # the container's root
    assert cpu_quota() == 3 and default_threads() == 3
    write(cgroups / "cpu", cpu__cfs_quota_us="-1\n")
    assert cpu_quota() is None
    write(
        cgroups / "cpu,cpuacct" / "docker" / "a", cpu__cfs_quota_us="100000\n", cpu__cfs_period_us="50000\n"
    )
    assert cpu_quota() == 2


@pytest.mark.parametrize("value, threads", [("1", 1), ("3,2", 3), ("99", 8), ("0", 8), ("many", 8), ("", 8)])
def test_omp_num_threads_is_respected(
    cgroups: Path, monkeypatch: pytest.MonkeyPatch, value: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert default_threads() == threads
    assert choose_machine("cpu").threads == threads
    assert choose_machine("cpu", threads=5).threads == 5  # what the caller asks for counts


def test_a_library_call_changes_threads_only_if_asked(tiny_model: Path, cgroups: Path) -> None:
    """`regard.load` once set torch to all cores for the caller's whole process."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        load(tiny_model, "cpu")
        assert torch.get_num_threads() == 3
        load(tiny_model, "cpu", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_command_sets_its_threads(tiny_model: Path, regard, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("regard.device.available_cores", lambda: [0, 1, 2, 3])
    try:
        torch.set_num_threads(3)
        regard("translate", "-m", tiny_model, "ba de gi")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
