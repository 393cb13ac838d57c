"""R23: no period has more starts of a throttled job than its throttle says; and such jobs.

Turns a scenario's action into a job with a throttle, and committed facts of slices into a
`Contradiction` or nothing. That all of them start in the end is R7. Starts are timed by the clocks
of their owners, so while clocks of daemons differ nothing is judged.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

from peloton.actors.job import facts as jf
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec, Throttle
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of
from peloton.chaos.cluster.work.workload import cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, key

SHARE = 0.15
ACTIONS = (1, 3)
SIZES = (3, 5, 12)
PERIODS_S = (1.0, 3.0, 5.0)


class PaceCheck:
    """The starts of each job with a throttle, in the order of their times."""

    def __init__(self) -> None:
        self.clocks_agree = True
        self.checked = 0
        self._rules: dict[Key, Throttle] = {}
        self._starts: dict[Key, list[tuple[float, int]]] = {}
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            jf.JobMade: self._made,
            jf.JobChanged: self._changed,
            sf.MembersBegun: self._begun,
        }

    def _made(self, entry: Entry, fact: jf.JobMade) -> None:
        self._starts.pop(entry.key, None)
        self._changed(entry, fact)

    def _changed(self, entry: Entry, fact: jf.JobMade | jf.JobChanged) -> None:
        self._rules.pop(entry.key, None)
        if fact.spec.throttle is not None:
            self._rules[entry.key] = fact.spec.throttle

    def _begun(self, entry: Entry, fact: sf.MembersBegun) -> None:
        job = key("job", entry.key.split("/")[1])
        rule = self._rules.get(job)
        if rule is None or fact.at is None or not self.clocks_agree:
            return
        self.checked += 1
        starts = self._starts.setdefault(job, [])
        bisect.insort(starts, (fact.at, len(fact.members)))
        for first, _ in starts:
            within = sum(count for at, count in starts if first <= at < first + rule.period_s)
            if within > rule.count:
                text = f"{within} instances begin within {rule.period_s} s from {first}"
                raise Contradiction(f"R23 {job}: {text}, at most {rule.count} may")


def create_throttled(storm: Storm, action: StormAction) -> None:
    """Create a job of which a few instances begin in each period."""
    cluster = cluster_of(storm)
    rule = Throttle("", 1 + action.other % 3, PERIODS_S[action.which % len(PERIODS_S)])
    limit = min(2 * (action.other // 3 % 2), action.count)
    default = TaskConfig(command=Command("x"), resources=NEED)
    count = max(action.count, 1)
    spec = JobSpec("paced", "me", STORM_POOL, count, default, throttle=rule, maximum_running=limit)
    storm.strike(action.name)
    create_job(cluster, action, message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create throttled": create_throttled}
DRAWN = ActionDraw(
    "throttles",
    SHARE,
    ACTIONS,
    any_of(WORK),
    lambda chance: chance.choice(SIZES),
)
