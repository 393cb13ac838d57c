"""peloton.private.resmgr.ResourceManagerService: tasks as the resource manager has them.

Views of slices, hosts and queues become its messages, and `KillTasks` stop orders. A pool's use is
the sum of what its lots hold, so a task without an owner cannot hold any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from peloton.actors.host.holds.foreign_names import shown_run
from peloton.actors.host.ledger import RunSet
from peloton.actors.host.stages import OCCUPYING
from peloton.actors.job.messages import JobStopped, StopJob
from peloton.actors.job.slice.messages import FindInstances, InstanceView
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.resources import amount
from peloton.actors.respool.messages import ROOT, GetPool, ListQueue, QueuedLot, pool_key
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts, with_runs
from peloton.gateway.private.outside_schedulers import OutsideSchedulers
from peloton.gateway.private.task_holds import drop_task_holds
from peloton.gateway.translate.actor_keys import parse_number
from peloton.gateway.translate.texts import client_name, known_job, pod_name, rfc3339
from peloton.gateway.v0.host_scores import HostScores
from peloton.gateway.v0.job_query import ACTIVE
from peloton.gateway.v0.task_query import STATES, TaskListing
from peloton.private.resmgr import resmgr_pb2 as resmgr
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.runtime.core.reading.filters import AMONG, Where
from peloton.runtime.core.reading.listing import ListViews, SortOrder
from peloton.runtime.vocabulary import Key, key

ACTIVE_TASKS_MAX = 100_000
"""Tasks in one answer; a query that finds more has to be narrower."""
PENDING_DEFAULT, PENDING_MAX = 100, 100_000
QUEUES = ("pending", "non-preemptible", "controller", "revocable")
"""The queues of a pool in the original. Ours has two, both shown in the first, those
for slack behind the others."""
_AS_THEY_ARE = ("RUNNING", "KILLING", "PREEMPTING")
"""States that have one name for all."""
_STATES = {"NEW": "INITIALIZED", "POOL": "PENDING", "HOST": "PLACING", "GANG": "PLACING",
           "LAUNCH": "LAUNCHING"}  # fmt: skip


class ResourceManagerService(OutsideSchedulers, HostScores):
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def GetActiveTasks(self, sent: resmgrsvc.GetActiveTasksRequest, context: Context) -> Any:
        """Return the tasks that have not ended, by state; of one job or pool, or of all."""
        wanted, count = frozenset(sent.states), 0
        found = resmgrsvc.GetActiveTasksResponse()
        for job_id, view in self._active(sent, context):
            state = tracked_state(view)
            if wanted and state not in wanted:
                continue
            count += 1
            if count > ACTIVE_TASKS_MAX:
                text = f"more than {ACTIVE_TASKS_MAX} tasks: name a job, a pool or states"
                end(context, Code.RESOURCE_EXHAUSTED, text=text)
            found.tasksByState[state].taskEntry.add(
                taskID=pod_name(job_id, view.instance, run=view.run),
                taskState=state,
                reason=view.because,
                lastUpdateTime=rfc3339(view.started_at or view.launched_at or view.created_at),
                hostname=client_name(Key(view.host)),
            )
        return found

    def GetPendingTasks(self, sent: resmgrsvc.GetPendingTasksRequest, context: Context) -> Any:
        """Return the tasks that wait in the queue of a leaf pool, in order; each is a gang of
        one."""
        if not sent.respoolID.value:
            end(context, Code.INVALID_ARGUMENT, text="resource pool ID cannot be nil")
        pool = pool_key(sent.respoolID.value)
        views = self._cluster_client.pool(GetPool(pool, config_only=True), context)
        if not views:
            end(context, Code.NOT_FOUND, text="resource pool not found")
        if views[0].child_count or pool == ROOT:
            end(context, Code.INVALID_ARGUMENT, text="resource pool is not a leaf node")
        most = min(sent.limit or PENDING_DEFAULT, PENDING_MAX)
        lots = self._cluster_client.ask(ROOT, ListQueue(pool, most), context=context)
        found = resmgrsvc.GetPendingTasksResponse()
        for queue in QUEUES:
            found.pendingGangsByQueue[queue].SetInParent()
        waiting = found.pendingGangsByQueue[QUEUES[0]].pendingGangs
        for lot in lots:
            for name in _names(lot):
                waiting.add(taskIDs=[name])
        return found

    def GetTasksByHosts(self, sent: resmgrsvc.GetTasksByHostsRequest, context: Context) -> Any:
        """Return what runs on these hosts, on all by default.

        Every task is a batch task so far.
        """
        found = resmgrsvc.GetTasksByHostsResponse()
        if sent.type not in (resmgr.UNKNOWN, resmgr.BATCH):
            return found
        if sent.hostnames:
            hosts: Iterable[Key] = (key("host", name) for name in dict.fromkeys(sent.hostnames))
        else:
            hosts = (view.summary.host for view in all_hosts(self._cluster_client, context))
        for host, answer in with_runs(self._cluster_client, hosts, context=context):
            name = client_name(host)
            tasks = found.hostTasksMap[name].tasks
            runs = ((pod, answer.runs[pod]) for pod in sorted(answer.runs))
            tasks.extend(_task(pod, run, host=name) for pod, run in runs if run.phase in OCCUPYING)
        return found

    def GetOrphanTasks(self, sent: resmgrsvc.GetOrphanTasksRequest, context: Context) -> Any:
        """Return none: an earlier run of a task holds its ticket, never resources of its own."""
        return resmgrsvc.GetOrphanTasksResponse()

    def KillTasks(self, sent: resmgrsvc.KillTasksRequest, context: Context) -> Any:
        """Stop instances, with one error for each that does not exist.

        No host waits for them.
        """
        found = resmgrsvc.KillTasksResponse()
        wanted: dict[Key, dict[int, None]] = {}
        for one in sent.tasks:
            named = _named(one.value)
            if named is None:
                found.error.add(notFound=_missing(one.value))
            else:
                wanted.setdefault(named[0], {})[named[1]] = None
        for job, instances in wanted.items():
            view = self._cluster_client.job(job, context)
            count = view.spec.instances if view is not None else 0
            there = sorted(one for one in instances if one < count)
            ranges = tuple((one, one + 1) for one in there)
            stopped = False
            if there:
                answer = self._cluster_client.ask(job, StopJob(ranges), context=context)
                stopped = isinstance(answer, JobStopped)
            for one in instances:
                if one >= count or not stopped:
                    found.error.add(notFound=_missing(pod_name(client_name(job), one)))
        drop_task_holds(self._cluster_client, [one.value for one in sent.tasks], context=context)
        return found

    def _active(
        self, sent: resmgrsvc.GetActiveTasksRequest, context: Context
    ) -> Iterator[tuple[str, InstanceView]]:
        """Yield the instances that may be in a wanted state, with the ids of their jobs."""
        names = states_of(sent.states)
        if not names:
            return
        tests = [ACTIVE]
        if sent.respoolID:
            tests.append(Where("pool", AMONG, words=(pool_key(sent.respoolID),)))
        if sent.jobID:
            job = known_job(sent.jobID)
            tests.append(Where("job", AMONG, words=(job or "",)))
        query = ListViews("job", tuple(tests), (SortOrder("job"),))
        for line in self._cluster_client.listing(query, context).items:
            job_view = self._cluster_client.job(line.job, context)
            if job_view is None:
                continue  # deleted since it was listed
            wanted = FindInstances(0, job_view.spec.instances, states=names, limit=SLICE_SIZE)
            for found in TaskListing(self._cluster_client, job_view, context=context).each(wanted):
                for view in found.views:
                    yield client_name(line.job), view


def states_of(tracked: Iterable[str]) -> tuple[str, ...]:
    """Return the states in which instances are shown so; without names, those of all that have not
    ended.

    A name under which no instance is shown has none.
    """
    tracked = frozenset(tracked)
    waiting = tuple(name for name in STATES if name not in (*ENDED_NAMES, *_AS_THEY_ARE))
    found = tuple(name for name in _AS_THEY_ARE if not tracked or name in tracked)
    others = not tracked or not tracked.isdisjoint((*_STATES.values(), "PENDING"))
    return (*found, *waiting) if others else found


def tracked_state(view: InstanceView) -> str:
    """Return the state of an instance in the words of the original's resource manager."""
    if view.state in _AS_THEY_ARE:
        return view.state
    return _STATES.get(view.code, "PENDING")


def _names(lot: QueuedLot) -> Iterator[str]:
    _, job, number = lot.crowd.split("/")
    first = int(number) * SLICE_SIZE
    return (pod_name(job, first + member) for member in islice(lot.waiting, PENDING_MAX))


def _named(text: str) -> tuple[Key, int] | None:
    """Return the job and the number of an instance of the name `JOB-INSTANCE`."""
    job, _, number = text.rpartition("-")
    found, instance = known_job(job), parse_number(number)
    return None if found is None or instance is None else (found, instance)


def _missing(name: str) -> resmgrsvc.TasksNotFound:
    return resmgrsvc.TasksNotFound(task={"value": name}, message="task not found")


def _task(pod: str, run: RunSet, *, host: str) -> resmgr.Task:
    shown = shown_run(pod)
    task_id, _, _ = shown.rpartition("-")
    job, _, _ = task_id.rpartition("-")
    of = run.resources
    return resmgr.Task(
        id={"value": task_id},
        jobId={"value": job},
        taskId={"value": shown},
        resource=task.ResourceConfig(
            cpuLimit=amount(of.cpu),
            memLimitMb=amount(of.memory),
            diskLimitMb=amount(of.disk),
            gpuLimit=amount(of.gpu),
        ),
        type=resmgr.BATCH,
        numPorts=len(run.ports),
        hostname=host,
    )
