"""R32: inside of a pool a lower priority gives back, where allowed, and work on slack for other.

Turns a scenario's action into a job of one of several priorities, larger than what is free, and
committed facts of lots into a `Contradiction` or nothing. How long a run is left alone is not
compared, as clocks of daemons are set and drift in a storm: `tests/actors/tasks/test_evicting.py`
is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.chaos.cluster.work.drawing import ActionDraw
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.1
ACTIONS = (3, 7)
SIZES = (2, 12, 30)
STORM_PATH = "/p"
ALLOWED = ((STORM_PATH, 0.3),)
PRIORITIES = 4


class DisplacementCheck:
    """Checks what lots were ordered to give back for others of their own pool."""

    def __init__(self, allowed: frozenset[Key]) -> None:
        self.checked = 0
        self._allowed = allowed
        self._shapes: dict[Key, LotShape] = {}
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            lf.LotOpened: self._opened,
            lf.ReclaimOrdered: self._ordered,
        }

    def _opened(self, entry: Entry, fact: lf.LotOpened) -> None:
        self._shapes[entry.key] = fact.shape

    def _ordered(self, entry: Entry, fact: lf.ReclaimOrdered) -> None:
        if fact.inside is None:
            return
        self.checked += 1
        name = f"R32 {entry.key} order {fact.number}"
        gives, gets = self._shapes[entry.key], self._shapes[fact.inside.lot]
        if gives.pool != gets.pool:
            raise Contradiction(f"{name}: {fact.inside.lot} is of {gets.pool}, not {gives.pool}")
        if gives.on_slack and not gets.on_slack:
            return
        if gives.pool not in self._allowed:
            raise Contradiction(f"{name}: {gives.pool} ends no tasks of its own")
        if not gives.priority < gets.priority == fact.inside.priority:
            text = f"{gives.priority} gives back for {gets.priority}"
            raise Contradiction(f"{name}: a priority of {text}")


def create_ranked(storm: Storm, action: StormAction) -> None:
    """Create a job of one of several priorities."""
    cluster = cluster_of(storm)
    storm.strike(action.name)
    client = CLIENTS[action.other % len(CLIENTS)]
    default = TaskConfig(command=Command("x"), resources=NEED)
    spec = JobSpec(
        "ranked",
        "me",
        STORM_POOL,
        max(action.count, 1),
        default,
        priority=action.which % PRIORITIES,
        preemptible=action.other % 5 > 0,
    )
    cluster.clients.create(client, cluster.draw_job(), message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create ranked": create_ranked}
DRAWN = ActionDraw(
    "ranks",
    SHARE,
    ACTIONS,
    lambda chance: chance.choice([*WORK]),
    lambda chance: chance.choice(SIZES),
)
