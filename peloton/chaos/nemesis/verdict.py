"""The verdict after a storm over real daemons: what is wrong, and how much was checked.

Turns the history of the clients, the journals of all shards and the notes of the runs themselves
into findings. The rules are those of the simulated world, applied to what really happened. Nothing
is changed, and the daemons, which still run, get no request.

    R1 R2 R6 R13   the history makes sense, and agrees with the journals
    R3 R4          one owner per epoch, no gap, an unbroken chain (found by the watch, all the time)
    R5             recovered twice, and made from nothing: three equal digests
    R8 R9 R10 R11  the shadow ledger: one run per instance, no run accepted twice, no host over its
                   capacity
    R8c runs       what ran began once, was accepted, and no two runs of an instance overlapped,
                   also while the earlier one was being killed: by the notes of the runs, and by the
                   process table
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from peloton.actors.host import facts as hf
from peloton.actors.host.ledger import names_of
from peloton.actors.job.messages import JobView, job_key
from peloton.chaos.cluster import checks
from peloton.chaos.cluster.rules import journaled
from peloton.chaos.cluster.rules.shadow_ledger import ShadowLedger
from peloton.chaos.cluster.world.history import Asked, Operation, faults
from peloton.chaos.cluster.world.machines import Machines
from peloton.chaos.nemesis.clients import SharedRecord
from peloton.chaos.nemesis.journal import JournalWatch, Recovered
from peloton.chaos.nemesis.operations import BEGUN, ENDED, MARK
from peloton.chaos.nemesis.process_table import SeenAlive
from peloton.runtime.core.entities.codec import UnknownFact
from peloton.runtime.ports import JournalError
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Absent

DOES_NOT_FOLD = (UnknownFact, AttributeError, LookupError, TypeError, ValueError)
"""What a fact raises that does not fit the state it is applied to: a finding, no crash here."""
CONTRADICTIONS_MAX = 5
"""A ledger that was wrong once is wrong about all that follows."""


class Inspected(NamedTuple):
    """The extent of the checks."""

    frames: int
    runs: int
    jobs: int


def verdict_of(
    record: SharedRecord,
    watch: JournalWatch,
    *,
    notes: Iterable[tuple[str, Path]],
    seen: Mapping[str, SeenAlive],
) -> Inspected:
    """Make all checks; findings go to the timeline. `notes`: runs, and where each noted."""
    find = record.timeline.find
    # Ended jobs leave the listings after a day: one that a moved clock makes.
    for text in faults(record.history, may_leave=watch.clocks_differ):
        find(f"clients saw: {text}")
    for text in goals_missed(record):
        find(text)
    ledger, frames = _ledger(watch, find)
    view = _recovered(watch, ledger, find=find)
    questions: list[Callable[[], None]] = [
        lambda: journaled.answers_equal_the_journal(ledger, record.history)
    ]
    if view is not None:
        recovered = view
        for quiet in (
            checks.hosts_keep_their_capacity,
            checks.lots_equal_the_tasks,
            checks.tallies_equal_the_tasks,
            checks.nobody_waits_who_fits,
        ):
            questions.append(lambda quiet=quiet: quiet(recovered))  # type: ignore[misc]
        questions.append(lambda: journaled.ledger_equals_the_actors(ledger, recovered))
    for question in questions:
        try:
            question()
        except Contradiction as wrong:
            find(str(wrong))
    count = 0
    noted = with_seen(notes_of(notes), seen)
    for run in noted:
        count += 1
        for text in not_as_accepted(run, ledger.times_accepted):
            find(text)
    # Of a job that was created again the notes do not tell which of its lives a run belongs to.
    for text in overlaps(run for run in noted if ledger.times_accepted[run.run] <= 1):
        find(text)
    return Inspected(frames, count, len(record.wanted_jobs))


# ---- goals ----


def goals_missed(record: SharedRecord) -> Iterator[str]:
    """Yield the jobs whose last answer does not show the state that was requested of them."""
    by_job: dict[str, list[Operation]] = {}
    for operation in record.history:
        by_job.setdefault(operation.job, []).append(operation)
    for job_id, wanted_job in record.wanted_jobs.items():
        some = by_job[job_key(job_id)]
        gets = [each for each in some if each.what is Asked.GET and each.known]
        last = gets[-1].answer if gets else None
        if isinstance(last, JobView):
            state, stopped = last.summary.state.name, job_id in record.stopped
            wanted = ("SUCCEEDED", "KILLED") if stopped else ("SUCCEEDED",)
            if state not in wanted:
                yield f"R15 {wanted_job.job_id} is {state}, wanted {' or '.join(wanted)}"
            if _gone_for_good(some, gets[-1]):
                yield f"R1 {wanted_job.job_id} was deleted, and is there at the end"
        elif not isinstance(last, Absent):
            yield f"R15 no answer about {wanted_job.job_id}: {gets[-1:]}"


def _gone_for_good(some: list[Operation], get: Operation) -> bool:
    """Return whether the job was gone for good before that get."""
    deletes = [each for each in some if each.what is Asked.DELETE and each.done]
    deletes = [each for each in deletes if (each.ended_s or 0.0) <= get.begun_s]
    creates = [each for each in some if each.what is Asked.CREATE]
    if not deletes or any(each.tries > 1 for each in creates):
        return False
    begun_s = deletes[0].begun_s
    return all(each.ended_s is not None and each.ended_s < begun_s for each in creates)


# ---- journals ----


def _ledger(watch: JournalWatch, find: Callable[[str], None]) -> tuple[ShadowLedger, int]:
    machines = Machines(lambda run: (_ for _ in ()).throw(AssertionError(run)))
    ledger, wrong = ShadowLedger(machines), 0
    frames = watch.frames()
    for frame in frames:
        _note_ends(machines, frame)
    for frame in frames:
        try:
            ledger.apply(frame)
            ledger.settle(math.inf if frame is frames[-1] else frame.at - watch.unordered)
        except Contradiction as contradiction:
            find(f"{contradiction} ({frame.shard} at {frame.position})")
            wrong += 1
            if wrong >= CONTRADICTIONS_MAX:
                break
    return ledger, len(frames)


def _note_ends(machines: Machines, frame: DecodedFrame) -> None:
    """Note the ends that a host first journaled; the runs' tasks must have the same outcome."""
    for entry in frame.entries:
        for fact in entry.facts:
            if isinstance(fact, hf.ProcessesEnded):
                for end in fact.ends:
                    machines.results.setdefault(end.run, end.outcome)
            elif isinstance(fact, hf.SetEnded):
                for pod in names_of(fact.crowd, fact.members.raw, run=fact.run):
                    machines.results.setdefault(pod, fact.outcome)


def _recovered(
    watch: JournalWatch, ledger: ShadowLedger, *, find: Callable[[str], None]
) -> Recovered | None:
    try:
        return Recovered(watch.recovered(), ledger._machines)
    except (Contradiction, JournalError, *DOES_NOT_FOLD) as wrong:
        find(f"R5 not recovered: {type(wrong).__name__}: {wrong}")
        return None


# ---- the runs' own notes ----


class Noted(NamedTuple):
    """The beginning and end of a run in its own notes, and in the process table."""

    run: str
    begun: tuple[float, ...] = ()
    ended: tuple[float, ...] = ()
    """Empty for one that was killed with SIGKILL."""
    seen: SeenAlive | None = None

    @property
    def first_s(self) -> float | None:
        """Some time soon after the run's beginning."""
        seen = (self.seen.first_s,) if self.seen is not None else ()
        return min((*self.begun, *seen), default=None)

    @property
    def last_s(self) -> float:
        """A time at which the run was still there."""
        seen = (self.seen.last_s,) if self.seen is not None else ()
        return max((*self.begun, *self.ended, *seen), default=-math.inf)


def notes_of(notes: Iterable[tuple[str, Path]]) -> Iterator[Noted]:
    """Yield one value for each run; one that noted in two places began twice."""
    folders: dict[str, list[Path]] = {}
    for run, folder in notes:
        folders.setdefault(run, []).append(folder)
    for run in sorted(folders):
        yield _of_run(run, sorted(folders[run]))


def _of_run(run: str, folders: Iterable[Path]) -> Noted:
    begun: list[float] = []
    ended: list[float] = []
    for folder in folders:
        mark = folder / MARK
        words = mark.read_text().split() if mark.exists() else []
        lines = [*zip(words[::2], words[1::2], strict=False)]
        begun += [float(at) for said, at in lines if said == BEGUN]
        ended += [float(at) for said, at in lines if said == ENDED]
    return Noted(run, tuple(begun), tuple(ended))


def with_seen(notes: Iterable[Noted], seen: Mapping[str, SeenAlive]) -> list[Noted]:
    """Return all runs that noted something, or were seen: the sandbox of an old one may be gone."""
    left = dict(seen)
    known = [noted._replace(seen=left.pop(noted.run, None)) for noted in notes]
    return [*known, *(Noted(run, seen=alive) for run, alive in left.items())]


def not_as_accepted(noted: Noted, times: Mapping[str, int]) -> Iterator[str]:
    """Yield runs that began before a host had accepted them, or more than once for each time.

    `times`: how often which run was accepted. A job that is created again after its deletion has
    the same run ids.
    """
    accepted = times.get(noted.run, 0)
    if len(noted.begun) > max(accepted, 1):
        yield f"R8 {noted.run} began more than once: {noted.begun}"
    if noted.first_s is not None and not accepted:
        yield f"R9 {noted.run} ran, and no host had accepted it"


def overlaps(notes: Iterable[Noted]) -> Iterator[str]:
    """Yield runs of one instance of which an earlier one was still there when a later one began.

    The earlier one may have been being killed.
    """
    instances: dict[str, list[tuple[int, Noted]]] = {}
    for noted in notes:
        instance, _, number = noted.run.rpartition("-")
        if noted.first_s is not None:
            instances.setdefault(instance, []).append((int(number), noted))
    for some in instances.values():
        some.sort()
        longest = some[0][1]
        for _, after in some[1:]:
            first_s = after.first_s or 0.0
            if longest.last_s > first_s:
                how = "" if longest.ended else ", and was being killed"
                yield f"R8c {longest.run} was there when {after.run} began{how}"
            longest = max(longest, after, key=lambda noted: noted.last_s)
