"""The size of this machine, for the one host of a minicluster; and the name of a process on it.

Turns the kernel's figures into the size of a host, less what the machine itself needs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from pathlib import Path

from peloton.assembly.gpus import MACHINE_ROOT, gpu_count, gpu_labels
from peloton.settings.config import HOST_NAME_PREFIX, HostSetting

MB = 1024 * 1024
MEMORY_LEFT = 0.1
MEMORY_LEFT_MB_MAX = 4096.0
"""A tenth of the memory stays with the system and the daemon, at most this."""
DISK_LEFT = 0.1
CGROUP = Path("/sys/fs/cgroup")


def this_machine(data: Path, *, root: Path = MACHINE_ROOT) -> HostSetting:
    """Return the machine as a host; `data` is the folder whose file system the tasks write to.

    All cpus count: they are shared by time, and the daemon needs little of it. The disk counts
    whole, not as far as it is free: the size of a host must not change from start to start.
    """
    memory_mb = _memory_mb()
    left_mb = min(memory_mb * MEMORY_LEFT, MEMORY_LEFT_MB_MAX)
    return HostSetting(
        name=f"{HOST_NAME_PREFIX}0",
        cpus=_cpus(),
        memory_mb=float(int(memory_mb - left_mb)),
        disk_mb=float(int(_disk_mb(data) * (1.0 - DISK_LEFT))),
        gpus=float(gpu_count(root)),
        attributes=gpu_labels(root),
    )


def _cpus() -> float:
    """Return the cpus this process may run on, or the quota of its container if that is less."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota, _, period = _text(CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cpus = min(cpus, int(quota) / int(period))
    return cpus


def _memory_mb() -> float:
    """Return the machine's memory, or the limit of its container if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _text(CGROUP / "memory.max").strip()
    return min(memory, int(limit) if limit.isdigit() else memory) / MB


def _disk_mb(data: Path) -> float:
    there = data
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).total / MB


def _text(file: Path) -> str:
    """Return a file's text; empty if the kernel has none, as outside of containers."""
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""


def process_name() -> str:
    """Return a name that is unique for ever: pids and the host names of containers are reused."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
