"""Actions of clients in few storms: jobs of several slices, jobs sent in pieces, redrives.

Turns a scenario's action into operations of clients, like `workload.py`; these actions cost more
than ordinary ones, or need another to mean anything, so they are drawn separately and rarely.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import AddOverrides, CreateJob, JobCreated, StopJob
from peloton.actors.job.slice.messages import slices_of
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import MomentaryFault, Storm
from peloton.runtime.vocabulary import Key, Refused

LITTLE = Resources(UNIT // 100, UNIT // 100, 0, 0)
LARGE = (1_001, 1_500, 2_500)
LARGE_NAME = "large"
"""Runs of such a job have few durations: a thousand different ends would be too many steps."""
LARGE_SHARE, PIECES_SHARE, STOPPED_SHARE = 0.02, 0.2, 0.05
STOP_EARLY = "stop early"
OWN_EVERY = (1, 40, 40, 250)
"""One of so many instances of a job that is stopped early has its own config."""
RESTART_S = (1.5, 6.0)
"""Between a stop and the restart of the job's owner: by then its slices have left memory."""
TRIES_MAX = 5
"""A client whose pieces are dropped so often gives up."""


def create_large(storm: Storm, action: StormAction) -> None:
    """Create a job of several slices; each instance requests few resources."""
    cluster = cluster_of(storm)
    name = f"{LARGE_NAME}{len(cluster.jobs) + 1}"
    cluster.create(action.count, client=CLIENTS[action.other % 3], name=name, resources=LITTLE)


def create_in_pieces(storm: Storm, action: StormAction) -> None:
    """Create a job whose overrides are sent slice by slice, before the job itself."""
    cluster = cluster_of(storm)
    default = TaskConfig(command=Command("x"), resources=LITTLE)
    own = TaskConfig(command=Command("y"), resources=NEED)
    given = [Override(at, own) for at in (0, action.count - 1)][: min(2, action.count)]
    slices: dict[int, tuple[Override, ...]] = {}
    for override in given:
        number = override.instance // SLICE_SIZE
        slices[number] = (*slices.get(number, ()), override)
    spec = JobSpec("p", "me", STORM_POOL, action.count, default, own_configs=len(given))
    name = f"{LARGE_NAME}{len(cluster.jobs) + 1}" if action.count > SLICE_SIZE else ""
    job, client = cluster.draw_job(name), CLIENTS[action.other % 3]
    _InPieces(storm, job, client=client, pieces=(spec, slices)).send()


def stop_early(storm: Storm, action: StormAction) -> None:
    """Stop a job of several slices with a low running limit before the later ones began.

    After the stop the job's owner dies; every second job is deleted shortly before or after that.
    The stop is sent even when the storm is over by then: one by one the instances would take hours.
    """
    cluster = cluster_of(storm)
    name = f"{LARGE_NAME}{len(cluster.jobs) + 1}"
    job, client = cluster.draw_job(name), CLIENTS[action.other % 3]
    slices: dict[int, tuple[Override, ...]] = {}
    for number in range(slices_of(action.count)):
        first, stop = number * SLICE_SIZE, min((number + 1) * SLICE_SIZE, action.count)
        slices[number] = tuple(
            Override(at, TaskConfig(command=Command(f"own {at}"), resources=LITTLE))
            for at in range(first, stop, OWN_EVERY[action.which % len(OWN_EVERY)])
        )
    spec = JobSpec(
        "s", "me", STORM_POOL, action.count, TaskConfig(command=Command("x"), resources=LITTLE),
        maximum_running=1 + action.other % 2, own_configs=sum(map(len, slices.values())),
    )  # fmt: skip

    def made() -> None:
        later = storm.world.later
        later.at(storm.world.now + action.for_s, lambda: cluster.clients.stop(client, job))
        first_s, last_s = RESTART_S
        restart_s = action.for_s + first_s + action.which / 1000 * (last_s - first_s)
        storm.later(restart_s, lambda: _restart(storm, job))
        if action.other % 2:
            # Before the restart or after it: a deletion brings the slices back into memory.
            delete_s = restart_s + (-0.5 if action.which % 2 else 5.0)
            storm.later(delete_s, lambda: cluster.clients.delete(client, job))

    _InPieces(storm, job, client=client, pieces=(spec, slices), made=made).send()


def _restart(storm: Storm, job: Key) -> None:
    """Kill the owner of a job's shard; its next process is started by the world."""
    shard = storm.world.sharding.shard_of(job)
    for daemon in [*storm.world.living()]:
        if shard in daemon.shards():
            storm.strike(STOP_EARLY, f"{daemon.name} dies")
            storm.world.kill(daemon)


class _InPieces:
    """A client that sends a job in pieces, and all of it again when the pieces were dropped."""

    def __init__(
        self,
        storm: Storm,
        job: Key,
        *,
        client: str,
        pieces: tuple[JobSpec, dict[int, tuple[Override, ...]]],
        made: Callable[[], None] = lambda: None,
    ) -> None:
        self._clients = cluster_of(storm).clients
        self._job, self._client = job, client
        self._spec, self._slices = pieces
        self._made = made
        self._tries = 0

    def send(self) -> None:
        """Send the first piece; each answer triggers the next, and the last one the job."""
        self._tries += 1
        self._piece([*self._slices.items()])

    def _piece(self, left: list[tuple[int, tuple[Override, ...]]]) -> None:
        if not left:
            message = CreateJob(self._spec, (), len(self._slices))
            self._clients.create(self._client, self._job, message=message, answered=self._created)
            return
        number, overrides = left[0]

        def answered(answer: Any) -> None:
            if not isinstance(answer, Refused):
                self._piece(left[1:])

        piece = AddOverrides(number, overrides)
        self._clients.command(
            self._client, self._job, message=piece, answered=answered, keyed=False
        )

    def _created(self, answer: Any) -> None:
        if isinstance(answer, JobCreated):
            self._made()
        elif isinstance(answer, Refused) and answer.again and self._tries < TRIES_MAX:
            self.send()


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create large": create_large,
    "create in pieces": create_in_pieces,
    STOP_EARLY: stop_early,
}


def redrive(storm: Storm, action: StormAction) -> None:
    """Send two messages at which every turn raises; later an operator redrives them."""
    jobs = cluster_of(storm).jobs
    if not jobs:
        return
    job = jobs[action.which % len(jobs)]
    # Sent at the owner: a batch to another daemon cannot encode a message of wrong types.
    daemon = storm.world.owner_of(job)
    if daemon is None:
        return
    storm.strike(action.name, job)
    for number in range(2):
        nonsense: Any = ((number,),)
        daemon.region.tell((Envelope(job, StopJob(nonsense)),))

    def then() -> None:
        other = storm.daemon(action.which)
        if other is not None:
            other.region.redrive(job)

    storm.later(max(2.0, action.for_s), then)


STROKES = (MomentaryFault("F31", "redrive", "dead letters are redriven", redrive, 1, (2.0, 15.0)),)


def drawn(seed: int, *, storm_s: float) -> list[StormAction]:
    """Return one or two actions of few seeds, from a generator of their own."""
    chance = random.Random(f"{seed} larger")
    actions = []
    for name, share in (("create large", LARGE_SHARE), ("create in pieces", PIECES_SHARE)):
        if chance.random() < share:
            large = name == "create large" or chance.random() < LARGE_SHARE
            action = StormAction(
                at_s=round(chance.uniform(0.0, storm_s), 3),
                name=name,
                which=chance.randrange(1000),
                other=chance.randrange(1000),
                count=chance.choice(LARGE if large else (1, 2, 5)),
            )
            actions.append(action)
    return [*actions, *_stopped(random.Random(f"{seed} stopped early"), storm_s=storm_s)]


def _stopped(chance: random.Random, *, storm_s: float) -> list[StormAction]:
    """Return actions that were added later than the others, so from a generator of their own."""
    if chance.random() >= STOPPED_SHARE:
        return []
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s / 10), 3),
            name=STOP_EARLY,
            which=chance.randrange(1000),
            other=chance.randrange(1000),
            count=chance.choice(LARGE),
            for_s=round(chance.uniform(0.0, 2.0), 3),
        )
    ]
