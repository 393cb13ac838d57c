"""What a host writes down. Numbers are for good: journals hold them.

A fact must not say more than its fold needs, nor ever change its meaning. What is so of a single
run names it; what is so of many members of a crowd names the set.
"""

from __future__ import annotations

from peloton.actors.host.messages import RunEnd, RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Bits, Fact, Key


class HostConfigured(Fact, frozen=True, gc=False, array_like=True):
    """What the machine has."""

    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float


class RunsAccepted(Fact, frozen=True, gc=False, array_like=True):
    """Room is held for these members' run. `ports` has the picked ports, one tuple a member."""

    crowd: Key
    members: Bits
    run: int
    spec: RunSpec
    at: float
    ports: tuple[tuple[int, ...], ...] = ()


class RunsRefused(Fact, frozen=True, gc=False, array_like=True):
    """This run of these members will never start here."""

    crowd: Key
    members: Bits
    run: int
    reason: str


class ProcessesStarted(Fact, frozen=True, gc=False, array_like=True):
    """The backend runs these."""

    runs: tuple[str, ...]


class KillOrdered(Fact, frozen=True, gc=False, array_like=True):
    """These are to end."""

    runs: tuple[str, ...]


class ProcessesEnded(Fact, frozen=True, gc=False, array_like=True):
    """These are over: their room is free. Their tasks are told until they have seen it."""

    ends: tuple[RunEnd, ...]


class RunsForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The tasks have seen it."""

    runs: tuple[str, ...]


class HostUnreachable(Fact, frozen=True, gc=False, array_like=True):
    """The backend cannot be asked; the runs may go on."""

    text: str


class HostReachable(Fact, frozen=True, gc=False, array_like=True):
    """The backend answers; the ledger is unsure until it has been compared.

    `text` says why it cannot be compared with this backend, where that is known.
    """

    text: str = ""


class HostReconciled(Fact, frozen=True, gc=False, array_like=True):
    """Ledger and backend agree. `keeper` is the identity of the keeper it was compared with."""

    keeper: str = ""
    keeper_at: str = ""


class HostLost(Fact, frozen=True, gc=False, array_like=True):
    """The machine is taken for lost, and every run on it with it."""

    reason: str


class HostRemoved(Fact, frozen=True, gc=False, array_like=True):
    """The machine is not part of the cluster any more, and every run on it is lost."""

    reason: str


class SetStarted(Fact, frozen=True, gc=False, array_like=True):
    """The backend runs these: as `ProcessesStarted`, of many members."""

    crowd: Key
    members: Bits
    run: int


class SetEnded(Fact, frozen=True, gc=False, array_like=True):
    """These are over, all in the same way: as `ProcessesEnded`, of many members."""

    crowd: Key
    members: Bits
    run: int
    outcome: RunOutcome
    at: float | None = None


class SetForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The tasks have seen it: as `RunsForgotten`, of many members."""

    crowd: Key
    members: Bits
    run: int


FACTS: dict[int, type] = {
    1: HostConfigured,
    2: RunsAccepted,
    3: RunsRefused,
    4: ProcessesStarted,
    5: KillOrdered,
    6: ProcessesEnded,
    7: RunsForgotten,
    8: HostUnreachable,
    9: HostReachable,
    10: HostReconciled,
    11: HostLost,
    12: HostRemoved,
    13: SetStarted,
    14: SetEnded,
    15: SetForgotten,
}
