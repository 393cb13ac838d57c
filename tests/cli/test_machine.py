"""The size of the host that is this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peloton.assembly import machine
from peloton.assembly.first_messages import apart, configured
from peloton.assembly.gpus import gpu_count
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of the kernel that a test writes; there are none at first."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    return tmp_path


def test_it_has_what_the_machine_has_less_a_tenth(kernel: Path) -> None:
    host = machine.this_machine(kernel / "not" / "there" / "yet", root=kernel)
    assert host.cpus == len(os.sched_getaffinity(0))
    whole_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / machine.MB
    left_mb = min(whole_mb / 10, machine.MEMORY_LEFT_MB_MAX)
    assert host.memory_mb == int(whole_mb - left_mb)
    assert host.disk_mb > 0 and host.gpus == 0


def test_the_limits_of_a_container_count(kernel: Path) -> None:
    (kernel / "cpu.max").write_text("50000 100000\n")
    (kernel / "memory.max").write_text(f"{1000 * machine.MB}\n")
    (kernel / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (kernel / "dev" / name).touch()
    host = machine.this_machine(kernel, root=kernel)
    assert (host.cpus, host.memory_mb, host.gpus) == (0.5, 900.0, 2.0)


def test_no_limit_is_no_limit(kernel: Path) -> None:
    without = machine.this_machine(kernel)
    (kernel / "cpu.max").write_text("max 100000\n")
    (kernel / "memory.max").write_text("max\n")
    assert machine.this_machine(kernel) == without


def test_gpus_are_those_that_the_driver_runs(tmp_path: Path) -> None:
    assert gpu_count(tmp_path) == 0
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "null"):
        (tmp_path / "dev" / name).touch()
    assert gpu_count(tmp_path) == 2, "in a container there may be nothing but device files"
    for name in ("0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)
    assert gpu_count(tmp_path) == 3


def driver_lists(root: Path, *texts: str) -> None:
    for at, text in enumerate(texts):
        folder = root / "proc/driver/nvidia/gpus" / f"0000:{at:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)


T4 = "Model: \t\t Tesla T4\nIRQ:   \t\t 34\nGPU UUID: \t GPU-1\n"


def test_the_model_of_its_gpus_is_a_label_of_the_host(kernel: Path) -> None:
    driver_lists(kernel, T4, T4)
    host = machine.this_machine(kernel, root=kernel)
    assert (host.gpus, host.attributes) == (2.0, {"peloton.gpu.model": "Tesla T4"})
    (sent,) = configured(host, Key("backend/b")).labels
    assert sent == Label("peloton.gpu.model", "Tesla T4")


@pytest.mark.parametrize(
    "texts", [(), ("",), ("IRQ: 3\n",), (T4, "Model: \t NVIDIA A100\n"), (T4, "")]
)
def test_what_is_not_the_same_for_all_is_no_label(kernel: Path, texts: tuple[str, ...]) -> None:
    """A task with a condition on it would get any of them."""
    driver_lists(kernel, *texts)
    assert machine.this_machine(kernel, root=kernel).attributes == {}


@pytest.mark.parametrize(("count", "width"), [(1, 1000), (3, 333), (1000, 1), (1001, 1000)])
def test_virtual_hosts_share_the_ports_of_their_machine(
    kernel: Path, count: int, width: int
) -> None:
    one = configured(machine.this_machine(kernel, root=kernel), Key("backend/b"))
    found = [sent.ports for sent in apart({Key(f"host/{at}"): one for at in range(count)}).values()]
    assert {end - first for first, end in found} == {width}
    assert found[0][0] == 31000 and found[-1][1] <= 32000
    if count <= 1000:
        assert all(end <= first for (_, end), (first, _) in zip(found, found[1:], strict=False))
