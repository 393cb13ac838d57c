"""R24: the end of a job is notified at least once, and no end that did not happen.

Turns a scenario's action into a job with a notification, orders of jobs into the posts that a
listener outside got, and those into a `Contradiction` or nothing. Of several ends of one job only
the last has to be notified. The simulated service loses posts and answers, and keeps nothing, as
the real one.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec, Notify
from peloton.chaos.cluster.rules.job_ends import JobEnds, end_counts
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of
from peloton.chaos.cluster.work.workload import cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.chaos.cluster.world.listener import Listener
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm

SHARE = 0.15
ACTIONS = (1, 4)
LOST_SHARE = 0.3


class NoticeCheck:
    """Compares what the listener got with the ends in the journal."""

    def __init__(self, listener: Listener, ends: JobEnds) -> None:
        self._listener = listener
        self._ends = ends
        self._seen = 0

    def step(self) -> None:
        """Check that no end was notified that did not happen. Raises `Contradiction`."""
        for told in self._listener.told[self._seen :]:
            self._seen += 1
            counts = end_counts(told.notice.counts)
            if counts not in self._ends.ever.get(told.job, {}):
                raise Contradiction(f"R24 {told.job} is told to have ended: {counts}")

    def quiet(self) -> None:
        """Check that the last end of each job was notified. Raises `Contradiction`."""
        got = {(told.job, end_counts(told.notice.counts)) for told in self._listener.told}
        for job, spec in self._ends.specs.items():
            if spec.notify is None or spec.notify.states or job not in self._ends.last:
                continue
            if (job, self._ends.last[job]) not in got:
                raise Contradiction(f"R24 nobody was told that {job} ended: {self._ends.last[job]}")


def create_notifying(storm: Storm, action: StormAction) -> None:
    """Create a job whose end is notified; for some only a failure is."""
    cluster = cluster_of(storm)
    cluster.listener.lost_share = LOST_SHARE
    states = ("FAILED",) if action.other % 4 == 0 else ()
    default = TaskConfig(command=Command("x"), resources=NEED)
    notify = Notify("http://outside/", states)
    spec = JobSpec("told", "me", STORM_POOL, max(action.count, 1), default, notify=notify)
    storm.strike(action.name)
    create_job(cluster, action, message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create notifying": create_notifying}
DRAWN = ActionDraw(
    "notices",
    SHARE,
    ACTIONS,
    any_of(WORK),
    lambda chance: chance.choice((1, 2, 5)),
)
