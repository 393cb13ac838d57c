"""The ledger of a host: its runs, their phases, and what they occupy.

Alike runs of one crowd are one record (`RunSet`), so that a thousand cost what one does; names of
runs are derived when they are needed. A run stays in the ledger until its task has seen its end,
though its resources are free from the end on. `RUN_TABLE` has the step of a host in each phase of a
run for each event; `decide` and `reports` take the steps. A run that is not in the ledger has no
phase: a launch is granted or refused, a kill is answered `RunGone`, and what is reported to run is
killed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import immutables
import msgspec

from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.host.stages import RunPhase
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome, parse_pod, pod_id
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Bits, Key, Value, members_of

replace = msgspec.structs.replace


class RunEvent(enum.IntEnum):
    """What a host receives about a run: from its task, or from its backend."""

    LAUNCH = 1
    KILL = 2
    SEEN = 3
    STARTED = 4  # reported
    ENDED = 5  # reported, or listed as ended
    LISTED = 6  # as running
    UNLISTED = 7  # neither running nor ended, in a list requested after the run was accepted
    PREPARE = 8  # a launch that is to wait for the word of its task


class RunStep(enum.IntEnum):
    """What the host does upon an event. A change of phase is journaled first."""

    NOTHING = 1
    ANSWER = 2  # from the ledger
    KILL = 3  # then KILLING
    KILL_AGAIN = 4
    KILL_UNOWNED = 5  # no task owns the run
    START_AGAIN = 6  # the order was lost
    STARTED = 7  # then STARTED
    ENDED = 8  # then ENDED
    LOST = 9  # then ENDED, as lost
    FORGET = 10
    START_PREPARED = 11  # then ACCEPTED
    RELEASE = 12  # and forget it: nothing was started


_E, _S = RunEvent, RunStep
_FINISHED: Mapping[RunEvent, RunStep] = {
    _E.LAUNCH: _S.ANSWER,
    _E.KILL: _S.ANSWER,
    _E.SEEN: _S.FORGET,
    _E.STARTED: _S.KILL_UNOWNED,
    _E.ENDED: _S.NOTHING,
    _E.LISTED: _S.KILL_UNOWNED,
    _E.UNLISTED: _S.NOTHING,
    _E.PREPARE: _S.ANSWER,
}

RUN_TABLE: Mapping[RunPhase, Mapping[RunEvent, RunStep]] = {
    RunPhase.ACCEPTED: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.STARTED,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.STARTED,
        _E.UNLISTED: _S.START_AGAIN,
        _E.PREPARE: _S.ANSWER,
    },
    RunPhase.STARTED: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.NOTHING,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.NOTHING,
        _E.UNLISTED: _S.LOST,
        _E.PREPARE: _S.ANSWER,
    },
    RunPhase.KILLING: {
        _E.LAUNCH: _S.ANSWER,
        _E.KILL: _S.KILL_AGAIN,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.NOTHING,
        _E.ENDED: _S.ENDED,
        _E.LISTED: _S.KILL_AGAIN,
        _E.UNLISTED: _S.LOST,
        _E.PREPARE: _S.ANSWER,
    },
    RunPhase.ENDED: _FINISHED,
    RunPhase.REFUSED: _FINISHED,
    RunPhase.PREPARED: {
        _E.LAUNCH: _S.START_PREPARED,
        _E.KILL: _S.RELEASE,
        _E.SEEN: _S.NOTHING,
        _E.STARTED: _S.KILL_UNOWNED,
        _E.ENDED: _S.NOTHING,
        _E.LISTED: _S.KILL_UNOWNED,
        _E.UNLISTED: _S.NOTHING,
        _E.PREPARE: _S.ANSWER,
    },
}


class RunSet(Value, frozen=True, gc=False, array_like=True):
    """Runs of one crowd that differ in nothing but their member, and each have these `resources`.

    `spec` is kept until the start is reported.
    """

    members: Bits
    run: int
    phase: RunPhase
    resources: Resources
    spec: RunSpec | None = None
    ports: tuple[int, ...] = ()
    outcome: RunOutcome | None = None
    reason: str = ""
    since: float = 0.0  # when they were accepted
    ended_at: float | None = None  # where the end was reported long after it
    labels: tuple[Label, ...] = ()  # that the host counts while the runs hold resources
    started_at: float | None = None  # where the start was reported long after it
    devices: tuple[int, ...] = ()  # indices of the gpus that are their own
    priority: int = 0  # of runs on slack
    asks: bool = False  # their slice ends them for maintenance


class Found(NamedTuple):
    """A run of the ledger by its name: the set that contains it, and its member."""

    crowd: Key
    member: int
    of: RunSet


NO_SETS: tuple[RunSet, ...] = ()


class Ledger(Value, frozen=True, gc=False, array_like=True):
    """The runs of a host: sets of alike runs, by crowd.

    As a mapping the ledger maps the name of a run to the set that has it. Equal ledgers have equal
    sets, whatever happened in which order (`_merged`).
    """

    grouped: immutables.Map[Key, tuple[RunSet, ...]] = immutables.Map()

    def of(self, crowd: Key, run: int) -> list[RunSet]:
        """Return the sets of this run of members of a crowd."""
        return [each for each in self.grouped.get(crowd, NO_SETS) if each.run == run]

    def sets(self) -> Iterator[tuple[Key, RunSet]]:
        """Yield every set with its crowd, in an order that is the same in every process."""
        for crowd in sorted(self.grouped):
            for each in self.grouped[crowd]:
                yield crowd, each

    def find(self, pod: str) -> Found | None:
        """Return the run of this name with its set, or None."""
        parsed = parse_pod(pod)
        if parsed is None:
            return None
        crowd, member, run = parsed
        for each in self.grouped.get(crowd, NO_SETS):
            if each.run == run and each.members.raw >> member & 1:
                return Found(crowd, member, each)
        return None

    def get(self, pod: str) -> RunSet | None:
        """Return the set that has the run of this name, or None."""
        found = self.find(pod)
        return None if found is None else found.of

    def put(self, crowd: Key, new: RunSet) -> Ledger:
        """Return the ledger with these runs; those of the same members and number are replaced."""
        raw = new.members.raw
        kept = [
            _less(each, raw) if each.run == new.run else each
            for each in self.grouped.get(crowd, NO_SETS)
        ]
        return self._with(crowd, [*kept, new])

    def change(
        self, crowd: Key, members: Bits, *, run: int, to: Callable[[RunSet], RunSet | None]
    ) -> Ledger:
        """Return the ledger with these runs changed, set by set; None removes them.

        Raises KeyError if one is missing.
        """
        raw, after = members.raw, []
        for each in self.grouped.get(crowd, NO_SETS):
            hit = each.members.raw & raw if each.run == run else 0
            if not hit:
                after.append(each)
                continue
            raw &= ~hit
            after.append(_less(each, hit))
            changed = to(replace(each, members=Bits(hit)))
            if changed is not None:
                after.append(changed)
        if raw:
            raise KeyError(pod_id(crowd, members_of(raw)[0], run=run))
        return self._with(crowd, after)

    def _with(self, crowd: Key, sets: list[RunSet]) -> Ledger:
        merged = _merged(sets)
        if merged:
            return Ledger(self.grouped.set(crowd, merged))
        return Ledger(self.grouped.delete(crowd)) if crowd in self.grouped else self

    def __getitem__(self, pod: str) -> RunSet:
        found = self.get(pod)
        if found is None:
            raise KeyError(pod)
        return found

    def __contains__(self, pod: str) -> bool:
        return self.find(pod) is not None

    def __iter__(self) -> Iterator[str]:
        for name, _ in self.items():
            yield name

    def __len__(self) -> int:
        return sum(len(each.members) for _, each in self.sets())

    def __bool__(self) -> bool:
        return len(self.grouped) > 0

    def items(self) -> Iterator[tuple[str, RunSet]]:
        """Yield the name of every run with the set that has it."""
        for crowd, each in self.sets():
            for member in each.members:
                yield pod_id(crowd, member, run=each.run), each


def _less(of: RunSet, raw: int) -> RunSet:
    left = of.members.raw & ~raw
    return of if left == of.members.raw else replace(of, members=Bits(left))


def _merged(sets: list[RunSet]) -> tuple[RunSet, ...]:
    """Return the sets without empty ones, equal ones joined, ordered by run number and lowest
    member."""
    sets = [each for each in sets if each.members.raw]
    if len(sets) > 1:
        joined: dict[RunSet, int] = {}
        for each in sets:
            alike = replace(each, members=_NOBODY)
            joined[alike] = joined.get(alike, 0) | each.members.raw
        if len(joined) < len(sets):
            sets = [replace(alike, members=Bits(raw)) for alike, raw in joined.items()]
        sets.sort(key=_order)
    return tuple(sets)


_NOBODY = Bits()


def _order(of: RunSet) -> tuple[int, int]:
    return of.run, of.members.raw & -of.members.raw


def step(some: RunSet, event: RunEvent) -> RunStep:
    """Return the step for an event of runs of the ledger."""
    return RUN_TABLE[some.phase][event]


def pick_ports(
    wanted: tuple[Port, ...], taken: set[int], *, span: tuple[int, int]
) -> tuple[int, ...]:
    """Return numbers for the ports of one run, the lowest free ones; empty if there are not enough.

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


NamedRuns = dict[tuple[Key, int], int]
"""Members as bits, by crowd and run number."""


def by_crowd(names: Iterable[str]) -> tuple[NamedRuns, list[str]]:
    """Return named runs as sets, in the order in which they come; and the names that are of no
    task's run."""
    groups: NamedRuns = {}
    strange: list[str] = []
    for pod in names:
        parsed = parse_pod(pod)
        if parsed is None:
            strange.append(pod)
            continue
        crowd, member, run = parsed
        groups[crowd, run] = groups.get((crowd, run), 0) | 1 << member
    return groups, strange


def names_of(crowd: Key, raw: int, *, run: int) -> list[str]:
    """Return the names of this run of the members in `raw`."""
    return [pod_id(crowd, member, run=run) for member in members_of(raw)]


def run_names(runs: Iterable[tuple[Key, RunSet]]) -> tuple[str, ...]:
    """Return the names of these runs."""
    return tuple(
        name for crowd, some in runs for name in names_of(crowd, some.members.raw, run=some.run)
    )
