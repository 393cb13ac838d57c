"""The state of a host: its machine, its ledger, and what others are told of it."""

from __future__ import annotations

import immutables
import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.holds.hold_messages import HostHold, TaskHold
from peloton.actors.host.ledger import Ledger, RunSet
from peloton.actors.host.machine_messages import UseAtBackend
from peloton.actors.host.messages import RUNNING_LABELS_MAX
from peloton.actors.host.stages import OCCUPYING, HostStates, Maintenance
from peloton.actors.host.volume_folds import HostVolumes
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.placement.conditions import HOST_POOL
from peloton.placement.messages import HostSummary, Label, ReservedRoom, port_label
from peloton.runtime.vocabulary import Key, Value

replace = msgspec.structs.replace


class Host(Value, frozen=True, gc=False, array_like=True):
    """A machine and its ledger. `version` rises with every change of resources or labels.

    `keeper` is the identity of the keeper that the ledger was first compared with; the list of
    another keeper is not applied. Empty: no keeper was met yet, and the next one is adopted.
    """

    state: HostStates
    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float
    runs: Ledger = Ledger()
    used: Resources = Resources()
    version: int = 0
    because: str = ""
    removed: bool = False  # not part of the cluster any more; messages about its runs are answered
    ports_taken: int = 0  # of `ports`, by its runs
    launches: int = 0  # members whose launch was decided here, accepted or refused; never falls
    keeper: str = ""
    keeper_at: str = ""  # its folder when it was compared last, for people
    running: immutables.Map[Label, int] = immutables.Map()  # of runs that hold resources, counted
    maintenance: Maintenance = Maintenance.NONE
    pool: str = ""  # of hosts, as told last; "" as long as it was never told: the default one
    pool_version: int = 0  # of the order that told it
    trouble: tuple[f.TroubleSign, ...] = ()  # since a run has succeeded, the last ones
    quarantine: f.HostQuarantined | None = None  # while placers leave it out
    hold: HostHold | None = None  # while there is one, all that is unused is the holder's
    foreign: int = 0  # runs that no task has
    proof_from: float = 0.0  # no list that was requested before proves that a run is not there
    task_holds: tuple[TaskHold, ...] = ()  # while there is one, others get nothing
    moving: str = ""  # the pool of hosts that it joins once it is down
    declared: int | None = None  # slack by its configuration, while measured slack is in `capacity`
    volumes: HostVolumes = immutables.Map()  # by name; `used` counts their room
    use: UseAtBackend = UseAtBackend()  # what its backend is to know of its maintenance
    incarnation: str = ""  # of its machine: none but this one may have got orders to start its runs
    ports_in_use: tuple[int, ...] = ()  # by others on its machine, as its backend has told

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """Return the labels of the machine, and its pool."""
        if not self.pool:
            return self.labels
        return (
            *(one for one in self.labels if one.key != HOST_POOL),
            Label(HOST_POOL, self.pool),
        )

    @property
    def unused(self) -> Resources:
        """Return the resources that no run occupies."""
        unused = self.capacity - self.used
        # Where slack was taken back, its runs may still be ending: that is no room for anybody.
        return unused.with_slack(0) if unused.slack < 0 else unused

    @property
    def used_by_runs(self) -> Resources:
        """Return what runs hold, without the volumes, which stay when these have ended."""
        used = self.used
        for name in sorted(self.volumes):
            used = used - self.volumes[name].config.room
        return used

    @property
    def free(self) -> Resources:
        """Return the resources that may be granted to any task: neither runs nor holds have
        them."""
        return Resources() if self.held else self.unused

    @property
    def held(self) -> bool:
        """Return whether all that runs leave free is held for a client."""
        return self.hold is not None or bool(self.task_holds)

    @property
    def grants(self) -> bool:
        """Return whether new runs may start here."""
        return self.state == HostStates.UP and self.maintenance == Maintenance.NONE

    @property
    def free_ports(self) -> int:
        """Return how many ports of the range neither a run holds nor others use."""
        first, end = self.ports
        others = sum(in_range(self, port) for port in self.ports_in_use)
        return max(0, end - first - self.ports_taken - others)

    def summary(self, key: Key, *, tasks: bool = True) -> HostSummary:
        """Return the host as placers see it, with the labels of its `tasks` if these are to be
        known."""
        return HostSummary(
            host=key,
            position=self.version,
            capacity=self.capacity,
            free=self.free,
            labels=self.all_labels,
            up=self.grants,
            ports=0 if self.held else self.free_ports,
            running=self._running_labels() if tasks else None,
            launches=self.launches,
            quarantined=self.quarantine is not None,
            reserved=self._reserved_room() if self.task_holds and self.hold is None else None,
        )

    def _reserved_room(self) -> ReservedRoom:
        tasks = ((one.crowd, one.member) for one in self.task_holds if not is_foreign(one.crowd))
        return ReservedRoom(self.unused, self.free_ports, tuple(tasks))

    def _running_labels(self) -> tuple[tuple[Label, int], ...] | None:
        """Return the labels of tasks.

        Ports that others use count as fixed ones of a run: placers pass the host over.
        """
        left = RUNNING_LABELS_MAX - len(self.running)
        if left < 0:
            return None
        # Of a port that has no place here the host itself refuses the run.
        used = {port_label(port): 1 for port in self.ports_in_use[:left]}
        return tuple(sorted({**used, **self.running}.items()))


def occupying_runs(host: Host) -> list[tuple[Key, RunSet]]:
    """Return the runs that occupy resources, with their crowds."""
    return [(crowd, some) for crowd, some in host.runs.sets() if some.phase in OCCUPYING]


def configuration(host: Host) -> f.HostConfigured:
    """Return the configuration of the host as a fact, to compare a new one with."""
    capacity = host.capacity
    if host.declared is not None:
        capacity = capacity.with_slack(host.declared)
    return f.HostConfigured(
        capacity, host.labels, host.backend, host.ports, host.unreachable_timeout_s
    )


def ports_taken(host: Host) -> int:
    """Return how many ports of the host's range its runs hold."""
    return len(
        {port for _, some in host.runs.sets() for port in some.ports if in_range(host, port)}
    )


def ports_given(host: Host) -> set[int]:
    """Return the ports that no other run may have: those of its runs, and those that others use."""
    return {port for _, some in host.runs.sets() for port in some.ports}.union(host.ports_in_use)


def in_range(host: Host, port: int) -> bool:
    """Return whether a port is in the range that the host picks from; a run may name any other."""
    first, end = host.ports
    return first <= port < end


def lost_outcome(reason: str) -> RunOutcome:
    """Return the outcome of a run whose host is lost."""
    return RunOutcome(End.LOST, reason="host lost", message=f"Task LOST: {reason}", system=True)
