"""A host as others read it, with one record for each run.

`HostAnswer` is the answer to `GetHost`; its encoding is permanent.
"""

from __future__ import annotations

import immutables

from peloton.actors.host.facts import HostQuarantined, TroubleSign
from peloton.actors.host.holds.hold_messages import HostHold, TaskHold
from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.ledger import LedgerRun
from peloton.actors.host.machine_messages import HostVolume, UseAtBackend
from peloton.actors.host.messages import GetHost
from peloton.actors.host.state import Host, HostStates, Maintenance
from peloton.actors.resources import Resources
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import At, Key, Value


class HostAnswer(Value, frozen=True, gc=False, array_like=True):
    """The fields of the state, with the runs by name."""

    state: HostStates
    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float
    runs: immutables.Map[str, LedgerRun] = immutables.Map()
    used: Resources = Resources()
    version: int = 0
    because: str = ""
    removed: bool = False
    ports_taken: int = 0
    launches: int = 0
    keeper: str = ""
    keeper_at: str = ""
    running: immutables.Map[Label, int] = immutables.Map()
    maintenance: Maintenance = Maintenance.NONE
    pool: str = ""
    pool_version: int = 0
    trouble: tuple[TroubleSign, ...] = ()
    quarantine: HostQuarantined | None = None
    hold: HostHold | None = None
    foreign: int = 0
    proof_from: float = 0.0
    task_holds: tuple[TaskHold, ...] = ()
    moving: str = ""
    declared: int | None = None
    volumes: immutables.Map[str, HostVolume] = immutables.Map()
    use: UseAtBackend = UseAtBackend()
    incarnation: str = ""
    ports_in_use: tuple[int, ...] = ()


def waiting(key: Key, host: Host) -> HostView | None:
    """Return a host that stays reconciling until a person acts, with the reason; None for any
    other.

    Only these have a summary: of a million hosts that are well nothing is kept.
    """
    if host.removed or host.state != HostStates.RECONCILING or not host.because:
        return None
    return HostView(host.summary(key, tasks=False), host.state, len(host.runs), host.because)


def get_host(host: Host, query: GetHost, at: At) -> HostAnswer:
    values = {name: getattr(host, name) for name in HostAnswer.__struct_fields__}
    return HostAnswer(**{**values, "runs": immutables.Map(host.runs.items())})
