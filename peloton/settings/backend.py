"""The settings of a backend: the hosts of a daemon, and what runs there.

Values only; whether they fit the other settings is checked there. Must not open a file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from peloton.settings.config import HostSetting
from peloton.settings.sandboxes import SANDBOXES_KEPT, SANDBOXES_KEPT_FOR, SANDBOXES_KEPT_MB

LIMITS_MODES, IMAGES_MODES = ("enforce", "try", "off"), ("ignore", "run", "refuse")
TASK_PIDS, TASK_PIDS_MAX = 4096, 4_194_304
"""Processes and threads of a task: how many, and the most that may be asked for."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One mapping of the file."""


class ProcessBackendSettings(_Record, frozen=True):
    """Real processes on this machine. Daemons of one machine share the folder, and its keeper.

    `keep_sandboxes`: of how many ended runs the files are kept, `keep_sandboxes_for` so long at
    most (`7d`, or `never` for no limit), `keep_sandboxes_mb` in all at most (0 for no limit).
    `task_user`: the account of tasks for which neither a user nor a caller is known.
    `limits`: whether tasks must be held to their limits by control groups ("enforce": where one
    cannot be, it is not started), are where the machine can ("try"), or are not ("off"). With
    `cpu_quota` a task gets no more than its cpus, even of idle ones; `task_pids` is the most
    processes and threads of a task, 0 for no limit. `images`: what becomes of a task with a
    container image: it runs without ("ignore"), as a container of podman or docker ("run"), or it
    fails ("refuse"). `measured_slack`: revocable jobs get the cpu that the tasks of a host hold
    and do not use, instead of `revocable_cpus` of the host.
    """

    folder: Path
    hosts: list[HostSetting]
    keep_sandboxes: int = SANDBOXES_KEPT
    keep_sandboxes_for: str = SANDBOXES_KEPT_FOR
    keep_sandboxes_mb: int = SANDBOXES_KEPT_MB
    task_user: str = ""
    limits: str = "try"
    cpu_quota: bool = False
    task_pids: int = TASK_PIDS
    images: str = "ignore"
    measured_slack: bool = False


class SimulatedBackendSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Runs that only pretend."""

    hosts: list[HostSetting]
    duration_s: float = 1.0
    seed: int = 0


class BackendSetting(_Record, frozen=True):
    """One of the two."""

    process: ProcessBackendSettings | None = None
    simulated: SimulatedBackendSettings | None = None

    @property
    def name(self) -> str:
        """Which of the two."""
        return "process" if self.process is not None else "simulated"

    @property
    def hosts(self) -> list[HostSetting]:
        """The virtual hosts, whatever runs on them."""
        found = self.process or self.simulated
        return found.hosts if found is not None else []
