"""The settings of a backend: the hosts of a daemon, and the runs there.

Whether values fit the other settings is checked in `daemon.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from peloton.settings.archive import NEVER, seconds
from peloton.settings.config import HostSetting
from peloton.settings.mesos_master import printable

LIMITS_MODES, IMAGES_MODES = ("enforce", "try", "off"), ("ignore", "run", "refuse")
_MASTER = re.compile(r"zk://[^\s/]+/\S+|[^\s:/@]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
BATCH_EXECUTORS = ("keeper", "command")
EXECUTOR_IDLE_S_MIN, EXECUTOR_IDLE_S_MAX = 1.0, 7 * 86_400.0
TASK_PIDS, TASK_PIDS_MAX = 4096, 4_194_304
"""Processes and threads of a task: how many, and the most that may be asked for."""
SANDBOXES_KEPT, SANDBOXES_KEPT_MAX = 100_000, 1_000_000
"""Ended runs whose files are kept: how many, and the most that may be asked for. It bounds the
memory of the keeper and the files on the disk; time and bytes are meant to decide."""
SANDBOXES_KEPT_MB, SANDBOXES_KEPT_MB_MAX = 10_240, 1_000_000_000
"""What they may take in all, and the most that may be asked for; 0 for no limit."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping of the file."""


class ProcessBackendSettings(_Record, frozen=True):
    """Real processes on this machine. Daemons of one machine share the folder, and its keeper.

    `keep_sandboxes`: the number of ended runs whose files are kept, `keep_sandboxes_for` so long at
    most (`7d`, or `never` for no limit), `keep_sandboxes_mb` in all at most (0 for no limit);
    `keep_sandboxes_free_mb` of the disk stays free, but 5 % of it at most (0: no reserve), even if
    files of jobs have to go that somebody reads, which no other rule removes. `task_user`: the
    account of tasks for which neither a user nor a caller is known. `limits`: whether tasks must be
    held to their limits by control groups ("enforce": a task whose limits cannot be enforced is not
    started), are if the machine can ("try"), or are not ("off"). With `cpu_quota` a task gets no
    more than its cpus, even of idle ones; `task_pids` is the most processes and threads of a task,
    0 for no limit. `images`: what becomes of a task with a container image: it runs without
    ("ignore"), as a container of podman or docker ("run"), or it fails ("refuse").
    `measured_slack`: revocable jobs get the cpu that the tasks of a host hold and do not use,
    instead of `revocable_cpus` of the host.
    """

    folder: Path
    hosts: list[HostSetting]
    keep_sandboxes: int = SANDBOXES_KEPT
    keep_sandboxes_for: str = "7d"
    keep_sandboxes_mb: int = SANDBOXES_KEPT_MB
    keep_sandboxes_free_mb: int = 256
    task_user: str = ""
    limits: str = "try"
    cpu_quota: bool = False
    task_pids: int = TASK_PIDS
    images: str = "ignore"
    measured_slack: bool = False

    @property
    def keep_sandboxes_s(self) -> float:
        """The time in s; 0 for no limit. Raises ValueError."""
        return 0.0 if self.keep_sandboxes_for == NEVER else seconds(self.keep_sandboxes_for)


class SimulatedBackendSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Runs that are simulated."""

    hosts: list[HostSetting]
    duration_s: float = 1.0
    seed: int = 0


class MesosTls(_Record, frozen=True):
    """TLS to masters and agents, in PEM.

    They must have certificates of the authority `ca`, with their host names; with `certificate` and
    `key` we show one as well.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


class MesosBackendSettings(_Record, frozen=True):
    """The agents of an Apache Mesos cluster, through one framework of ours.

    `name`: of the cluster, with which the names of its hosts begin. `master`: `HOST:PORT`, or the
    masters' place in ZooKeeper, `zk://HOST:PORT,…/PATH`. `role`: whose resources we get. `user`:
    the account of tasks that name none. `principal`, and the file with its secret: as whom we
    register; `agent_principal` and its file: as whom we read the files of agents. `tls`: masters
    and agents are spoken to in TLS. `framework`: the id under which we do, by default one that
    belongs to this Peloton cluster; a new one where the master has removed that. `revocable`:
    revocable jobs get what the cluster offers as such. `batch_executor`: what runs batch tasks on
    agents, `keeper` (an executor of ours) or `command` (that of Mesos); empty: `keeper`, and with
    `tls` `command`, as ours speaks no TLS with its agent. `executor`: the command that starts ours
    there, by default with the files of this installation.
    `executor_idle_s`: how long it stays without tasks.
    """

    master: str
    name: str = "mesos"
    role: str = "peloton"
    user: str = "root"
    principal: str = ""
    secret_file: Path | None = None
    agent_principal: str = ""
    agent_secret_file: Path | None = None
    tls: MesosTls | None = None
    framework: str = ""
    revocable: bool = False
    batch_executor: str = ""
    executor: str = ""
    executor_idle_s: float = 60.0

    @property
    def batch_by(self) -> str:
        """What runs batch tasks.

        The default is one that agents of this cluster can be expected to let in.
        """
        return self.batch_executor or ("command" if self.tls is not None else "keeper")


class BackendSetting(_Record, frozen=True):
    """A backend. `mesos` is one cluster, or a list of several."""

    process: ProcessBackendSettings | None = None
    simulated: SimulatedBackendSettings | None = None
    mesos: MesosBackendSettings | list[MesosBackendSettings] | None = None

    @property
    def given(self) -> list[str]:
        """The backends that are given; there must be one."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]

    @property
    def name(self) -> str:
        return next(iter(self.given), "simulated")

    @property
    def clusters(self) -> dict[str, MesosBackendSettings]:
        """The clusters of Mesos, each by its field."""
        found, field = self.mesos, "backend.mesos"
        if isinstance(found, list):
            return {f"{field}[{number}]": one for number, one in enumerate(found)}
        return {field: found} if found is not None else {}

    @property
    def hosts(self) -> list[HostSetting]:
        """The virtual hosts of the backend; those of Mesos come from the cluster."""
        found = self.process or self.simulated
        return found.hosts if found is not None else []


def mesos_problems(clusters: Mapping[str, MesosBackendSettings]) -> Iterator[str]:
    """Yield what is wrong with clusters, each by its field."""
    if not clusters:
        yield "backend.mesos: must not be empty"
    for field, found in clusters.items():
        yield from _problems_of_one(found, field)
    for field, first in itertools.combinations(reversed([*clusters]), 2):
        yield from _problems_of_two(clusters, field, first=first)


def _problems_of_two(
    clusters: Mapping[str, MesosBackendSettings], field: str, *, first: str
) -> Iterator[str]:
    """Yield why two clusters conflict: by names of hosts, or by machines."""
    found, other = clusters[field], clusters[first]
    ours, theirs = f"{found.name}.", f"{other.name}."
    if found.name == other.name:
        yield f"{field}.name: {found.name!r} is {first}.name as well"
    elif ours.startswith(theirs) or theirs.startswith(ours):
        text = f"with {first}.name, {other.name!r}, hosts of both could have one name"
        yield f"{field}.name: {found.name!r}: {text}"
    if printable(found.master) == printable(other.master):
        yield f"{field}.master: {printable(found.master)} is {first}.master as well"


def _problems_of_one(found: MesosBackendSettings, field: str) -> Iterator[str]:
    if not _MASTER.fullmatch(found.master):
        told = printable(found.master)
        yield f"{field}.master: {told!r} is neither HOST:PORT nor zk://HOST:PORT,…/PATH"
    for name in ("name", "role", "framework"):
        value = getattr(found, name)
        if not _WORD.fullmatch(value) and (value or name != "framework"):
            yield f"{field}.{name}: {value!r} is not a name: letters, digits, and . _ - inside"
    if found.batch_by not in BATCH_EXECUTORS:
        known = " or ".join(BATCH_EXECUTORS)
        yield f"{field}.batch_executor: {found.batch_executor!r} is not {known}"
    if not EXECUTOR_IDLE_S_MIN <= found.executor_idle_s <= EXECUTOR_IDLE_S_MAX:
        between = f"between {EXECUTOR_IDLE_S_MIN:g} and {EXECUTOR_IDLE_S_MAX:g}"
        yield f"{field}.executor_idle_s: {between}"
    if found.secret_file is not None and not found.principal:
        yield f"{field}.secret_file: needs a principal: {field}.principal is not given"
    if (found.agent_secret_file is None) != (not found.agent_principal):
        missing = "agent_secret_file" if found.agent_principal else "agent_principal"
        yield f"{field}.{missing}: agents want a principal and its secret; give both, or none"
    if found.tls is not None and (found.tls.certificate is None) != (found.tls.key is None):
        missing = "certificate" if found.tls.certificate is None else "key"
        yield f"{field}.tls.{missing}: a certificate of ours and its key; give both, or none"
