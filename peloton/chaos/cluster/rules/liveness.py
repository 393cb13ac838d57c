"""R7: after the faults every goal is reached, in bounded time.

Turns a cluster in a calm into a `Contradiction` that names the first goals that were not reached,
or nothing; and the answers to clients at the end into the same, if a job has ended without having
done its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import CreateJob, DeleteJob, JobView, StopJob
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.spec import BATCH
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobStates
from peloton.actors.task.messages import DEADLINE_EXCEEDED, PREEMPTED, SLACK_TAKEN, End
from peloton.actors.task.state import ENDED, Admission
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Key, members_of

SHOWN_MAX = 3
ENDS = (JobStates.SUCCEEDED, JobStates.FAILED)
STOPPED = ("KILLED", "LOST")


def reach(cluster: SimulatedCluster, goals: Callable[[], bool], *, within_s: float) -> float:
    """Run until all goals are reached; return how long that took. Raises `Contradiction`.

    Time in which batch work gets done does not count: a small pool runs a lot of it one after the
    other. There is only so much of it, so what is stuck beside it is found once it is done.
    """
    begun_s, world = cluster.world.now, cluster.world
    while True:
        before = _batch_runs_done(cluster)
        try:
            world.run_until(goals, within_s=within_s)
            return world.now - begun_s
        except NotReached as error:
            if _batch_runs_done(cluster) > before:
                continue
            names = [*unreached(cluster)] or ["nothing is open, yet it is not quiet"]
            text = "; ".join(names[:SHOWN_MAX])
            raise Contradiction(f"R7 {error}; {len(names)} goals are open: {text}") from error


def _batch_runs_done(cluster: SimulatedCluster) -> int:
    """Return how many runs of batch jobs have succeeded, which is bounded."""
    batch = {
        each.operation.job.partition("/")[2]
        for each in cluster.clients.requests
        if isinstance(each.message, CreateJob) and each.message.spec.job_type == BATCH
    }
    return sum(
        outcome.end == End.SUCCEEDED and run.rsplit("-", 2)[0] in batch
        for run, outcome in cluster.machines.results.items()
    )


def unreached(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield all that waits for something, by name."""
    world = cluster.world
    for shard in world.all_shards():
        if shard not in world.shards():
            yield f"{shard} has no owner"
    for pending in cluster.clients.requests:
        if not pending.operation.known:
            yield f"not answered: {pending.operation}"
    for key, job in cluster.cells("job").items():
        if job.spec is not None and job.goal.name == "DELETED":
            yield f"{key} is still being deleted"
        elif job.spec is not None and job.state not in TERMINAL_JOB_STATES:
            yield f"{key} is {job.state.name}: {dict(job.counts)}"
    for key, crowd in cluster.crowds().items():
        for state in crowd.classes:
            if state.state not in ENDED or state.admission != Admission.NONE:
                members = members_of(crowd.where(lambda each, same=state: each == same))
                yield f"{key} {members[:5]} are {state.state.name}, {state.admission.name}"
    for key, lot in cluster.cells("lot").items():
        if lot.waiting or lot.admitted:
            yield f"{key} holds {lot.admitted}, {lot.waiting} wait"
    for key, host in cluster.cells("host").items():
        if host.runs:
            yield f"{key} is {host.state.name}, and keeps {[*host.runs][:3]}"
        if host.maintenance != Maintenance.NONE:
            yield f"{key} is {host.maintenance.name} for maintenance"
    for run in cluster.machines.running:
        yield f"{run} still runs"


def stopped_jobs(cluster: SimulatedCluster) -> dict[Key, None]:
    """Return the jobs that a client asked to stop or delete, whatever the answer."""
    requests = cluster.clients.requests
    asked = (each for each in requests if isinstance(each.message, StopJob | DeleteJob))
    return {each.operation.job: None for each in asked}


def stops_itself(view: JobView) -> bool:
    """Return whether a job may have stopped its instances without an order of a client."""
    may = bool(view.spec.after or view.spec.deadline or view.spec.unique)
    if view.stop is not None and view.stop.reason and not may:
        raise Contradiction(f"R7 {view.summary.job} stopped itself: {view.stop.reason}")
    return may


def ended_by_itself(job: Key, view: JobView) -> None:
    """Check that a job that nobody stopped has run each instance to its end or limit."""
    summary, counts = view.summary, dict(view.summary.counts)
    if stops_itself(view):
        return
    limited = view.spec.max_running_time_s or view.spec.default.kill_on_preempt
    if limited and summary.state in TERMINAL_JOB_STATES:
        return  # each killed instance is checked by `killed_for_its_time`
    if summary.state not in ENDS or any(counts.get(name) for name in STOPPED):
        text = f"{job} was never stopped, and is {summary.state.name}: {counts}"
        raise Contradiction(f"R7 {text}")


def killed_for_its_time(job: JobView, view: InstanceView, *, stopped: bool) -> None:
    """Check that killed instances were stopped, late, or preempted and not run again.

    How long it ran is not compared: clocks of daemons are set and drift in a storm.
    """
    limit_s, outcome = job.spec.max_running_time_s, view.outcome
    name = f"{job.summary.job} {view.instance} run {view.run}"
    preempted = outcome is not None and outcome.reason in (PREEMPTED, SLACK_TAKEN)
    if preempted and job.spec.default.kill_on_preempt:
        return
    if outcome is None or outcome.reason != DEADLINE_EXCEEDED:
        if view.state == "KILLED" and not stopped and not stops_itself(job):
            raise Contradiction(f"R7 {name} was never stopped, and is KILLED: {outcome}")
        return
    if not limit_s or view.started_at is None or view.state not in ("KILLED", "SUCCEEDED"):
        raise Contradiction(f"R7 {name} has no limit that it exceeded, and is {view}")
