"""The ledger of a host: which runs it holds, in what phase, and what room that takes.

Turns runs and their phases into used resources and ports. It must not answer anybody: `decide`
does. A run stays until its task has seen its end, though its room is free from the end on.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable

from peloton.actors.host.messages import Port, RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import Outcome, pod_id
from peloton.runtime.vocabulary import Bits, Key, Value


class Phase(enum.IntEnum):
    """How far a run has come on its host."""

    ACCEPTED = 1
    STARTED = 2
    KILLING = 3
    ENDED = 4
    REFUSED = 5


HOLDING = frozenset((Phase.ACCEPTED, Phase.STARTED, Phase.KILLING))


class Run(Value, frozen=True, gc=False, array_like=True):
    """One run in the ledger. `spec` is kept until the start is reported, then let go."""

    crowd: Key
    member: int
    run: int
    phase: Phase
    resources: Resources
    spec: RunSpec | None = None
    ports: tuple[int, ...] = ()
    outcome: Outcome | None = None
    reason: str = ""
    since: float = 0.0  # when it was accepted
    ended_at: float | None = None  # where the end was heard of long after it

    @property
    def pod(self) -> str:
        """The run's name."""
        return pod_id(self.crowd, self.member, run=self.run)


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


def by_crowd(runs: Iterable[Run]) -> list[tuple[Key, int, list[Run]]]:
    """Runs grouped by (crowd, run number), in order of their first."""
    groups: dict[tuple[Key, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.crowd, run.run), []).append(run)
    return [(crowd, number, found) for (crowd, number), found in groups.items()]


def bits(runs: Iterable[Run]) -> Bits:
    """The members whose runs these are."""
    return Bits.of(*(run.member for run in runs))
