"""The ledger of a host: its runs, their phases, and what they hold.

`RUN_TABLE` has the step a host takes in each phase of a run for each event. This module must not
send: `decide` and `reports` take the steps. A run stays in the ledger until its task has seen its
end, though its resources are free from the end on.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping

from peloton.actors.host.messages import Port, RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome, pod_id
from peloton.runtime.vocabulary import Bits, Key, Value


class RunPhase(enum.IntEnum):
    """How far a run has come on its host."""

    ACCEPTED = 1
    STARTED = 2
    KILLING = 3
    ENDED = 4
    REFUSED = 5


HOLDING = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING))


class RunEvent(enum.IntEnum):
    """What a host receives about a run: from its task, or from its backend."""

    LAUNCH = 1
    KILL = 2
    SEEN = 3
    STARTED = 4  # reported
    ENDED = 5  # reported, or listed as ended
    LISTED = 6  # as running
    UNLISTED = 7  # neither running nor ended, in a list requested after the run was accepted


class RunStep(enum.IntEnum):
    """What the host does then. A change of phase is journaled first."""

    NOTHING = 1
    GRANT = 2  # or refuse: then ACCEPTED, or REFUSED
    ANSWER = 3  # from the ledger
    ANSWER_GONE = 4
    KILL = 5  # then KILLING
    KILL_AGAIN = 6
    KILL_UNOWNED = 7  # no task owns the run
    START_AGAIN = 8  # the order was lost
    STARTED = 9  # then STARTED
    ENDED = 10  # then ENDED
    LOST = 11  # then ENDED, as lost
    FORGET = 12


_E, _S = RunEvent, RunStep
_FINISHED: Mapping[RunEvent, RunStep] = {
    _E.LAUNCH: _S.ANSWER,
    _E.KILL: _S.ANSWER,
    _E.SEEN: _S.FORGET,
    _E.STARTED: _S.KILL_UNOWNED,
    _E.ENDED: _S.NOTHING,
    _E.LISTED: _S.KILL_UNOWNED,
    _E.UNLISTED: _S.NOTHING,
}

RUN_TABLE: Mapping[RunPhase | None, Mapping[RunEvent, RunStep]] = {
    None: {  # not in the ledger
        _E.LAUNCH: _S.GRANT,
        _E.KILL: _S.ANSWER_GONE,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.KILL_UNOWNED,
        _E.ENDED: _S.NOTHING,
        _E.LISTED: _S.KILL_UNOWNED,
        _E.UNLISTED: _S.NOTHING,
    },
    RunPhase.ACCEPTED: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.STARTED,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.STARTED,
        _E.UNLISTED: _S.START_AGAIN,
    },
    RunPhase.STARTED: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.NOTHING,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.NOTHING,
        _E.UNLISTED: _S.LOST,
    },
    RunPhase.KILLING: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL_AGAIN,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.NOTHING,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.KILL_AGAIN,
        _E.UNLISTED: _S.LOST,
    },
    RunPhase.ENDED: _FINISHED,
    RunPhase.REFUSED: _FINISHED,
}


class LedgerRun(Value, frozen=True, gc=False, array_like=True):
    """One run in the ledger. `spec` is kept until the start is reported."""

    crowd: Key
    member: int
    run: int
    phase: RunPhase
    resources: Resources
    spec: RunSpec | None = None
    ports: tuple[int, ...] = ()
    outcome: RunOutcome | None = None
    reason: str = ""
    since: float = 0.0  # when it was accepted
    ended_at: float | None = None  # where the end was reported long after it

    @property
    def pod(self) -> str:
        """The run's name."""
        return pod_id(self.crowd, self.member, run=self.run)


def step(run: LedgerRun | None, event: RunEvent) -> RunStep:
    """The step for an event of a run of the ledger, or of an unknown run (None)."""
    return RUN_TABLE[None if run is None else run.phase][event]


@functools.lru_cache(maxsize=4)
def pods(crowd: Key, members: Bits, *, run: int) -> tuple[tuple[int, str], ...]:
    """Members with the names of their run.

    A launch needs the names three times: to look them up, for the orders, and for the ledger.
    The cache makes all three share the strings, so that a run's name is in memory once.
    """
    return tuple((member, pod_id(crowd, member, run=run)) for member in members)


def pick_ports(
    wanted: tuple[Port, ...], taken: set[int], *, span: tuple[int, int]
) -> tuple[int, ...]:
    """Numbers for the ports of one run, the lowest free ones; empty if there are not enough.

    `taken` is updated on success, so that the next run of the same decision gets others.
    """
    fixed = [port.number for port in wanted if port.number]
    if len({*fixed}) < len(fixed) or not taken.isdisjoint(fixed):
        return ()
    # A picked port must not take a number that the same run names as fixed.
    free = (number for number in range(*span) if number not in taken and number not in fixed)
    picked = tuple(port.number or next(free, 0) for port in wanted)
    if 0 in picked:
        return ()
    taken.update(picked)
    return picked


def by_crowd(runs: Iterable[LedgerRun]) -> list[tuple[Key, int, list[LedgerRun]]]:
    """Runs grouped by (crowd, run number), in order of their first."""
    groups: dict[tuple[Key, int], list[LedgerRun]] = {}
    for run in runs:
        groups.setdefault((run.crowd, run.run), []).append(run)
    return [(crowd, number, found) for (crowd, number), found in groups.items()]


def bits(runs: Iterable[LedgerRun]) -> Bits:
    """The members to which these runs belong."""
    return Bits.of(*(run.member for run in runs))
