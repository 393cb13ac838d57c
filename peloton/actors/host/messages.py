"""Messages a host receives from tasks, its backend and operators, and those it sends to backends.

A run is named by its pod id, `<job>-<instance>-<run>`, which is the backend's own task id too.
Orders to a backend carry the shard's epoch; what it must do with them is in `backends/port.py`.
"""

from __future__ import annotations

import math
from typing import ClassVar

from peloton.actors.host.holds.foreign_names import shown_run
from peloton.actors.host.live.live_messages import ChangesNoted, CheckedSet, KnownSet, LimitRuns
from peloton.actors.host.machine_messages import (
    PORTS_DEFAULT,
    AddHost,
    RemoveHost,
    RemoveVolumes,
    SetUse,
)
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Bits, Delivery, Key, Message, Query, Value

UNREACHABLE_TIMEOUT_S = 60.0
RUNNING_LABELS_MAX = 128
"""A host whose runs have more different labels reports none: its summary would be too large."""

# Codes of refusals.
HAS_RUNS, NO_HOST, NOT_DOWN = "HAS_RUNS", "NO_HOST", "NOT_DOWN"


# ---- from tasks ----


class Launch(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: start this run. `spec` is filled in when the message leaves.

    `shares`: how many runs with the label `apart` of the spec the host may have already. A repeat
    may not know it, and has 0: the host may then refuse, and the next attempt is a new proposal.
    `prepare`: only grant the room of this run; it is started once a launch without it comes.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    run: int
    spec: RunSpec | None = None
    shares: int = 0
    prepare: bool = False


class KillRun(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: end this run, whatever its phase; answered `RunGone` if it is unknown."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    run: int
    grace_s: float
    notice: str = ""  # why, for the program: it may save what it has done


class RunSeen(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: the end or the refusal is journaled; forget the run."""

    run: int


# ---- from the operator and the backend ----


class ConfigureHost(Message, frozen=True, gc=False, array_like=True):
    """Assembly to host: what the machine has. A host that does not exist is created."""

    capacity: Resources
    labels: tuple[Label, ...] = ()
    backend: Key = Key("")
    ports: tuple[int, int] = PORTS_DEFAULT
    unreachable_timeout_s: float = UNREACHABLE_TIMEOUT_S


class BackendUp(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the backend is available. Answered with `ListRuns`."""


class BackendDown(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: nothing is known of the host's runs for now.

    The backend is not available, or the machine has left, and may come back.
    """

    text: str = ""


class RecheckBackend(Message, frozen=True, gc=False, array_like=True):
    """Inventory to host, after a recovery: reports of the backend may have been lost; poll it.

    The backend need not know that the shard was away.
    """


class HostGone(Message, frozen=True, gc=False, array_like=True):
    """Assembly or operator to host: the machine no longer belongs to the cluster.

    Answered with the number of runs that were lost. Without `lose_runs` the message is refused
    while the host has runs: only the host can check that without a race.
    """

    lose_runs: bool = True


class StartMaintenance(Message, frozen=True, gc=False, array_like=True):
    """Operator to host: grant nothing any more, end all runs, and then be down.

    Answered with the phase of the maintenance; a repeat changes nothing.
    """


class CompleteMaintenance(Message, frozen=True, gc=False, array_like=True):
    """Operator to host: be up again. Refused unless the host is down for maintenance."""


class MaintenanceSet(Value, frozen=True, gc=False, array_like=True):
    """Answer to `StartMaintenance` and `CompleteMaintenance`: the phase, as in `Maintenance`."""

    phase: int


class SetHostPool(Message, frozen=True, gc=False, array_like=True):
    """First inventory to host: the host belongs to this host pool, as of this version."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    pool: str
    version: int


class HostAppeared(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the machine is present, with this capacity, and available.

    The message creates the host, as `ConfigureHost` does, or adds it again. It is answered with
    `ListRuns`; the backend repeats it until it has received any order of the host.
    """

    capacity: Resources
    labels: tuple[Label, ...] = ()
    backend: Key = Key("")
    ports: tuple[int, int] = PORTS_DEFAULT


class RunsStarted(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the processes of these runs have started.

    `at` is when, one time for each, if the backend knows.
    """

    runs: tuple[str, ...]
    at: tuple[float, ...] = ()


class RunEnd(Value, frozen=True, gc=False, array_like=True):
    """How one run ended.

    `at` is when, and `started_at` when its process had started, if the backend knows.
    """

    run: str
    outcome: RunOutcome
    at: float | None = None
    started_at: float | None = None


class RunsEnded(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: these runs ended."""

    ends: tuple[RunEnd, ...]


class RunningSet(Value, frozen=True, gc=False, array_like=True):
    """The same run of these members of a crowd."""

    crowd: Key
    run: int
    members: Bits


class RunsListed(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: all runs that the backend knows, with the ends of those that ended.

    `asked_at` is that of the request: orders given since may be missing from the list. It is -inf
    if the host has not requested it. `keeper` is the identity of the keeper that made the list, and
    `keeper_at` its folder; both are empty if a backend has no keeper, or does not know its
    identity. `sets` are more runs that are running: only in an answer to a request that has sets.
    `started` is when the processes of `running` started, one time for each, if the backend knows; 0
    for a run whose process has not. `incarnation` names the machine behind the host, if another one
    may have the same name later.
    """

    running: tuple[str, ...]
    ends: tuple[RunEnd, ...] = ()
    asked_at: float = math.inf
    keeper: str = ""
    keeper_at: str = ""
    sets: tuple[RunningSet, ...] = ()
    started: tuple[float, ...] = ()
    incarnation: str = ""


# ---- to the backend ----


class StartRun(Value, frozen=True, gc=False, array_like=True):
    """One run to start.

    `ports` are the picked numbers, in the order of the spec's. `devices` are the indices of the
    gpus that the run may see; None: all of the machine.
    """

    run: str
    spec: RunSpec
    ports: tuple[int, ...] = ()
    devices: tuple[int, ...] | None = None

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return the spec's variables, the ids under the original's names, and the ports.

        Of several containers each has variables of its own in place of the spec's. Computed on
        demand: in ten thousand queued orders they would take ten times their size.
        """
        pod = shown_run(self.run)
        task = pod.rpartition("-")[0]
        job, _, instance = task.rpartition("-")
        pairs = zip(self.spec.ports, self.ports, strict=True)
        return (
            *(self.spec.environment if not self.spec.containers else ()),
            ("PELOTON_JOB_ID", job),
            ("PELOTON_INSTANCE_ID", instance),
            ("PELOTON_TASK_ID", task),
            ("PELOTON_POD_ID", pod),
            *((port.env, str(number)) for port, number in pairs if port.env),
        )


class StartRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: start these runs; a run that is known already is left as it is.

    `keeper` is the identity of the keeper that has the runs of this host: any other one must not
    start them, because the host will look for them at this one. Nor must another `incarnation` of
    the machine than the one that the host was compared with.
    """

    host: Key
    epoch: int
    runs: tuple[StartRun, ...]
    keeper: str = ""
    incarnation: str = ""


class StopRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: end these runs; each is told the `notice`, and killed after `grace_s`."""

    host: Key
    epoch: int
    runs: tuple[str, ...]
    grace_s: float
    notice: str = ""


class ForgetRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: the ends of these runs are journaled."""

    host: Key
    runs: tuple[str, ...]


class ListRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: list your runs.

    `sets` are those that run according to the ledger. `checked` are runs, started or not, whose
    health is to be checked while they run.
    """

    host: Key
    epoch: int
    asked_at: float = math.inf
    sets: tuple[KnownSet, ...] = ()
    checked: tuple[CheckedSet, ...] = ()


class PingBackend(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: are you available? Answered with `BackendUp`, or `BackendDown` and why."""

    host: Key


class GetHost(Query, frozen=True, gc=False, array_like=True):
    """Asks for the host's state."""


MESSAGES: dict[int, type] = {
    1: Launch,
    2: KillRun,
    3: RunSeen,
    4: ConfigureHost,
    5: BackendUp,
    6: BackendDown,
    7: HostGone,
    8: RunsStarted,
    9: RunsEnded,
    10: RunsListed,
    11: RecheckBackend,
    12: HostAppeared,
    14: StartMaintenance,
    15: CompleteMaintenance,
    16: SetHostPool,
}

BACKEND_MESSAGES: dict[int, type] = {
    1: StartRuns,
    2: StopRuns,
    3: ForgetRuns,
    4: ListRuns,
    5: PingBackend,
    6: AddHost,
    7: RemoveHost,
    28: ChangesNoted,
    88: RemoveVolumes,
    131: SetUse,
    151: LimitRuns,
}
"""Messages backends receive, by number, for backends that are reached through another daemon."""
