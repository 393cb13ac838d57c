"""The ledger of a host: which runs it holds, in what phase, and what room that takes.

Turns runs and their phases into used resources and ports, and says in a table what a host does in
each phase with each message about a run. It must not answer anybody: `decide` and `reports` take
the steps. A run stays until its task has seen its end, though its room is free from the end on.
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


class About(enum.IntEnum):
    """What a host hears about a run: from its task, or from its backend."""

    LAUNCH = 1
    KILL = 2
    SEEN = 3
    STARTED = 4  # reported
    ENDED = 5  # reported, or listed as ended
    LISTED = 6  # as running
    UNLISTED = 7  # neither running nor ended, in a list asked for after the run was accepted


class RunStep(enum.IntEnum):
    """What the host does then. Whatever changes the phase is written down first."""

    NOTHING = 1
    GRANT = 2  # or refuse: then ACCEPTED, or REFUSED
    ANSWER = 3  # from the ledger
    ANSWER_GONE = 4
    KILL = 5  # then KILLING
    KILL_AGAIN = 6
    KILL_STRANGER = 7  # nobody owns the run
    START_AGAIN = 8  # the order was lost
    STARTED = 9  # then STARTED
    ENDED = 10  # then ENDED
    LOST = 11  # then ENDED, as lost
    FORGET = 12


_A, _S = About, RunStep
_OVER: Mapping[About, RunStep] = {
    _A.LAUNCH: _S.ANSWER,
    _A.KILL: _S.ANSWER,
    _A.SEEN: _S.FORGET,
    _A.STARTED: _S.KILL_STRANGER,
    _A.ENDED: _S.NOTHING,
    _A.LISTED: _S.KILL_STRANGER,
    _A.UNLISTED: _S.NOTHING,
}

RUN_TABLE: Mapping[RunPhase | None, Mapping[About, RunStep]] = {
    None: {  # not in the ledger
        _A.LAUNCH: _S.GRANT,
        _A.KILL: _S.ANSWER_GONE,
        _A.SEEN: _S.NOTHING,
        _A.STARTED: _S.KILL_STRANGER,
        _A.ENDED: _S.NOTHING,
        _A.LISTED: _S.KILL_STRANGER,
        _A.UNLISTED: _S.NOTHING,
    },
    RunPhase.ACCEPTED: {
        _A.LAUNCH: _S.ANSWER,
        _A.KILL: _S.KILL,
        _A.SEEN: _S.NOTHING,
        _A.STARTED: _S.STARTED,
        _A.ENDED: _S.ENDED,
        _A.LISTED: _S.STARTED,
        _A.UNLISTED: _S.START_AGAIN,
    },
    RunPhase.STARTED: {
        _A.LAUNCH: _S.ANSWER,
        _A.KILL: _S.KILL,
        _A.SEEN: _S.NOTHING,
        _A.STARTED: _S.NOTHING,
        _A.ENDED: _S.ENDED,
        _A.LISTED: _S.NOTHING,
        _A.UNLISTED: _S.LOST,
    },
    RunPhase.KILLING: {
        _A.LAUNCH: _S.ANSWER,
        _A.KILL: _S.KILL_AGAIN,
        _A.SEEN: _S.NOTHING,
        _A.STARTED: _S.NOTHING,
        _A.ENDED: _S.ENDED,
        _A.LISTED: _S.KILL_AGAIN,
        _A.UNLISTED: _S.LOST,
    },
    RunPhase.ENDED: _OVER,
    RunPhase.REFUSED: _OVER,
}


class LedgerRun(Value, frozen=True, gc=False, array_like=True):
    """One run in the ledger. `spec` is kept until the start is reported, then let go."""

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
    ended_at: float | None = None  # where the end was heard of long after it

    @property
    def pod(self) -> str:
        """The run's name."""
        return pod_id(self.crowd, self.member, run=self.run)


def step(run: LedgerRun | None, about: About) -> RunStep:
    """What is to be done with a run of the ledger, or one that it does not know."""
    return RUN_TABLE[None if run is None else run.phase][about]


@functools.lru_cache(maxsize=4)
def pods(crowd: Key, members: Bits, *, run: int) -> tuple[tuple[int, str], ...]:
    """Members with the names of their run.

    A launch asks three times in a row: for what is known, for the orders, for the ledger.
    Remembered, all three hold the same strings, and a run's name is in memory once.
    """
    return tuple((member, pod_id(crowd, member, run=run)) for member in members)


def pick_ports(
    wanted: tuple[Port, ...], taken: set[int], *, span: tuple[int, int]
) -> tuple[int, ...]:
    """Numbers for the ports of one run, the lowest free ones; empty when they do not suffice.

    `taken` is updated on success, so that the next run of the same decision gets others.
    """
    fixed = [port.number for port in wanted if port.number]
    if len({*fixed}) < len(fixed) or not taken.isdisjoint(fixed):
        return ()
    # The fixed ones first: a picked one must not take a number that the same run names.
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
    """The members whose runs these are."""
    return Bits.of(*(run.member for run in runs))
