"""Clients that record their requests and answers: the history of a storm over real daemons.

Turns a seed into creates, gets, stops, deletes and listings through the SDK, to any daemon, and
each into an operation of the history. A client without a definite answer repeats the request at
another daemon; what stays indefinite stays open. A failed call may have had an effect.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from peloton.actors.job.messages import JobCreated, JobDeleted, JobStopped, job_key
from peloton.chaos.cluster.world.history import NO_JOB, Asked, Operation
from peloton.chaos.nemesis import operations
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.vocabulary import Absent, Refused
from peloton.sdk.client import Client as Peloton
from peloton.sdk.errors import PelotonError, ServerError

TRY_S = 5.0
"""After so long without an answer a client tries another daemon."""
PAUSE_S = 0.3
GIVE_UP_S = 60.0
"""A client repeats a request for so long; then the operation stays open."""
PACE_S = (0.2, 1.0)
ACTIVE_MAX = 25
SLOW_S = 10.0
"""Operations that took longer are written to the timeline."""
LASTS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 60.0)
CPUS = (0.5, 0.5, 1.5, 2.5)
"""No host fits two of the large ones, so hosts are full before the pool's limit is reached."""
SHARES = {"create": 30, "look": 30, "stop": 14, "delete": 10, "list": 8, "twice": 4, "vain": 4}


class WantedJob(NamedTuple):
    """A job as its clients wanted it."""

    job_id: str
    instances: int
    lasts_s: float
    create: Operation


class SharedRecord:
    """The record that all clients of a storm share."""

    def __init__(self, addresses: list[str], timeline: Timeline) -> None:
        self.history: list[Operation] = []
        self.wanted_jobs: dict[str, WantedJob] = {}
        self.ended: dict[str, None] = {}
        self.stopped: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.kept: list[str] = []
        """Jobs that are never deleted: probes get them to learn whether their shards answer."""
        self.over = threading.Event()
        self.timeline = timeline
        self.addresses = addresses
        self.open: Callable[[], list[str]] = lambda: addresses
        """The addresses of the present members, as an operator would publish them."""
        self._lock = threading.Lock()

    def begin(self, client: str, what: Asked, *, job_id: str = "") -> tuple[Operation, str]:
        """Begin an operation; return it and its request key, made of its number."""
        with self._lock:
            job = job_key(job_id) if job_id else NO_JOB
            begun_s = self.timeline.now_s
            operation = Operation(client, what, job=job, begun_s=begun_s)
            self.history.append(operation)
            return operation, f"{client}-{len(self.history)}"

    def active(self) -> list[WantedJob]:
        """Return the jobs that were created and that no client has seen ended."""
        with self._lock:
            gone = self.ended.keys() | self.deleted.keys()
            known = [
                wanted_job for wanted_job in self.wanted_jobs.values() if wanted_job.create.done
            ]
            return [wanted_job for wanted_job in known if wanted_job.job_id not in gone]

    def some(self, which: dict[str, Any]) -> list[str]:
        """Return a collection's ids, without deleted ones, under the lock."""
        with self._lock:
            return [job_id for job_id in which if job_id not in self.deleted]

    def note(self, which: dict[str, Any], job_id: str, *, value: Any = None) -> None:
        """Add a job to one of the collections."""
        with self._lock:
            which[job_id] = value


class NemesisClient:
    """A client, with one request at a time."""

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
        for each in self._peloton.values():
            each.close()

    def work(self) -> None:
        """Send requests until the storm is over."""
        while not self.record.over.wait(self.chance.uniform(*PACE_S)):
            (what,) = self.chance.choices([*SHARES], [*SHARES.values()])
            self._one(what)

    def _one(self, what: str) -> None:
        chance, record = self.chance, self.record
        active = record.active()
        ids = record.some(record.wanted_jobs)
        # A creation that was sent twice may still have a copy on its way.
        ended = [i for i in record.some(record.ended) if record.wanted_jobs[i].create.tries == 1]
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
            self.create(self.new_id(), 1, lasts_s=0.1, cpus=-1.0)
        elif ids:
            self.get(chance.choice(ids))

    def new_id(self) -> str:
        """Return a job id drawn from the seed, so that a seed has its jobs in the same shards."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    # ---- single requests ----

    def create(
        self, job_id: str, instances: int, *, lasts_s: float, cpus: float = 0.5
    ) -> Operation:
        """Create a job of that id; an existing id, or negative cpus, must be refused."""
        operation, key = self.record.begin(self.name, Asked.CREATE, job_id=job_id)
        if job_id not in self.record.wanted_jobs:
            wanted_job = WantedJob(job_id, instances, lasts_s, operation)
            self.record.note(self.record.wanted_jobs, job_id, value=wanted_job)
        spec = operations.job_spec(instances, lasts_s=lasts_s, cpus=cpus)

        def call(peloton: Peloton) -> JobCreated:
            made = peloton.jobs.create(operations.POOL, spec, wanted_id=job_id, request_key=key)
            return JobCreated(job_key(made.jobId.value))

        return self._send(operation, call, keyed=True)

    def stop(self, job_id: str) -> Operation:
        """Stop all of a job."""
        operation, _ = self.record.begin(self.name, Asked.STOP, job_id=job_id)
        self.record.note(self.record.stopped, job_id)

        def call(peloton: Peloton) -> JobStopped:
            peloton.tasks.stop(job_id)
            return JobStopped(())

        return self._send(operation, call)

    def delete(self, job_id: str) -> Operation:
        """Delete a job that has ended."""
        operation, _ = self.record.begin(self.name, Asked.DELETE, job_id=job_id)
        self.record.note(self.record.deleted, job_id)

        def call(peloton: Peloton) -> JobDeleted:
            peloton.jobs.delete(job_id)
            return JobDeleted()

        return self._send(operation, call)

    def get(self, job_id: str) -> Operation:
        """Get the state of a job."""
        operation, _ = self.record.begin(self.name, Asked.GET, job_id=job_id)
        self._send(operation, lambda peloton: operations.view(peloton.jobs.get(job_id)))
        if operations.has_ended(operation.answer):
            self.record.note(self.record.ended, job_id)
        return operation

    def list_jobs(self) -> Operation:
        operation, _ = self.record.begin(self.name, Asked.LIST)
        query = operations.EVERYTHING
        return self._send(operation, lambda peloton: operations.listing(peloton.jobs.query(query)))

    def why(self, job_id: str) -> str:
        """Return a daemon's answer why the job is not at its goal, for the timeline."""
        try:
            return str(self._another().ops.why(job_id))
        except PelotonError as error:
            return str(error)

    def instances(self, job_id: str) -> int | None:
        """Return how many instances of a job are listed; None if there is no such job."""
        until_s = self.record.timeline.now_s + self.patient_s
        while self.record.timeline.now_s < until_s:
            try:
                return len(self._another().tasks.list(job_id).result.value)
            except PelotonError as error:
                if not operations.uncertain(error):
                    return None
                threading.Event().wait(PAUSE_S)
        return 0

    # ---- sending ----

    def _another(self) -> Peloton:
        """Return a client of another daemon than the last one used."""
        known = self.record.open()
        self._last = self.chance.choice([each for each in known if each != self._last] or known)
        return self._peloton[self._last]

    def _send(
        self, operation: Operation, call: Callable[[Peloton], Any], *, keyed: bool = False
    ) -> Operation:
        until_s, failure = self.record.timeline.now_s + self.patient_s, ""
        while self.record.timeline.now_s < until_s:
            operation.tries += 1
            try:
                answer = call(self._another())
            except PelotonError as error:
                if operations.uncertain(error):
                    failure = f"{type(error).__name__} {error.message}"
                    threading.Event().wait(PAUSE_S)
                    continue
                if isinstance(error, ServerError):
                    text = f"{error.kind} {error.message}"
                    self.record.timeline.find(f"a daemon failed: {operation}: {text}")
                answer = operations.raised(operation, error)
            refused = isinstance(answer, Refused | Absent)
            if refused and operation.what is Asked.LIST:
                break  # a finding already, and no listing
            if isinstance(answer, Refused) and not keyed and operation.tries > 1:
                break  # an earlier try may have done it: this refusal is not definite
            operation.end(answer, self.record.timeline.now_s)
            break
        if self.record.timeline.now_s - operation.begun_s > SLOW_S:
            last = f"; last error: {failure}" if failure else ""
            self.record.timeline.log(f"slow, {operation.tries} tries: {operation}{last}")
        return operation
