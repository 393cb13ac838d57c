"""What clients do in few storms: jobs above one slice, jobs said in pieces, orders of operators.

Turns a deed of a plan into operations of clients, like `workload.py`; but it costs more than an
ordinary deed, or means little without another, so it is drawn apart and rarely. It must not judge
an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import AddOverrides, CreateJob, StopJob
from peloton.actors.job.spec import Command, JobSpec, Override, TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.cluster import NEED, POOL
from peloton.chaos.cluster.workload import CLIENTS, cluster_of
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.simulation.plan import Deed
from peloton.runtime.simulation.storms import Storm, Stroke
from peloton.runtime.vocabulary import Key, Refused

LITTLE = Resources(UNIT // 100, UNIT // 100, 0, 0)
LARGE = (1_001, 1_500, 2_500)
LARGE_NAME = "large"
"""Runs of such a job last alike: each by itself they would take more steps than all else."""
LARGE_SHARE, PIECES_SHARE = 0.02, 0.2
TRIES_MAX = 5
"""A client whose pieces are lost again and again gives up."""


def create_large(storm: Storm, deed: Deed) -> None:
    """A job of several slices, each instance of which wants little."""
    cluster = cluster_of(storm)
    name = f"{LARGE_NAME}{len(cluster.jobs) + 1}"
    cluster.create(deed.count, client=CLIENTS[deed.other % 3], name=name, resources=LITTLE)


def create_in_pieces(storm: Storm, deed: Deed) -> None:
    """A job whose instances' own configs come slice by slice, before the job itself."""
    cluster = cluster_of(storm)
    default = TaskConfig(command=Command("x"), resources=LITTLE)
    own = TaskConfig(command=Command("y"), resources=NEED)
    given = [Override(at, own) for at in (0, deed.count - 1)][: min(2, deed.count)]
    slices: dict[int, tuple[Override, ...]] = {}
    for override in given:
        number = override.instance // SLICE_SIZE
        slices[number] = (*slices.get(number, ()), override)
    spec = JobSpec("p", "me", POOL, deed.count, default, own_configs=len(given))
    name = f"{LARGE_NAME}{len(cluster.jobs) + 1}" if deed.count > SLICE_SIZE else ""
    job, client = cluster.draw_job(name), CLIENTS[deed.other % 3]
    _InPieces(storm, job, client=client, slices=slices, spec=spec).say()


class _InPieces:
    """A client that says a job in pieces, and all of it anew when the pieces were forgotten."""

    def __init__(
        self,
        storm: Storm,
        job: Key,
        *,
        client: str,
        slices: dict[int, tuple[Override, ...]],
        spec: JobSpec,
    ) -> None:
        self._clients = cluster_of(storm).clients
        self._job, self._client, self._slices, self._spec = job, client, slices, spec
        self._tries = 0

    def say(self) -> None:
        """The first piece; each answer brings the next, and the last one the job."""
        self._tries += 1
        self._piece([*self._slices.items()])

    def _piece(self, left: list[tuple[int, tuple[Override, ...]]]) -> None:
        if not left:
            message = CreateJob(self._spec, (), len(self._slices))
            self._clients.create(self._client, self._job, message=message, heard=self._heard)
            return
        number, overrides = left[0]

        def heard(answer: Any) -> None:
            if not isinstance(answer, Refused):
                self._piece(left[1:])

        piece = AddOverrides(number, overrides)
        self._clients.command(self._client, self._job, message=piece, heard=heard, keyed=False)

    def _heard(self, answer: Any) -> None:
        if isinstance(answer, Refused) and answer.again and self._tries < TRIES_MAX:
            self.say()


WORK: dict[str, Callable[[Storm, Deed], None]] = {
    "create large": create_large,
    "create in pieces": create_in_pieces,
}


def redrive(storm: Storm, deed: Deed) -> None:
    """Two messages at which every turn raises, and later a person who has them tried again."""
    jobs = cluster_of(storm).jobs
    if not jobs:
        return
    job = jobs[deed.which % len(jobs)]
    shard = storm.world.sharding.shard_of(job)
    # Where it is owned: a letter to another daemon cannot carry what is not of its type.
    daemon = next((each for each in storm.world.living() if shard in each.shards()), None)
    if daemon is None:
        return
    storm.strike(deed.name, job)
    for number in range(2):
        nonsense: Any = ((number,),)
        daemon.region.tell((Envelope(job, StopJob(nonsense)),))

    def then() -> None:
        other = storm.daemon(deed.which)
        if other is not None:
            other.region.redrive(job)

    storm.later(max(2.0, deed.for_s), then)


STROKES = (Stroke("F31", "redrive", "what was set aside is tried again", redrive, 1, (2.0, 15.0)),)


def drawn(seed: int, *, storm_s: float) -> list[Deed]:
    """Of few seeds one or two; their chance is their own, so all else stays what it was."""
    chance = random.Random(f"{seed} larger")
    deeds = []
    for name, share in (("create large", LARGE_SHARE), ("create in pieces", PIECES_SHARE)):
        if chance.random() < share:
            large = name == "create large" or chance.random() < LARGE_SHARE
            deed = Deed(
                at_s=round(chance.uniform(0.0, storm_s), 3),
                name=name,
                which=chance.randrange(1000),
                other=chance.randrange(1000),
                count=chance.choice(LARGE if large else (1, 2, 5)),
            )
            deeds.append(deed)
    return deeds
