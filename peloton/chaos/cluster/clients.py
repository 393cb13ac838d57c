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
from typing import Any

from peloton.actors.job.messages import CreateJob, DeleteJob, GetJob, StopJob
from peloton.actors.job.spec import JobSpec
from peloton.chaos.cluster.history import Operation, What
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Absent, Key, Message, Query, Unavailable

TRY_S = 5.0
"""After so long without an answer a client asks another daemon."""
PAUSE_S = 0.5


class Clients:
    """All clients, and the history they make."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.history: list[Operation] = []
        self.lose_answer = 0.0  # share of answers that are lost after the deed
        self.struck = 0
        self._world = world
        self._chance = chance
        self._open = 0

    def create(self, client: str, job: Key, spec: JobSpec) -> Operation:
        """A job of that id."""
        return self._say(
            Operation(client, What.CREATE, job=job, begun_s=self._now), CreateJob(spec)
        )

    def stop(self, client: str, job: Key) -> Operation:
        """All of a job."""
        return self._say(Operation(client, What.STOP, job=job, begun_s=self._now), StopJob())

    def delete(self, client: str, job: Key) -> Operation:
        """A job, ended or not."""
        operation = Operation(client, What.DELETE, job=job, begun_s=self._now)
        return self._say(operation, DeleteJob(force=True))

    def look(self, client: str, job: Key) -> Operation:
        """How is it?"""
        return self._say(Operation(client, What.GET, job=job, begun_s=self._now), GetJob())

    @property
    def waiting(self) -> int:
        """Operations that are not answered yet."""
        return self._open

    @property
    def _now(self) -> float:
        return self._world.now

    def _say(self, operation: Operation, message: Message | Query) -> Operation:
        self.history.append(operation)
        self._open += 1
        name = f"{operation.client}-{len(self.history)}"
        request = None
        if not isinstance(message, Query):
            request = (name, zlib.crc32(repr(message).encode()).to_bytes(4, "big"))
        self._try(operation, message, request=request)
        return operation

    def _try(
        self, operation: Operation, message: Message | Query, *, request: tuple[str, bytes] | None
    ) -> None:
        if operation.known:
            return
        operation.tries += 1
        number = operation.tries

        def again() -> None:
            if not operation.known and operation.tries == number:
                self._try(operation, message, request=request)

        living = [each for each in self._world.living() if each.alive]
        if living:
            daemon = self._chance.choice(living)
            future = daemon.region.ask(operation.job, message, request=request)
            future.add_done_callback(self._heard(operation, again))
        self._world.later.at(self._now + TRY_S + self._chance.random(), again)

    def _heard(
        self, operation: Operation, again: Callable[[], None]
    ) -> Callable[[Future[Any]], None]:
        def heard(future: Future[Any]) -> None:
            answer = future.result()
            if operation.known:
                return
            if isinstance(answer, Unavailable):
                self._world.later.at(self._now + PAUSE_S, again)
            elif self.lose_answer and self._chance.random() < self.lose_answer:
                self.struck += 1
            else:
                self._open -= 1
                operation.end(answer, self._now)

        return heard


def is_gone(operation: Operation) -> bool:
    """Whether the job was not there."""
    return isinstance(operation.answer, Absent)
