"""R1, R2: the answer that any client got is what the journal has, for every request with a key.

Turns the requests of all clients and the committed frames into a `Contradiction` or nothing. A
success has to be in the journal before its client gets it: the answer itself under the request key,
or, where the request found its effect there already, the facts that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host.facts import HoldEnded
from peloton.actors.host.holds.holding import EXPIRED
from peloton.actors.host.inventory.messages import HostPoolChanged
from peloton.actors.job import facts as jf
from peloton.actors.job.messages import DeleteJob, InstancesOrdered, JobUpdated, StartJob, StopJob
from peloton.actors.job.slice.rollout_messages import MemberRestarted
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.job.workflow.facts import WorkflowBegun, WorkflowUndone
from peloton.actors.job.workflow.messages import WorkflowOrdered
from peloton.actors.respool import facts as pf
from peloton.actors.respool.messages import CreatePool, PoolConfig
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.world.clients import PendingRequest
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Absent, Bits, Key, Query, Refused


class AcknowledgementCheck:
    """Checks each request once, when it is answered."""

    def __init__(self, requests: list[PendingRequest]) -> None:
        self.checked = 0
        self._requests = requests
        self._open: list[PendingRequest] = []
        self._noted = 0
        self._effects: dict[tuple[Key, str], None] = {}
        """Requests that changed something, or were answered beside a change."""
        self._found_done: dict[tuple[Key, str], None] = {}
        """Requests that would have found nothing to do at some time while they were under way."""
        self._stopped: dict[Key, None] = {}
        self._parts: dict[Key, dict[int, int]] = {}  # stopped instances, by job and slice
        self._deleted: dict[Key, None] = {}
        self._pools: dict[Key, PoolConfig] = {}
        self._instances: dict[Key, int] = {}
        self._before: dict[Key, int] = {}  # instances before the last workflow
        self._ended: dict[Key, dict[int, int]] = {}  # instances that have, by job and slice

    def apply(self, frame: DecodedFrame) -> None:
        """Take a committed frame."""
        for entry in frame.entries:
            self._excuse(entry.key)
            for fact in entry.facts:
                note = NOTED.get(type(fact))
                if note is not None:
                    note(self, entry, fact)

    def step(self) -> None:
        """Check the requests answered since the last step. Raises `Contradiction`."""
        if self._noted == len(self._requests) and not self._open:
            return
        self._open += self._requests[self._noted :]
        self._noted = len(self._requests)
        still: list[PendingRequest] = []
        for pending in self._open:
            if pending.operation.known:
                self._judge(pending)
            else:
                still.append(pending)
        self._open = still

    def _excuse(self, key: Key) -> None:
        """Note the requests under way that would find nothing to do, before a change undoes that.

        A stop may find its job stopped, and be acknowledged after the job was started again.
        """
        for pending in [*self._open, *self._requests[self._noted :]]:
            under_way = pending.operation.job == key and not pending.operation.known
            if not under_way or pending.request is None:
                continue
            if self._finds_nothing_to_do(key, pending.message):
                self._found_done[key, pending.request[0]] = None

    def _finds_nothing_to_do(self, key: Key, message: Any) -> bool:
        found_done = FOUND_DONE.get(type(message))
        return found_done is not None and found_done(self, key, message)

    def _judge(self, pending: PendingRequest) -> None:
        operation, message = pending.operation, pending.message
        if pending.request is None or message is None or isinstance(message, Query):
            return
        self.checked += 1
        name = pending.request[0]
        has_effect = (operation.job, name) in self._effects
        if isinstance(operation.answer, Refused) and operation.answer.again:
            return  # not the last word: another copy of the request may have been carried out
        if isinstance(operation.answer, Refused | Absent):
            if has_effect and operation.job not in self._deleted:
                raise Contradiction(f"R2 refused, and in the journal: {message!r:.80} {operation}")
            return
        if _says_nothing_was_done(operation.answer):
            return
        nothing_to_do = (operation.job, name) in self._found_done
        nothing_to_do = nothing_to_do or self._finds_nothing_to_do(operation.job, message)
        if not has_effect and not nothing_to_do:
            raise Contradiction(f"R1 acknowledged, and in no journal: {message!r:.80} {operation}")

    # ---- facts ----

    def _answered(self, entry: Entry, fact: RequestAnswered) -> None:
        if any(not _is_aside(each) for each in entry.facts):
            self._effects[entry.key, fact.request] = None

    def _stops_some(self, entry: Entry, fact: jf.InstancesStopped) -> None:
        parts = self._parts.setdefault(entry.key, {})
        parts[fact.slice_number] = parts.get(fact.slice_number, 0) | fact.members.raw

    def _stops(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self._stopped[entry.key] = None

    def _deletes(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self._stopped[entry.key] = self._deleted[entry.key] = None

    def _makes(self, entry: Entry, fact: jf.JobMade) -> None:
        self._stopped.pop(entry.key, None)
        self._parts.pop(entry.key, None)
        self._instances[entry.key], self._ended[entry.key] = fact.spec.instances, {}

    def _starts(self, entry: Entry, fact: jf.InstancesStarted) -> None:
        parts, count = self._parts.setdefault(entry.key, {}), self._instances[entry.key]
        if entry.key in self._stopped:
            del self._stopped[entry.key]
            parts |= dict.fromkeys(range(-(-count // SLICE_SIZE)), (1 << SLICE_SIZE) - 1)
        for number, members in fact.members:
            parts[number] = parts.get(number, 0) & ~members.raw
            self._ended[entry.key].pop(number, None)
        if fact.whole:  # also whoever is added later
            parts.clear()

    def _rolls(self, entry: Entry, fact: WorkflowBegun) -> None:
        self._before[entry.key] = self._instances[entry.key]
        self._resized(entry.key, fact.spec.instances)
        if not fact.options.starts:
            return
        whole = tuple(
            (number, Bits.span(0, SLICE_SIZE))
            for number in range(-(-fact.spec.instances // SLICE_SIZE))
        )
        self._starts(entry, jf.InstancesStarted(fact.members or whole, fact.at))

    def _undone(self, entry: Entry, fact: WorkflowUndone) -> None:  # noqa: ARG002
        self._resized(entry.key, self._before[entry.key])

    def _resized(self, job: Key, count: int) -> None:
        """Forget which instances beyond the new count were stopped: they are to be removed."""
        fewer = count < self._instances[job]
        self._instances[job] = count
        if not fewer or job not in self._parts:
            return
        for number, raw in self._parts[job].items():
            left = max(min(count - number * SLICE_SIZE, SLICE_SIZE), 0)
            self._parts[job][number] = raw & ((1 << left) - 1)

    def _changes(self, entry: Entry, fact: jf.JobChanged) -> None:
        self._instances[entry.key] = fact.spec.instances

    def _tallies(self, entry: Entry, fact: jf.JobTallied) -> None:
        counts = dict(fact.tally.counts)
        self._ended[entry.key][fact.number] = sum(counts.get(name, 0) for name in ENDED_NAMES)

    def _pool(self, entry: Entry, fact: pf.PoolConfigured) -> None:
        self._pools[entry.key] = fact.config

    def _no_pool(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self._pools.pop(entry.key, None)
        self._deleted[entry.key] = None

    # ---- requests that find nothing to do ----

    def _is_stopped(self, job: Key, message: StopJob) -> bool:
        if job not in self._instances:
            return False
        if job in self._stopped or sum(self._ended[job].values()) >= self._instances[job]:
            return True
        parts, last = self._parts.get(job, {}), self._instances[job]
        some = [at for begin, end in message.ranges for at in range(begin, min(end, last))]
        return bool(message.ranges) and all(
            parts.get(at // SLICE_SIZE, 0) >> at % SLICE_SIZE & 1 for at in some
        )

    def _is_started(self, job: Key, message: StartJob) -> bool:  # noqa: ARG002
        if job in self._stopped or job not in self._instances:
            return False
        left = self._instances[job]
        return not any(
            raw & ((1 << max(left - number * SLICE_SIZE, 0)) - 1)
            for number, raw in self._parts.get(job, {}).items()
        )

    def _is_deleted(self, job: Key, message: DeleteJob) -> bool:  # noqa: ARG002
        return job in self._deleted

    def _is_made(self, pool: Key, message: CreatePool) -> bool:
        return self._pools.get(pool) == message.config


def _is_aside(fact: Any) -> bool:
    """Return whether a fact is no effect of its turn's request."""
    return isinstance(fact, RequestAnswered) or (
        isinstance(fact, HoldEnded) and fact.reason == EXPIRED
    )


def _says_nothing_was_done(answer: Any) -> bool:
    if isinstance(answer, InstancesOrdered):
        return not answer.ranges
    if isinstance(answer, HostPoolChanged):
        return not answer.version  # the host may be there already
    if isinstance(answer, MemberRestarted):
        return not answer.wanted
    if isinstance(answer, WorkflowOrdered):
        return not answer.changed
    return isinstance(answer, JobUpdated) and not answer.added


NOTED: Mapping[type, Callable[[AcknowledgementCheck, Entry, Any], None]] = {
    RequestAnswered: AcknowledgementCheck._answered,
    jf.InstancesStopped: AcknowledgementCheck._stops_some,
    jf.StopOrdered: AcknowledgementCheck._stops,
    jf.DeletionOrdered: AcknowledgementCheck._deletes,
    jf.JobMade: AcknowledgementCheck._makes,
    jf.InstancesStarted: AcknowledgementCheck._starts,
    jf.JobChanged: AcknowledgementCheck._changes,
    WorkflowBegun: AcknowledgementCheck._rolls,
    WorkflowUndone: AcknowledgementCheck._undone,
    jf.JobTallied: AcknowledgementCheck._tallies,
    pf.PoolConfigured: AcknowledgementCheck._pool,
    pf.PoolDeleted: AcknowledgementCheck._no_pool,
}
FOUND_DONE: Mapping[type, Callable[[AcknowledgementCheck, Key, Any], bool]] = {
    StopJob: AcknowledgementCheck._is_stopped,
    StartJob: AcknowledgementCheck._is_started,
    DeleteJob: AcknowledgementCheck._is_deleted,
    CreatePool: AcknowledgementCheck._is_made,
}
"""Requests that may be acknowledged without a fact, and when: all others are journaled."""
