"""The table of all calls: the permission, the object named by the request, and what audit records.

`gates.py` applies the rows. A method without a row is served by no server. If a request names no
object, the method itself has to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from peloton.actors.respool.messages import ROOT, GetPool, pool_key
from peloton.gateway.access.targets import (
    AccessTarget,
    ClusterTarget,
    JobTarget,
    KindTarget,
    NewPoolTarget,
    PoolTarget,
    RenamedPoolTarget,
    ScheduleTarget,
)
from peloton.gateway.translate import counterparts
from peloton.gateway.translate.actor_keys import FORMS, BadKey, named_schedule, parse_key
from peloton.gateway.translate.texts import job_of_update, job_of_volume, known_job, pod_parts
from peloton.settings.permissions_file import Permission

SHOWN_RANGES_MAX = 20
SHOWN_HOSTS_MAX = 20


Objects: TypeAlias = Mapping[str, Any]


class AccessRow(NamedTuple):
    """The access to one call.

    Without a permission the call is open to all callers; with `filtered` its answer leaves out what
    the caller may not see. `target` returns None if a request names no object. `objects` marks a
    change: it is audited with the ids and names that these find in the request and in the answer.
    """

    permission: Permission | None = None
    target: Callable[[Any], AccessTarget | None] = lambda sent: None
    filtered: bool = False
    objects: Callable[[Any], Objects] | None = None
    made: Callable[[Any], Objects] = lambda answer: {}


OPEN, FILTERED = AccessRow(), AccessRow(filtered=True)


def _job(named: str) -> JobTarget | None:
    key = known_job(named)
    return None if key is None else JobTarget(key)


def _pool(named: str) -> PoolTarget | None:
    # The query of a creation, so that its answer is kept where it is read.
    return PoolTarget(GetPool(pool_key(named), config_only=True)) if named else None


def _pool_at(path: str) -> PoolTarget | None:
    if not path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part]
    return PoolTarget(GetPool(path="/" + "/".join(parts), config_only=True))


def _actor(sent: Any) -> AccessTarget | None:
    """Return the job or pool of an actor; hosts belong to the cluster."""
    try:
        key = parse_key(sent.key).key
    except BadKey:
        kind = sent.key.partition("/")[0]
        return None if kind in FORMS else KindTarget(kind)
    kind, _, name = key.partition("/")
    if kind == "respool":
        return _pool(name)
    if kind == "schedule":
        return ScheduleTarget(key, exact=True)
    return _job(name.partition("/")[0]) if kind in OF_JOBS else ClusterTarget()


def _watched(sent: Any) -> AccessTarget | None:
    if sent.job_id:
        return _job(sent.job_id)
    if sent.pool:
        return _pool_at(sent.pool) or _pool(sent.pool)
    seen = (*OF_JOBS, "respool")
    if len(sent.kinds) == 1 and sent.kinds[0] not in FORMS:
        return KindTarget(sent.kinds[0])
    return None if all(kind in seen for kind in sent.kinds) else ClusterTarget()


def _of_kind(sent: Any) -> AccessTarget:
    return KindTarget(sent.kind)


def _told(sent: Any) -> Objects:
    return {"actor": f"{sent.kind}/{sent.name}", "message": sent.message}


def _stopped(sent: Any) -> Objects:
    ranges = [(getattr(one, "from"), one.to) for one in sent.ranges[:SHOWN_RANGES_MAX]]
    return {"job": sent.jobId.value} | ({"ranges": ranges} if ranges else {})


def _rolled(sent: Any) -> Objects:
    return {"job": sent.id.value}


def _updated_job(sent: Any) -> Objects:
    return {"job": sent.id.value, "instances": sent.config.instanceCount}


def _created_job(sent: Any) -> Objects:
    config, files_of = sent.config, sent.filesOf.value
    found = {"job": sent.id.value, "pool": config.respoolID.value, "name": config.name}
    return {**found, "files_of": files_of} if files_of else found


def _created_service(sent: Any) -> Objects:
    spec = sent.spec
    return {"job": sent.job_id.value, "pool": spec.respool_id.value, "name": spec.name}


def _new_job(sent: Any) -> AccessTarget | None:
    """Return the pool of a new job as the call finds it: by the path, or else by the id in the
    config."""
    path = sent.pool.value
    return _pool_at(path) if path else _pool(sent.config.respoolID.value)


def _created_job_at(sent: Any) -> Objects:
    pool = sent.pool.value or sent.config.respoolID.value
    return {"job": sent.id.value, "pool": pool, "name": sent.config.name}


def _created_pool(sent: Any) -> Objects:
    return {"parent": sent.config.parent.value, "name": sent.config.name}


def _updated_pool(sent: Any) -> Objects:
    return {"pool": sent.id.value, "name": sent.config.name, "force": sent.Force}


def _killed(sent: Any) -> Objects:
    return {"tasks": [one.value for one in sent.tasks[:SHOWN_RANGES_MAX]]}


def _hosts(sent: Any) -> Objects:
    names = [sent.hostname] if sent.hostname else [*sent.hostnames]
    return {"hosts": names[:SHOWN_HOSTS_MAX]}


def _moved_host(sent: Any) -> Objects:
    return {"host": sent.hostname, "from": sent.sourcePool, "to": sent.destinationPool}


def _names(hosts: Iterable[Any]) -> list[str]:
    return [one.hostname for one in islice(hosts, SHOWN_HOSTS_MAX)]


def _components(sent: Any) -> Objects:
    return {"components": [*sent.components[:SHOWN_RANGES_MAX]]}


def _nothing_named(sent: Any) -> Objects:
    return {}


def _cluster(sent: Any) -> AccessTarget:
    return ClusterTarget()


def _new_pool(sent: Any) -> AccessTarget:
    return NewPoolTarget(pool_key(sent.config.parent.value), sent.config.name)


def _renamed_pool(sent: Any) -> AccessTarget | None:
    named = sent.id.value
    return RenamedPoolTarget(pool_key(named), sent.config.name) if named else None


def _planned_pool(sent: Any) -> AccessTarget | None:
    if sent.pool_id:
        return RenamedPoolTarget(pool_key(sent.pool_id), sent.config.name)
    return NewPoolTarget(pool_key(sent.config.parent.value), sent.config.name)


def _renamed_pool_v1(sent: Any) -> AccessTarget | None:
    named = sent.respool_id.value
    return RenamedPoolTarget(pool_key(named), sent.spec.name) if named else None


SEE, SUBMIT = Permission.SEE, Permission.SUBMIT
STOP, ADMINISTER = Permission.STOP, Permission.ADMINISTER
OF_JOBS = ("job", "slice", "task", "lot")
JOBS_2, TASKS_2 = "peloton.api.v0.job.svc.JobService", "peloton.api.v0.task.svc.TaskService"
POOLS_2 = "peloton.api.v0.respool.ResourcePoolService"
POOLS_V1 = "peloton.api.v1alpha.respool.ResourcePoolService"
HOSTS, HOSTS_V1 = "peloton.api.v0.host.svc.HostService", "peloton.api.v1alpha.host.svc.HostService"
JOBS, TASKS = "peloton.api.v0.job.JobManager", "peloton.api.v0.task.TaskManager"
POOLS, OPS = "peloton.api.v0.respool.ResourceManager", "peloton.ops.v1.Ops"
SCHEDULES, PLANS = "peloton.ops.v1.Schedules", "peloton.ops.v1.Plans"
ACTORS = "peloton.ops.v1.Actors"
INTERNAL_HOSTS = "peloton.private.hostmgr.hostsvc.InternalHostService"
HOST_MANAGER = "peloton.private.hostmgr.v1alpha.svc.HostManagerService"
INTERNAL_TASKS = "peloton.private.resmgr.ResourceManagerService"
EVENTS = "peloton.private.eventstream.EventStreamService"
POD_EVENTS = "peloton.private.eventstream.v1alpha.eventstreamsvc.EventStreamService"
SERVICES = "peloton.api.v1alpha.job.stateless.svc.JobService"
PODS = "peloton.api.v1alpha.pod.svc.PodService"
UPDATES = "peloton.api.v0.update.svc.UpdateService"
ENDPOINTS, OUTPUTS = "peloton.ops.v1.Endpoints", "peloton.ops.v1.Outputs"
WATCHES = "peloton.api.v1alpha.watch.svc.WatchService"
VOLUMES = "peloton.api.v0.volume.svc.VolumeService"
VOLUMES_V1 = "peloton.api.v1alpha.volume.svc.VolumeService"
ADMIN = "peloton.api.v1alpha.admin.svc.AdminService"
JOB_CACHE = "peloton.private.jobmgr.JobManagerService"

_MAINTAINED = AccessRow(ADMINISTER, _cluster)._replace(objects=_hosts)
_POOLED = _MAINTAINED._replace(objects=lambda sent: {"host_pool": sent.name})
_MOVED = _MAINTAINED._replace(objects=_moved_host)
_BY_ID = AccessRow(SEE, lambda sent: _job(sent.id.value))
_BY_JOB_ID = AccessRow(SEE, lambda sent: _job(sent.jobId.value))
_BY_NAMED_JOB = AccessRow(SEE, lambda sent: _job(sent.job_id.value))
_OF_SERVICE = _BY_NAMED_JOB._replace(
    permission=STOP, objects=lambda sent: {"job": sent.job_id.value}
)
_BY_UPDATE = AccessRow(SEE, lambda sent: _job(job_of_update(sent.updateId.value)))
_OF_UPDATE = _BY_UPDATE._replace(
    permission=STOP, objects=lambda sent: {"update": sent.updateId.value}
)
_BY_POD = AccessRow(SEE, lambda sent: _job(pod_parts(sent.pod_name.value)[0]))
_OF_POD = _BY_POD._replace(permission=STOP, objects=lambda sent: {"pod": sent.pod_name.value})
_BY_OPS_ID = AccessRow(SEE, lambda sent: _job(sent.job_id))
_OF_CLUSTER = AccessRow(ADMINISTER, _cluster)
_SCHEDULE = AccessRow(SEE, lambda sent: ScheduleTarget(named_schedule(sent.name)))
_CHANGED_SCHEDULE = _SCHEDULE._replace(
    permission=STOP, objects=lambda sent: {"schedule": sent.name}
)

_BY_VOLUME = AccessRow(SEE, lambda sent: _job(job_of_volume(sent.id.value)))
_BY_VOLUME_V1 = AccessRow(SEE, lambda sent: _job(job_of_volume(sent.volume_id.value)))

_FIRST: dict[str, AccessRow] = {
    f"{JOBS}.Create": AccessRow(
        SUBMIT,
        lambda sent: _pool(sent.config.respoolID.value),
        objects=_created_job,
        made=lambda answer: {"job": answer.jobId.value} if answer.jobId.value else {},
    ),
    f"{JOBS}.Get": _BY_ID,
    f"{JOBS}.Query": FILTERED,
    f"{JOBS}.GetCache": _BY_ID,
    f"{JOBS}.Delete": _BY_ID._replace(permission=STOP, objects=lambda sent: {"job": sent.id.value}),
    f"{JOBS}.Update": _BY_ID._replace(permission=STOP, objects=_updated_job),
    f"{JOBS}.Refresh": _BY_ID,
    f"{JOBS}.Restart": _BY_ID._replace(permission=STOP, objects=_rolled),
    f"{JOBS}.Start": _BY_ID._replace(permission=STOP, objects=_rolled),
    f"{JOBS}.Stop": _BY_ID._replace(permission=STOP, objects=_rolled),
    f"{JOBS}.GetActiveJobs": FILTERED,
    f"{TASKS}.Get": _BY_JOB_ID,
    f"{TASKS}.List": _BY_JOB_ID,
    f"{TASKS}.Query": _BY_JOB_ID,
    f"{TASKS}.GetCache": _BY_JOB_ID,
    f"{TASKS}.GetPodEvents": _BY_JOB_ID,
    f"{TASKS}.DeletePodEvents": _BY_JOB_ID._replace(
        permission=STOP,
        objects=lambda sent: {
            "job": sent.jobId.value,
            "instance": sent.instanceId,
            "run": sent.runId,
        },
    ),
    f"{TASKS}.BrowseSandbox": _BY_JOB_ID,
    f"{TASKS}.Stop": _BY_JOB_ID._replace(permission=STOP, objects=_stopped),
    f"{TASKS}.Start": _BY_JOB_ID._replace(permission=STOP, objects=_stopped),
    f"{TASKS}.Restart": _BY_JOB_ID._replace(permission=STOP, objects=_stopped),
    f"{TASKS}.Refresh": _BY_JOB_ID,
    f"{POOLS}.CreateResourcePool": AccessRow(
        ADMINISTER,
        _new_pool,
        objects=_created_pool,
        made=lambda answer: {"pool": answer.result.value} if answer.result.value else {},
    ),
    f"{POOLS}.GetResourcePool": AccessRow(
        SEE, lambda sent: _pool(sent.id.value or ROOT.partition("/")[2]), filtered=True
    ),
    f"{POOLS}.DeleteResourcePool": AccessRow(
        ADMINISTER,
        lambda sent: _pool_at(sent.path.value),
        objects=lambda sent: {"path": sent.path.value},
    ),
    f"{POOLS}.UpdateResourcePool": AccessRow(ADMINISTER, _renamed_pool, objects=_updated_pool),
    f"{POOLS}.LookupResourcePoolID": AccessRow(SEE, lambda sent: _pool_at(sent.path.value)),
    f"{POOLS}.Query": FILTERED,
    f"{OPS}.Why": _BY_OPS_ID,
    f"{OPS}.WaitJob": _BY_OPS_ID,
    f"{OPS}.Watch": AccessRow(SEE, _watched, filtered=True),
    f"{OPS}.Story": AccessRow(SEE, _actor),
    f"{OPS}.ListQuarantine": AccessRow(ADMINISTER, _cluster),
    f"{OPS}.Redrive": AccessRow(
        ADMINISTER, _cluster, objects=lambda sent: {"key": sent.key, "message": sent.message}
    ),
    f"{OPS}.ListHosts": AccessRow(ADMINISTER, _cluster),
    f"{OPS}.ListPools": FILTERED,
    f"{OPS}.PoolHistory": AccessRow(SEE, lambda sent: _pool_at(sent.path)),
    f"{OPS}.ShowHost": AccessRow(ADMINISTER, _cluster),
    f"{OPS}.ForgetHost": AccessRow(
        ADMINISTER, _cluster, objects=lambda sent: {"host": sent.name, "lose_runs": sent.lose_runs}
    ),
    f"{ACTORS}.ListKinds": OPEN,
    f"{ACTORS}.Tell": AccessRow(SUBMIT, _of_kind, objects=_told),
    f"{ACTORS}.Ask": AccessRow(SEE, _of_kind),
    f"{ACTORS}.ListActors": AccessRow(SEE, _of_kind),
    f"{ACTORS}.WatchActor": AccessRow(SEE, _of_kind),
    f"{PLANS}.PlanJob": AccessRow(SUBMIT, lambda sent: _pool(sent.config.respoolID.value)),
    f"{PLANS}.PlanPool": AccessRow(ADMINISTER, _planned_pool),
    f"{PLANS}.ExplainPool": AccessRow(SEE, lambda sent: _pool_at(sent.path), filtered=True),
    f"{SCHEDULES}.CreateSchedule": AccessRow(
        SUBMIT,
        lambda sent: _pool_at(sent.schedule.pool),
        objects=lambda sent: {"schedule": sent.schedule.name, "pool": sent.schedule.pool},
    ),
    f"{SCHEDULES}.CheckSchedule": AccessRow(SUBMIT, lambda sent: _pool_at(sent.schedule.pool)),
    f"{SCHEDULES}.GetSchedule": _SCHEDULE,
    f"{SCHEDULES}.ListSchedules": FILTERED,
    f"{SCHEDULES}.PauseSchedule": _CHANGED_SCHEDULE,
    f"{SCHEDULES}.ResumeSchedule": _CHANGED_SCHEDULE,
    f"{SCHEDULES}.DeleteSchedule": _CHANGED_SCHEDULE,
    f"{INTERNAL_HOSTS}.ClusterCapacity": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetHostsByQuery": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetMesosAgentInfo": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetOutstandingOffers": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.WatchEventStreamEvent": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.WatchHostSummaryEvent": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.CancelWatchEvent": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetDrainingHosts": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.MarkHostDrained": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetTasksByHostState": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetMesosMasterHostPort": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.GetHostPoolCapacity": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.AcquireHostOffers": _OF_CLUSTER._replace(
        objects=_nothing_named,
        made=lambda answer: {"hosts": _names(answer.hostOffers)} if answer.hostOffers else {},
    ),
    f"{INTERNAL_HOSTS}.ReleaseHostOffers": _OF_CLUSTER._replace(
        objects=lambda sent: {"hosts": _names(sent.hostOffers)}
    ),
    f"{INTERNAL_HOSTS}.GetHosts": _OF_CLUSTER,
    f"{INTERNAL_HOSTS}.LaunchTasks": _OF_CLUSTER._replace(
        objects=lambda sent: {
            "host": sent.hostname,
            "tasks": [one.taskId.value for one in sent.tasks[:SHOWN_RANGES_MAX]],
        }
    ),
    f"{INTERNAL_HOSTS}.KillTasks": _OF_CLUSTER._replace(
        objects=lambda sent: {"tasks": [one.value for one in sent.taskIds[:SHOWN_RANGES_MAX]]}
    ),
    f"{INTERNAL_HOSTS}.KillAndReserveTasks": _OF_CLUSTER._replace(
        objects=lambda sent: {
            "tasks": [one.taskId.value for one in sent.entries[:SHOWN_RANGES_MAX]],
            "hosts": [one.hostToReserve for one in sent.entries[:SHOWN_HOSTS_MAX]],
        }
    ),
    f"{INTERNAL_HOSTS}.ReleaseHostsHeldForTasks": _OF_CLUSTER._replace(
        objects=lambda sent: {"tasks": [one.value for one in sent.ids[:SHOWN_RANGES_MAX]]}
    ),
    f"{INTERNAL_HOSTS}.ReserveHosts": _OF_CLUSTER._replace(
        objects=lambda sent: {
            "task": sent.reservation.task.id.value,
            "hosts": _names(sent.reservation.hosts),
        }
    ),
    f"{INTERNAL_HOSTS}.GetCompletedReservations": _OF_CLUSTER._replace(
        objects=_nothing_named,
        made=lambda answer: (
            {"hosts": _names(one.host for one in answer.completedReservations)}
            if answer.completedReservations
            else {}
        ),
    ),
    f"{INTERNAL_HOSTS}.DisableKillTasks": _OF_CLUSTER._replace(objects=_nothing_named),
    f"{EVENTS}.InitStream": _OF_CLUSTER,
    f"{EVENTS}.WaitForEvents": _OF_CLUSTER,
    f"{POD_EVENTS}.InitStream": _OF_CLUSTER,
    f"{POD_EVENTS}.WaitForEvents": _OF_CLUSTER,
    f"{HOST_MANAGER}.GetEvents": _OF_CLUSTER,
    f"{HOST_MANAGER}.ClusterCapacity": _OF_CLUSTER,
    f"{HOST_MANAGER}.GetHostCache": _OF_CLUSTER,
    f"{HOST_MANAGER}.AcquireHosts": _OF_CLUSTER._replace(
        objects=_nothing_named,
        made=lambda answer: (
            {"hosts": _names(one.host_summary for one in answer.hosts)} if answer.hosts else {}
        ),
    ),
    f"{HOST_MANAGER}.TerminateLeases": _OF_CLUSTER._replace(
        objects=lambda sent: {"hosts": _names(sent.leases)}
    ),
    f"{HOST_MANAGER}.LaunchPods": _OF_CLUSTER._replace(
        objects=lambda sent: {
            "host": sent.hostname,
            "pods": [one.pod_id.value for one in sent.pods[:SHOWN_RANGES_MAX]],
        }
    ),
    f"{HOST_MANAGER}.KillPods": _OF_CLUSTER._replace(
        objects=lambda sent: {"pods": [one.value for one in sent.pod_ids[:SHOWN_RANGES_MAX]]}
    ),
    f"{HOST_MANAGER}.KillAndHoldPods": _OF_CLUSTER._replace(
        objects=lambda sent: {
            "pods": [one.pod_id.value for one in sent.entries[:SHOWN_RANGES_MAX]],
            "hosts": [one.hostToHold for one in sent.entries[:SHOWN_HOSTS_MAX]],
        }
    ),
    f"{INTERNAL_TASKS}.GetActiveTasks": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.GetOrphanTasks": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.GetPendingTasks": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.GetTasksByHosts": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.KillTasks": _OF_CLUSTER._replace(objects=_killed),
    f"{INTERNAL_TASKS}.GetPreemptibleTasks": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.GetHostsByScores": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.UpdateTasksState": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.NotifyTaskUpdates": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.EnqueueGangs": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.DequeueGangs": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.SetPlacements": _OF_CLUSTER,
    f"{INTERNAL_TASKS}.GetPlacements": _OF_CLUSTER,
    f"{SERVICES}.CreateJob": AccessRow(
        SUBMIT,
        lambda sent: _pool(sent.spec.respool_id.value),
        objects=_created_service,
        made=lambda answer: {"job": answer.job_id.value} if answer.job_id.value else {},
    ),
    f"{SERVICES}.StartJob": _OF_SERVICE,
    f"{SERVICES}.StopJob": _OF_SERVICE,
    f"{SERVICES}.DeleteJob": _OF_SERVICE,
    f"{SERVICES}.ReplaceJob": _OF_SERVICE,
    f"{SERVICES}.PatchJob": _OF_SERVICE,
    f"{SERVICES}.RestartJob": _OF_SERVICE,
    f"{SERVICES}.PauseJobWorkflow": _OF_SERVICE,
    f"{SERVICES}.ResumeJobWorkflow": _OF_SERVICE,
    f"{SERVICES}.AbortJobWorkflow": _OF_SERVICE,
    f"{SERVICES}.ListJobWorkflows": _BY_NAMED_JOB,
    f"{SERVICES}.GetWorkflowEvents": _BY_NAMED_JOB,
    f"{UPDATES}.CreateUpdate": _BY_JOB_ID._replace(
        permission=STOP, objects=lambda sent: {"job": sent.jobId.value}
    ),
    f"{UPDATES}.GetUpdate": _BY_UPDATE,
    f"{UPDATES}.GetUpdateCache": _BY_UPDATE,
    f"{UPDATES}.ListUpdates": AccessRow(SEE, lambda sent: _job(sent.jobID.value)),
    f"{UPDATES}.PauseUpdate": _OF_UPDATE,
    f"{UPDATES}.ResumeUpdate": _OF_UPDATE,
    f"{UPDATES}.AbortUpdate": _OF_UPDATE,
    f"{UPDATES}.RollbackUpdate": _OF_UPDATE,
    f"{SERVICES}.RefreshJob": _BY_NAMED_JOB,
    f"{SERVICES}.GetJob": _BY_NAMED_JOB,
    f"{SERVICES}.GetReplaceJobDiff": _BY_NAMED_JOB,
    f"{SERVICES}.GetJobCache": _BY_NAMED_JOB,
    f"{SERVICES}.QueryJobs": FILTERED,
    f"{SERVICES}.ListPods": _BY_NAMED_JOB,
    f"{SERVICES}.QueryPods": _BY_NAMED_JOB,
    f"{SERVICES}.ListJobs": FILTERED,
    f"{SERVICES}.GetJobIDFromJobName": FILTERED,
    f"{PODS}.StartPod": _OF_POD,
    f"{PODS}.StopPod": _OF_POD,
    f"{PODS}.RestartPod": _OF_POD,
    f"{PODS}.GetPod": _BY_POD,
    f"{PODS}.GetPodCache": _BY_POD,
    f"{PODS}.GetPodEvents": _BY_POD,
    f"{PODS}.DeletePodEvents": _OF_POD._replace(
        objects=lambda sent: {"pod": sent.pod_name.value, "run": sent.pod_id.value}
    ),
    f"{PODS}.RefreshPod": _BY_POD,
    f"{PODS}.BrowsePodSandbox": _BY_POD,
    f"{ENDPOINTS}.ListEndpoints": _BY_OPS_ID,
    f"{OUTPUTS}.HoldOutputs": _BY_OPS_ID,
    f"{OUTPUTS}.ReadOutputs": _BY_OPS_ID,
    f"{WATCHES}.Watch": FILTERED,
    f"{WATCHES}.Cancel": OPEN,  # an id is known to who has been told it
    f"{VOLUMES}.ListVolumes": _BY_JOB_ID,
    f"{VOLUMES}.GetVolume": _BY_VOLUME,
    f"{VOLUMES}.DeleteVolume": _BY_VOLUME._replace(
        permission=STOP, objects=lambda sent: {"volume": sent.id.value}
    ),
    f"{VOLUMES_V1}.ListVolumes": _BY_NAMED_JOB,
    f"{VOLUMES_V1}.GetVolume": _BY_VOLUME_V1,
    f"{VOLUMES_V1}.DeleteVolume": _BY_VOLUME_V1._replace(
        permission=STOP, objects=lambda sent: {"volume": sent.volume_id.value}
    ),
    f"{ADMIN}.Lockdown": _OF_CLUSTER._replace(objects=_components),
    f"{ADMIN}.RemoveLockdown": _OF_CLUSTER._replace(objects=_components),
    f"{JOB_CACHE}.QueryJobCache": FILTERED,
    f"{JOB_CACHE}.GetInstanceAvailabilityInfoForJob": _BY_NAMED_JOB,
    f"{JOB_CACHE}.GetJobCache": _BY_NAMED_JOB,
    f"{JOB_CACHE}.GetThrottledPods": _OF_CLUSTER,
    f"{JOB_CACHE}.RefreshJob": _BY_NAMED_JOB,
    f"{HOSTS}.QueryHosts": _OF_CLUSTER,
    f"{HOSTS}.ListHostPools": _OF_CLUSTER,
    f"{HOSTS}.StartMaintenance": _MAINTAINED,
    f"{HOSTS}.CompleteMaintenance": _MAINTAINED,
    f"{HOSTS}.CreateHostPool": _POOLED,
    f"{HOSTS}.DeleteHostPool": _POOLED,
    f"{HOSTS}.ChangeHostPool": _MOVED,
    f"{HOSTS}.MoveHosts": _MAINTAINED._replace(
        objects=lambda sent: {"from": sent.sourcePool, "to": sent.destinationPool}
    ),
    f"{HOSTS_V1}.CreateHostPool": _POOLED,
    f"{HOSTS_V1}.DeleteHostPool": _POOLED,
    f"{HOSTS_V1}.ChangeHostPool": _MOVED,
    f"{HOSTS_V1}.QueryHosts": _OF_CLUSTER,
    f"{HOSTS_V1}.ListHostPools": _OF_CLUSTER,
    f"{HOSTS_V1}.StartMaintenance": _MAINTAINED,
    f"{HOSTS_V1}.CompleteMaintenance": _MAINTAINED,
    "grpc.health.v1.Health.Check": OPEN,
    "grpc.health.v1.Health.Watch": OPEN,
    "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo": OPEN,
}

COUNTERPARTS: Mapping[str, str] = {
    **{f"{JOBS_2}.{name}": f"{JOBS}.{to.method}" for name, to in counterparts.JOBS.items()},
    **{f"{TASKS_2}.{name}": f"{TASKS}.{to.method}" for name, to in counterparts.TASKS.items()},
    **{f"{POOLS_2}.{name}": f"{POOLS}.{to.method}" for name, to in counterparts.POOLS.items()},
    f"{JOBS_2}.QueryJobs": f"{JOBS}.Query",
    f"{TASKS_2}.QueryTasks": f"{TASKS}.Query",
}
"""Calls of the second services, whose requests name their objects as those of the first do."""

_OWN: Mapping[str, AccessRow] = {
    f"{JOBS_2}.CreateJob": _FIRST[f"{JOBS}.Create"]._replace(
        target=_new_job, objects=_created_job_at
    ),
    f"{POOLS_2}.CreateResourcePool": _FIRST[f"{POOLS}.CreateResourcePool"]._replace(
        made=lambda answer: {"pool": answer.id.value}
    ),
    f"{POOLS_2}.DeleteResourcePool": AccessRow(
        ADMINISTER,
        lambda sent: _pool(sent.id.value),
        objects=lambda sent: {"pool": sent.id.value},
    ),
    f"{POOLS_V1}.CreateResourcePool": AccessRow(
        ADMINISTER,
        lambda sent: NewPoolTarget(pool_key(sent.spec.parent.value), sent.spec.name),
        objects=lambda sent: {"parent": sent.spec.parent.value, "name": sent.spec.name},
        made=lambda answer: {"pool": answer.respool_id.value},
    ),
    f"{POOLS_V1}.GetResourcePool": AccessRow(
        SEE, lambda sent: _pool(sent.respool_id.value or ROOT.partition("/")[2]), filtered=True
    ),
    f"{POOLS_V1}.DeleteResourcePool": AccessRow(
        ADMINISTER,
        lambda sent: _pool(sent.respool_id.value),
        objects=lambda sent: {"pool": sent.respool_id.value},
    ),
    f"{POOLS_V1}.UpdateResourcePool": AccessRow(
        ADMINISTER,
        _renamed_pool_v1,
        objects=lambda sent: {
            "pool": sent.respool_id.value,
            "name": sent.spec.name,
            "force": sent.Force,
        },
    ),
    f"{POOLS_V1}.LookupResourcePoolID": _FIRST[f"{POOLS}.LookupResourcePoolID"],
    f"{POOLS_V1}.QueryResourcePools": FILTERED,
}

ACCESS_TABLE: Mapping[str, AccessRow] = {
    **_FIRST,
    **{name: _FIRST[first] for name, first in COUNTERPARTS.items() if first in _FIRST},
    **_OWN,
}
