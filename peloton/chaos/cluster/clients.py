"""Clients of a simulated cluster: they create, look, stop and delete, and note what they hear.

Turns a seed into operations, each said until it is answered, to any daemon that lives. A client
that gets no answer says the same again under the same request key, elsewhere. It must not look
into the cluster, nor take "unavailable" for "it did not happen".
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from peloton.actors.job.messages import CreateJob, DeleteJob, GetJob, StopJob
from peloton.chaos.cluster.history import Asked, Operation
from peloton.runtime.shells.region import Region
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Message, Query, Unavailable

TRY_S = 5.0
"""After so long without an answer a client asks another daemon."""
PAUSE_S = 0.5


class PendingRequest(NamedTuple):
    """One thing that a client says, again and again until it is answered."""

    operation: Operation
    message: Message | Query | None  # None: a listing
    request: tuple[str, bytes] | None
    heard: Callable[[Any], None] | None = None


class Clients:
    """All clients, and the history they make."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.history: list[Operation] = []
        self.said: list[PendingRequest] = []
        self.lose_answer = 0.0  # share of answers that are lost after the deed
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
        heard: Callable[[Any], None] | None = None,
    ) -> Operation:
        """A job of that id."""
        operation = Operation(client, Asked.CREATE, job=job, begun_s=self._now)
        return self._say(operation, message, heard=heard)

    def stop(self, client: str, job: Key) -> Operation:
        """All of a job."""
        return self._say(Operation(client, Asked.STOP, job=job, begun_s=self._now), StopJob())

    def stop_some(self, client: str, job: Key, *, ranges: tuple[tuple[int, int], ...]) -> Operation:
        """Some instances of a job."""
        operation = Operation(client, Asked.STOP_SOME, job=job, begun_s=self._now)
        return self._say(operation, StopJob(ranges))

    def list_jobs(self, client: str) -> Operation:
        """All jobs there are, wherever."""
        return self._say(Operation(client, Asked.LIST, begun_s=self._now), None)

    def delete(self, client: str, job: Key) -> Operation:
        """A job, ended or not."""
        operation = Operation(client, Asked.DELETE, job=job, begun_s=self._now)
        return self._say(operation, DeleteJob(force=True))

    def look(self, client: str, job: Key) -> Operation:
        """How is it?"""
        return self._say(Operation(client, Asked.GET, job=job, begun_s=self._now), GetJob())

    def command(
        self,
        client: str,
        to: Key,
        *,
        message: Message,
        heard: Callable[[Any], None] | None = None,
        keyed: bool = True,
    ) -> None:
        """Any other command; the history knows nothing of it."""
        operation = Operation(client, Asked.GET, job=to, begun_s=self._now)
        name = f"{client}+{len(self.said)}" if keyed else ""
        self._begin(PendingRequest(operation, message, _request(name, message), heard))

    @property
    def waiting(self) -> int:
        """Operations that are not answered yet."""
        return self._open

    @property
    def _now(self) -> float:
        return self._world.now

    def _say(
        self,
        operation: Operation,
        message: Message | Query | None,
        *,
        heard: Callable[[Any], None] | None = None,
    ) -> Operation:
        self.history.append(operation)
        # Checks know an operation's request key by its number in the history.
        name = f"{operation.client}-{len(self.history)}"
        self._begin(PendingRequest(operation, message, _request(name, message), heard))
        return operation

    def _begin(self, said: PendingRequest) -> None:
        self.said.append(said)
        self._open += 1
        self._try(said)

    def _try(self, said: PendingRequest) -> None:
        operation = said.operation
        if operation.known:
            return
        operation.tries += 1
        number = operation.tries

        def again() -> None:
            if operation.tries == number:
                self._try(said)

        living = [each for each in self._world.living() if each.alive]
        if living:
            daemon = self._chance.choice(living)
            future = _asked(daemon.region, said)
            future.add_done_callback(self._heard(said, again))
        self._world.later.at(self._now + TRY_S + self._chance.random(), again)

    def _heard(
        self, said: PendingRequest, again: Callable[[], None]
    ) -> Callable[[Future[Any]], None]:
        def heard(future: Future[Any]) -> None:
            answer = future.result()
            if said.operation.known:
                return
            if isinstance(answer, Unavailable):
                self._world.later.at(self._now + PAUSE_S, again)
            elif self.lose_answer and self._chance.random() < self.lose_answer:
                self.struck += 1
            else:
                self._open -= 1
                said.operation.end(answer, self._now)
                if said.heard is not None:
                    said.heard(answer)

        return heard


def _request(name: str, message: Message | Query | None) -> tuple[str, bytes] | None:
    """Under which key a command is said, so that its repeats are known for what they are."""
    if not name or not isinstance(message, Message) or isinstance(message, Query):
        return None
    return name, zlib.crc32(repr(message).encode()).to_bytes(4, "big")


def _asked(region: Region, said: PendingRequest) -> Future[Any]:
    if said.message is None:
        return region.views("job")
    return region.ask(said.operation.job, said.message, request=said.request)
