"""Jobs that wait for others, have a deadline, or want their name; and R38: the owner of a name.

Turns a scenario's action into operations of clients, like `workload.py`. Committed facts of names
become a `Contradiction` or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import CreateJob, GetJob, JobView, StartInstances
from peloton.actors.job.name import facts as nf
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import After, Deadline, JobSpec
from peloton.chaos.cluster.rules.job_ends import JobEnds
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of
from peloton.chaos.cluster.work.workload import cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.chaos.cluster.world.history import Asked
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.3
"""Of storms; in the others no job ends without an end of its instances, or a client's order."""
ACTIONS_MAX = 6
STATES = ("SUCCEEDED", "ENDED", "FAILED", "KILLED")
ANSWER_S_MAX = 60.0
NAMES = ("only", "lone")
LABELS = {"after": "after", "deadline": "deadline", "unique": "name_unique"}
"""By these a client sees that a job may stop itself."""


class NameCheck:
    """Checks that a name is one job's until that job has ended or is gone."""

    def __init__(self, ends: JobEnds) -> None:
        self.checked = 0
        self._ends = ends
        self._holders: dict[Key, Key] = {}
        self._freed: list[tuple[Key, Key]] = []  # since the last step
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            nf.NameKept: self._kept,
            nf.NameClaimed: self._claimed,
            nf.NameForgotten: self._forgotten,
        }

    def step(self) -> None:
        """Check after all frames of this instant. Raises `Contradiction`."""
        for name, job in self._freed:
            self.checked += 1
            if not self._ends.was_gone(job):
                raise Contradiction(f"R38 {name} is free, and {job}, which has it, is not gone")
        self._freed.clear()

    def _kept(self, entry: Entry, fact: nf.NameKept) -> None:
        if entry.key in self._holders:
            text = f"kept for {fact.job}, and {self._holders[entry.key]} has it"
            raise Contradiction(f"R38 {entry.key} is {text}")

    def _claimed(self, entry: Entry, fact: nf.NameClaimed) -> None:
        self._kept(entry, nf.NameKept(fact.job, 0.0))
        self._holders[entry.key] = fact.job

    def _forgotten(self, entry: Entry, fact: nf.NameForgotten) -> None:  # noqa: ARG002
        holder = self._holders.pop(entry.key, None)
        if holder is not None:
            self._freed.append((entry.key, holder))


def create_after(storm: Storm, action: StormAction) -> None:
    """Create a job after one or two others, which may have ended, or never exist."""
    cluster = cluster_of(storm)
    others = cluster.jobs or [cluster.nobody]
    chosen = {others[at % len(others)]: None for at in (action.which, action.other)[: action.count]}
    state = STATES[action.other % len(STATES)]
    after = tuple(After(other, state) for other in chosen)
    _create(storm, action, after=after, unique=action.other % 3 == 0)


def create_until(storm: Storm, action: StormAction) -> None:
    """Create a job with a short deadline."""
    seconds = 0.5 + action.other % 8
    _create(storm, action, deadline=Deadline(f"{seconds:g}s", seconds))


def create_unique(storm: Storm, action: StormAction) -> None:
    """Create a job that wants one of a few names for itself; nobody reserved it."""
    _create(storm, action, unique=True, name=NAMES[action.other % len(NAMES)])


def begun_in_order(cluster: SimulatedCluster) -> None:
    """Check R7: no instance of a job began unless the others had ended as they had to.

    Clocks of daemons are set and drift in a storm, so only the ways in which they ended are
    compared.
    """
    requests = cluster.clients.requests
    again = {each.operation.job for each in requests if isinstance(each.message, StartInstances)}
    for job in dict.fromkeys(each.job for each in cluster.clients.history if _is_create(each)):
        view = _view(cluster, job)
        if view is None or job in again or not view.summary.started_at:
            continue
        for after in view.spec.after:
            other = _view(cluster, after.job)
            if other is None or after.job in again:
                continue  # deleted since, or its end was not its last
            if after.state not in ("ENDED", other.summary.state.name):
                text = f"began after {after}, which is {other.summary.state.name}"
                raise Contradiction(f"R7 {job} {text}")


def names_are_free(cluster: SimulatedCluster) -> None:
    """Check R7: all jobs have ended, so nobody holds a name."""
    names = cluster.cells("name")
    if names:
        raise Contradiction(f"R7 names belong to jobs that have ended: {names}")


def _is_create(operation: Any) -> bool:
    return operation.what is Asked.CREATE


def _view(cluster: SimulatedCluster, job: Key) -> JobView | None:
    operation = cluster.clients.command("checks", job, message=GetJob())
    cluster.world.run_until(lambda: operation.known, within_s=ANSWER_S_MAX)
    return operation.answer if isinstance(operation.answer, JobView) else None


def _create(storm: Storm, action: StormAction, **fields: Any) -> None:
    cluster = cluster_of(storm)
    labels = tuple((f"peloton.{LABELS[field]}", "") for field in fields if field in LABELS)
    name = fields.pop("name", "ordered")
    default = TaskConfig(command=Command("x"), resources=NEED)
    spec = JobSpec(name, "me", STORM_POOL, max(1, action.count), default, labels=labels, **fields)
    storm.strike(action.name)
    create_job(cluster, action, message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create after": create_after,
    "create until": create_until,
    "create unique": create_unique,
}


DRAWN = ActionDraw(
    "ordering",
    SHARE,
    (1, ACTIONS_MAX),
    any_of(WORK),
    lambda chance: chance.randrange(4),
)
