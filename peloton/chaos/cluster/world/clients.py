"""Clients of a simulated cluster: they create, get, stop and delete jobs, and note the answers.

Turns a seed into operations, each sent until it is answered, to any live daemon. A client that gets
no answer sends the same again under the same request key, to another daemon. A client must not take
"unavailable" for "it did not happen".
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from peloton.actors.job.messages import CreateJob, DeleteJob, GetJob, StopJob, UpdateJob
from peloton.actors.job.stages import EntityVersion
from peloton.chaos.cluster.world.history import Asked, Operation
from peloton.runtime.shells.region import Region
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Message, Query, Unavailable

TRY_S = 5.0
"""After so long without an answer a client tries another daemon."""
PAUSE_S = 0.5


class PendingRequest(NamedTuple):
    """A request of a client, which is sent until it is answered."""

    operation: Operation
    message: Message | Query | None  # None: a listing
    request: tuple[str, bytes] | None
    answered: Callable[[Any], None] | None = None
    first: SimulatedDaemon | None = None  # asked first; None: any


class Clients:
    """All clients, and the history they make."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.history: list[Operation] = []
        self.requests: list[PendingRequest] = []
        self.lose_answer = 0.0  # share of answers that are lost after the effect
        self.struck = 0
        self._world = world
        self._chance = chance
        self._open = 0

    def create(
        self,
        client: str,
        job: Key,
        *,
        message: CreateJob,
        answered: Callable[[Any], None] | None = None,
    ) -> Operation:
        """Create a job of that id."""
        operation = Operation(client, Asked.CREATE, job=job, begun_s=self._now)
        return self._send(operation, message, answered=answered)

    def stop(self, client: str, job: Key, *, expected: EntityVersion | None = None) -> Operation:
        """Stop all of a job, if it has this version."""
        operation = Operation(client, Asked.STOP, job=job, begun_s=self._now)
        return self._send(operation, StopJob(expected=expected))

    def stop_some(
        self,
        client: str,
        job: Key,
        *,
        ranges: tuple[tuple[int, int], ...],
        answered: Callable[[Any], None] | None = None,
    ) -> Operation:
        """Stop some instances of a job."""
        operation = Operation(client, Asked.STOP_SOME, job=job, begun_s=self._now)
        return self._send(operation, StopJob(ranges), answered=answered)

    def change(self, client: str, job: Key, *, message: Message) -> Operation:
        """Start or restart instances of a job, or update it."""
        what = Asked.UPDATE if isinstance(message, UpdateJob) else Asked.AGAIN
        operation = Operation(client, what, job=job, begun_s=self._now)
        return self._send(operation, message)

    def list_jobs(self, client: str) -> Operation:
        return self._send(Operation(client, Asked.LIST, begun_s=self._now), None)

    def delete(
        self,
        client: str,
        job: Key,
        *,
        force: bool = True,
        expected: EntityVersion | None = None,
    ) -> Operation:
        """Delete a job, by default also one that has not ended."""
        operation = Operation(client, Asked.DELETE, job=job, begun_s=self._now)
        return self._send(operation, DeleteJob(force, expected))

    def get(self, client: str, job: Key, *, at: SimulatedDaemon | None = None) -> Operation:
        """Get the state of a job; `at` is the daemon that is asked first."""
        operation = Operation(client, Asked.GET, job=job, begun_s=self._now)
        self.history.append(operation)
        self._begin(PendingRequest(operation, GetJob(), None, first=at))
        return operation

    def command(
        self,
        client: str,
        to: Key,
        *,
        message: Message | Query,
        answered: Callable[[Any], None] | None = None,
        keyed: bool = True,
    ) -> Operation:
        """Send any other command or query, which is no part of the history."""
        operation = Operation(client, Asked.GET, job=to, begun_s=self._now)
        name = f"{client}+{len(self.requests)}" if keyed else ""
        self._begin(PendingRequest(operation, message, _request(name, message), answered))
        return operation

    def query(
        self, client: str, to: Key, *, query: Query, at: SimulatedDaemon | None = None
    ) -> Operation:
        """Send a query outside of the history. `at` is the daemon that is asked first."""
        operation = Operation(client, Asked.GET, job=to, begun_s=self._now)
        self._begin(PendingRequest(operation, query, None, first=at))
        return operation

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet."""
        return self._open

    @property
    def _now(self) -> float:
        return self._world.now

    def _send(
        self,
        operation: Operation,
        message: Message | Query | None,
        *,
        answered: Callable[[Any], None] | None = None,
    ) -> Operation:
        self.history.append(operation)
        # Checks know an operation's request key by its number in the history.
        name = f"{operation.client}-{len(self.history)}"
        self._begin(PendingRequest(operation, message, _request(name, message), answered))
        return operation

    def _begin(self, pending: PendingRequest) -> None:
        self.requests.append(pending)
        self._open += 1
        self._try(pending)

    def _try(self, pending: PendingRequest) -> None:
        operation = pending.operation
        if operation.known:
            return
        operation.tries += 1
        number = operation.tries

        def again() -> None:
            if operation.tries == number:
                self._try(pending)

        living = [each for each in self._world.living() if each.alive]
        if living:
            daemon = self._chance.choice(living)
            if pending.first in living and number == 1:
                daemon = pending.first
            future = _sent(daemon.region, pending)
            future.add_done_callback(self._answered(pending, again))
        self._world.later.at(self._now + TRY_S + self._chance.random(), again)

    def _answered(
        self, pending: PendingRequest, again: Callable[[], None]
    ) -> Callable[[Future[Any]], None]:
        def answered(future: Future[Any]) -> None:
            answer = future.result()
            if pending.operation.known:
                return
            if isinstance(answer, Unavailable):
                self._world.later.at(self._now + PAUSE_S, again)
            elif self.lose_answer and self._chance.random() < self.lose_answer:
                self.struck += 1
            else:
                self._open -= 1
                pending.operation.end(answer, self._now)
                if pending.answered is not None:
                    pending.answered(answer)

        return answered


def _request(name: str, message: Message | Query | None) -> tuple[str, bytes] | None:
    """Return the request key of a command, by which its repeats are recognised."""
    if not name or not isinstance(message, Message) or isinstance(message, Query):
        return None
    return name, zlib.crc32(repr(message).encode()).to_bytes(4, "big")


def _sent(region: Region, pending: PendingRequest) -> Future[Any]:
    if pending.message is None:
        return region.views("job")
    return region.ask(pending.operation.job, pending.message, request=pending.request)
