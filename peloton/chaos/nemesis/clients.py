"""Clients that note what they say and hear: the history of a storm over real daemons.

Turns a seed into creates, looks, stops, deletes and listings through the SDK, to any daemon, and
each into an operation of the history. A client that hears nothing certain says the same again, to
another daemon; what stays uncertain stays open. It must not look into the cluster, nor believe
that a call which failed did nothing.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from peloton.actors.job.messages import JobCreated, JobDeleted, JobStopped, job_key
from peloton.chaos.cluster.history import NO_JOB, Asked, Operation
from peloton.chaos.nemesis import operations
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.vocabulary import Absent, Refused
from peloton.sdk.client import Client as Peloton
from peloton.sdk.errors import PelotonError, ServerError

TRY_S = 5.0
"""After so long without an answer a client asks another daemon."""
PAUSE_S = 0.3
GIVE_UP_S = 60.0
"""So long a client says the same; then it stays open, and the client goes on."""
PACE_S = (0.2, 1.0)
ACTIVE_MAX = 25
SLOW_S = 10.0
"""What took longer than this is in the timeline, for whoever wants to know why."""
LASTS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 60.0)
CPUS = (0.5, 0.5, 1.5, 2.5)
"""Two of the large ones fit on no host, so room is short before the pool's limit is reached."""
SHARES = {"create": 30, "look": 30, "stop": 14, "delete": 10, "list": 8, "twice": 4, "vain": 4}


class WantedJob(NamedTuple):
    """A job as its clients wanted it."""

    job_id: str
    instances: int
    lasts_s: float
    create: Operation


class SharedRecord:
    """What all clients of a storm know of each other."""

    def __init__(self, addresses: list[str], timeline: Timeline) -> None:
        self.history: list[Operation] = []
        self.wishes: dict[str, WantedJob] = {}
        self.ended: dict[str, None] = {}
        self.stopped: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.kept: list[str] = []
        """Jobs that nobody deletes: others ask for them to learn whether anybody answers."""
        self.over = threading.Event()
        self.timeline = timeline
        self.addresses = addresses
        self.open: Callable[[], list[str]] = lambda: addresses
        """Of those that belong to the cluster now, as an operator would tell clients."""
        self._lock = threading.Lock()

    def begin(self, client: str, what: Asked, *, job_id: str = "") -> tuple[Operation, str]:
        """A new operation, and its request key: checks know it by its number in the history."""
        with self._lock:
            job = job_key(job_id) if job_id else NO_JOB
            begun_s = self.timeline.now_s
            operation = Operation(client, what, job=job, begun_s=begun_s)
            self.history.append(operation)
            return operation, f"{client}-{len(self.history)}"

    def active(self) -> list[WantedJob]:
        """Jobs that are there and of which nobody has seen the end."""
        with self._lock:
            gone = self.ended.keys() | self.deleted.keys()
            known = [wish for wish in self.wishes.values() if wish.create.done]
            return [wish for wish in known if wish.job_id not in gone]

    def some(self, which: dict[str, Any]) -> list[str]:
        """Their ids; other threads add to them meanwhile."""
        with self._lock:
            return [job_id for job_id in which if job_id not in self.deleted]

    def note(self, which: dict[str, Any], job_id: str, *, value: Any = None) -> None:
        """One more of these."""
        with self._lock:
            which[job_id] = value


class NemesisClient:
    """One client: one thing at a time."""

    def __init__(
        self,
        name: str,
        record: SharedRecord,
        *,
        chance: random.Random,
        patient_s: float = GIVE_UP_S,
    ) -> None:
        self.patient_s = patient_s
        self.name = name
        self.record = record
        self.chance = chance
        self._peloton = {each: Peloton(each, timeout_s=TRY_S) for each in record.addresses}
        self._last = ""

    def close(self) -> None:
        """Let go of all connections."""
        for each in self._peloton.values():
            each.close()

    def work(self) -> None:
        """Until the storm is over."""
        while not self.record.over.wait(self.chance.uniform(*PACE_S)):
            (what,) = self.chance.choices([*SHARES], [*SHARES.values()])
            self._one(what)

    def _one(self, what: str) -> None:
        chance, record = self.chance, self.record
        active = record.active()
        ids = record.some(record.wishes)
        # Of a creation that was said twice the first copy may still be on its way.
        ended = [i for i in record.some(record.ended) if record.wishes[i].create.tries == 1]
        ended = [i for i in ended if i not in record.kept]
        if what == "create" and len(active) < ACTIVE_MAX:
            lasts_s, cpus = chance.choice(LASTS_S), chance.choice(CPUS)
            self.create(self.new_id(), chance.randint(1, 6), lasts_s=lasts_s, cpus=cpus)
        elif what == "stop" and active:
            self.stop(chance.choice(active).job_id)
        elif what == "delete" and ended:
            self.delete(chance.choice(ended))
        elif what == "list":
            self.list_jobs()
        elif what == "twice" and ids:
            self.create(chance.choice(ids), 1, lasts_s=0.1)
        elif what == "vain":
            self.create(self.new_id(), 1, lasts_s=0.1, cpus=10_000.0)
        elif ids:
            self.look(chance.choice(ids))

    def new_id(self) -> str:
        """Of the seed, so that the same jobs fall into the same shards."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    # ---- single wishes ----

    def create(
        self, job_id: str, instances: int, *, lasts_s: float, cpus: float = 0.5
    ) -> Operation:
        """A job of that id; of an id that is taken, it must be refused."""
        operation, key = self.record.begin(self.name, Asked.CREATE, job_id=job_id)
        if job_id not in self.record.wishes:
            wish = WantedJob(job_id, instances, lasts_s, operation)
            self.record.note(self.record.wishes, job_id, value=wish)
        spec = operations.job_spec(instances, lasts_s=lasts_s, cpus=cpus)

        def call(peloton: Peloton) -> JobCreated:
            said = peloton.jobs.create(operations.POOL, spec, wanted_id=job_id, request_key=key)
            return JobCreated(job_key(said.jobId.value))

        return self._say(operation, call, keyed=True)

    def stop(self, job_id: str) -> Operation:
        """All of a job."""
        operation, _ = self.record.begin(self.name, Asked.STOP, job_id=job_id)
        self.record.note(self.record.stopped, job_id)

        def call(peloton: Peloton) -> JobStopped:
            peloton.tasks.stop(job_id)
            return JobStopped(())

        return self._say(operation, call)

    def delete(self, job_id: str) -> Operation:
        """A job that has ended."""
        operation, _ = self.record.begin(self.name, Asked.DELETE, job_id=job_id)
        self.record.note(self.record.deleted, job_id)

        def call(peloton: Peloton) -> JobDeleted:
            peloton.jobs.delete(job_id)
            return JobDeleted()

        return self._say(operation, call)

    def look(self, job_id: str) -> Operation:
        """How is it?"""
        operation, _ = self.record.begin(self.name, Asked.GET, job_id=job_id)
        self._say(operation, lambda peloton: operations.view(peloton.jobs.get(job_id)))
        if operations.has_ended(operation.answer):
            self.record.note(self.record.ended, job_id)
        return operation

    def list_jobs(self) -> Operation:
        """All there are."""
        operation, _ = self.record.begin(self.name, Asked.LIST)
        ask = operations.EVERYTHING
        return self._say(operation, lambda peloton: operations.listing(peloton.jobs.query(ask)))

    def why(self, job_id: str) -> str:
        """What a daemon says keeps the job, for the timeline; no part of the history."""
        try:
            return str(self._another().ops.why(job_id))
        except PelotonError as error:
            return str(error)

    def instances(self, job_id: str) -> int | None:
        """How many instances of a job somebody can show; None where there is no such job."""
        until_s = self.record.timeline.now_s + self.patient_s
        while self.record.timeline.now_s < until_s:
            try:
                return len(self._another().tasks.list(job_id).result.value)
            except PelotonError as error:
                if not operations.uncertain(error):
                    return None
                threading.Event().wait(PAUSE_S)
        return 0

    # ---- saying it ----

    def _another(self) -> Peloton:
        """A daemon that was not asked last."""
        known = self.record.open()
        self._last = self.chance.choice([each for each in known if each != self._last] or known)
        return self._peloton[self._last]

    def _say(
        self, operation: Operation, call: Callable[[Peloton], Any], *, keyed: bool = False
    ) -> Operation:
        until_s, told = self.record.timeline.now_s + self.patient_s, ""
        while self.record.timeline.now_s < until_s:
            operation.tries += 1
            try:
                answer = call(self._another())
            except PelotonError as error:
                if operations.uncertain(error):
                    told = f"{type(error).__name__} {error.message}"
                    threading.Event().wait(PAUSE_S)
                    continue
                if isinstance(error, ServerError):
                    text = f"{error.kind} {error.message}"
                    self.record.timeline.find(f"a daemon failed: {operation}: {text}")
                answer = operations.raised(operation, error)
            refused = isinstance(answer, Refused | Absent)
            if refused and operation.what is Asked.LIST:
                break  # which is found already, and no listing
            if isinstance(answer, Refused) and not keyed and operation.tries > 1:
                break  # an earlier one may have done it: that is no certain "no"
            operation.end(answer, self.record.timeline.now_s)
            break
        if self.record.timeline.now_s - operation.begun_s > SLOW_S:
            last = f"; at last it heard: {told}" if told else ""
            self.record.timeline.say(f"slow, {operation.tries} times said: {operation}{last}")
        return operation
