"""Every call × role × relation to its object: what is allowed, denied or hidden.

The calls come from the descriptors of all services that are served; `golden/access.txt` has the
cells, for people to read. Write it anew, and read what has changed:

    python -m tests.gateway.access.test_access_cells
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2 as host_svc
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job.svc import job_svc_pb2 as job_svc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool.svc import respool_svc_pb2 as respool_svc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task.svc import task_svc_pb2 as task_svc
from peloton.api.v0.update.svc import update_svc_pb2 as update_svc
from peloton.api.v0.volume.svc import volume_svc_pb2 as volume_svc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as admin_svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as stateless_svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pod_svc
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as volume_svc_v1
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as watch_svc
from peloton.gateway.access.access_table import (
    ACCESS_TABLE,
    ACTORS,
    ADMIN,
    COUNTERPARTS,
    ENDPOINTS,
    EVENTS,
    FILTERED,
    HOST_MANAGER,
    INTERNAL_HOSTS,
    INTERNAL_TASKS,
    JOB_CACHE,
    OUTPUTS,
    PLANS,
    POD_EVENTS,
    PODS,
    SCHEDULES,
    SERVICES,
    UPDATES,
    WATCHES,
)
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.cluster.gates import Gates, UnlistedMethod
from peloton.gateway.ops.ops import Ops
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.serving import Server
from peloton.gateway.server.unimplemented import described_services
from peloton.gateway.translate.stateless_specs import job_spec_of
from peloton.ops.v1 import actors_pb2 as actors
from peloton.ops.v1 import endpoints_pb2, outputs_pb2, schedules_pb2_grpc
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import plans_pb2 as plans
from peloton.ops.v1 import schedules_pb2 as wire
from peloton.private.eventstream import eventstream_pb2 as eventstream
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2 as eventstreamsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.runtime.core.principal import Principal
from tests.gateway.access_fixture import (
    ROLES,
    Guarded,
    create_request,
    guarded,
    said_by,
    unknown_id,
)
from tests.gateway.fleet_fixture import WAIT_S_MAX, named, pool_config

GOLDEN = Path(__file__).parent / "golden" / "access.txt"
CODE = grpc.StatusCode
RELATIONS = ("own", "same pool", "other pool", "unknown")
PATHS = {"own": "/team/jobs", "same pool": "/team/more", "other pool": "/other/jobs"}
"""Where the job of a relation is, or which pool; the caller has created the first one."""
HEADER = """\
# What a call answers, by role and by the relation of its object to the caller. The object is a job
# that the caller created, another one in the same pool, one in another pool, none at all; or one of
# these pools. For listings: whether the answer has it.
#
# allowed: the call is carried out. denied: PERMISSION_DENIED. hidden: the same answer as for an
# object that does not exist. no object: of an object that does not exist.
"""
UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def services() -> list[ServiceDescriptor]:
    """All that a server may serve."""
    modules = (ops, wire, plans, actors, endpoints_pb2, outputs_pb2, health_pb2, reflection_pb2)
    found = [one for each in modules for one in each.DESCRIPTOR.services_by_name.values()]
    return [*described_services(), *found]


def methods() -> dict[str, Any]:
    """Every method there is a descriptor of, by its full name."""
    return {method.full_name: method for service in services() for method in service.methods}


# ---- requests, by method ----


class Objects:
    """The objects of each role and relation, made when they are first needed."""

    def __init__(self, fleet: Guarded) -> None:
        self._fleet = fleet
        self._jobs: dict[tuple[str, str], str] = {}

    def job(self, relation: str, by: Principal, *, fresh: bool = False) -> str:
        """The id of a job."""
        if relation == "unknown":
            return unknown_id()
        creator = by if relation == "own" else None
        key = relation, by.text if relation == "own" else ""
        if fresh or key not in self._jobs:
            self._jobs[key] = self._fleet.job(PATHS[relation], creator)
        return self._jobs[key]

    def service(self, relation: str, by: Principal) -> str:
        """The id of a new service."""
        if relation == "unknown":
            return unknown_id()
        creator = by if relation == "own" else None
        return self._fleet.job(PATHS[relation], creator, type=job.SERVICE)

    def schedule(self, relation: str, by: Principal) -> str:
        """The name of a new schedule."""
        name = unknown_id()
        if relation != "unknown":
            made = wire.Schedule(name=name, cron="@yearly", pool=PATHS[relation])
            made.job.CopyFrom(create_request("").config)
            stub = schedules_pb2_grpc.SchedulesStub(self._fleet.open.channel)
            said = said_by(by) if relation == "own" else None
            stub.CreateSchedule(wire.CreateScheduleRequest(schedule=made), metadata=said)
        return name

    def pool(self, relation: str) -> str:
        """The id of a pool."""
        return unknown_id() if relation == "unknown" else self._fleet.pools[PATHS[relation]]

    def parent(self, relation: str) -> str:
        """The id of the pool above it."""
        if relation == "unknown":
            return unknown_id()
        return self._fleet.pools[PATHS[relation].rpartition("/")[0]]


def path_of(relation: str) -> str:
    return PATHS.get(relation, "/nowhere")


def update_request(objects: Objects, relation: str) -> respool.UpdateRequest:
    name = path_of(relation).rpartition("/")[2]
    config = pool_config(name, objects.parent(relation))
    return respool.UpdateRequest(id={"value": objects.pool(relation)}, config=config)


JOBS, TASKS = "peloton.api.v0.job.JobManager", "peloton.api.v0.task.TaskManager"
POOLS, OPS = "peloton.api.v0.respool.ResourceManager", "peloton.ops.v1.Ops"
Made = Callable[[Objects, str, Principal], Any]


def service_request(pool: str) -> stateless_svc.CreateJobRequest:
    """A service for a pool by its id."""
    config = create_request(pool).config
    return stateless_svc.CreateJobRequest(spec=job_spec_of(config))


def of(job_id: str) -> Any:
    """As v1alpha names a job."""
    return {"value": job_id}


def pod_events_request(job_id: str) -> Any:
    """To delete the events of the first run of a pod."""
    return pod_svc.DeletePodEventsRequest(pod_name=of(f"{job_id}-0"), pod_id=of(f"{job_id}-0-1"))


FRESH = ("StopPod", "GetPodEvents")
"""Of a job of its own: what other calls leave of a shared one is not told from none at all."""


def pool_id(value: str) -> peloton_pb2.ResourcePoolID:
    return peloton_pb2.ResourcePoolID(value=value)


def pool_path(relation: str) -> respool.ResourcePoolPath:
    return respool.ResourcePoolPath(value=path_of(relation))


REQUESTS: dict[str, Made] = {
    f"{JOBS}.Create": lambda o, r, by: create_request(o.pool(r)),
    f"{JOBS}.Get": lambda o, r, by: job.GetRequest(id=named(o.job(r, by))),
    f"{JOBS}.Query": lambda o, r, by: job.QueryRequest(
        spec={"pagination": {"limit": 1000, "maxLimit": 1000}}, summaryOnly=True
    ),
    f"{JOBS}.GetCache": lambda o, r, by: job.GetCacheRequest(id=named(o.job(r, by))),
    f"{JOBS}.Delete": lambda o, r, by: job.DeleteRequest(id=named(o.job(r, by))),
    f"{JOBS}.Update": lambda o, r, by: job.UpdateRequest(id=named(o.job(r, by))),
    f"{JOBS}.Refresh": lambda o, r, by: job.RefreshRequest(id=named(o.job(r, by))),
    f"{JOBS}.Restart": lambda o, r, by: job.RestartRequest(id=named(o.job(r, by))),
    f"{JOBS}.Start": lambda o, r, by: job.StartRequest(id=named(o.job(r, by))),
    f"{JOBS}.Stop": lambda o, r, by: job.StopRequest(id=named(o.job(r, by))),
    f"{JOBS}.GetActiveJobs": lambda o, r, by: job.GetActiveJobsRequest(),
    f"{TASKS}.Get": lambda o, r, by: task.GetRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.List": lambda o, r, by: task.ListRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.Query": lambda o, r, by: task.QueryRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.GetCache": lambda o, r, by: task.GetCacheRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.Stop": lambda o, r, by: task.StopRequest(jobId=named(o.job(r, by, fresh=True))),
    f"{TASKS}.Start": lambda o, r, by: task.StartRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.Restart": lambda o, r, by: task.RestartRequest(jobId=named(o.job(r, by))),
    f"{TASKS}.Refresh": lambda o, r, by: task.RefreshRequest(jobId=named(o.job(r, by))),
    # Of fresh ones: without events a job is to other calls as one that does not exist.
    f"{TASKS}.DeletePodEvents": lambda o, r, by: task.DeletePodEventsRequest(
        jobId=named(o.job(r, by, fresh=True)), runId=1
    ),
    f"{TASKS}.GetPodEvents": lambda o, r, by: task.GetPodEventsRequest(
        jobId=named(o.job(r, by, fresh=True)), limit=1
    ),
    f"{TASKS}.BrowseSandbox": lambda o, r, by: task.BrowseSandboxRequest(jobId=named(o.job(r, by))),
    f"{POOLS}.CreateResourcePool": lambda o, r, by: respool.CreateRequest(
        config=pool_config(f"new-{unknown_id()}", o.parent(r))
    ),
    f"{POOLS}.GetResourcePool": lambda o, r, by: respool.GetRequest(id=pool_id(o.pool(r))),
    f"{POOLS}.DeleteResourcePool": lambda o, r, by: respool.DeleteRequest(path=pool_path(r)),
    f"{POOLS}.UpdateResourcePool": lambda o, r, by: update_request(o, r),
    f"{POOLS}.LookupResourcePoolID": lambda o, r, by: respool.LookupRequest(path=pool_path(r)),
    f"{POOLS}.Query": lambda o, r, by: respool.QueryRequest(),
    f"{OPS}.Why": lambda o, r, by: ops.WhyRequest(job_id=o.job(r, by)),
    f"{OPS}.WaitJob": lambda o, r, by: ops.WaitJobRequest(job_id=o.job(r, by)),
    f"{OPS}.Watch": lambda o, r, by: ops.WatchRequest(job_id=o.job(r, by)),
    f"{OPS}.Story": lambda o, r, by: ops.StoryRequest(key=f"job/{o.job(r, by)}"),
    f"{OPS}.ListQuarantine": lambda o, r, by: ops.ListQuarantineRequest(),
    f"{OPS}.Redrive": lambda o, r, by: ops.RedriveRequest(key=f"job/{o.job(r, by)}"),
    f"{OPS}.PoolHistory": lambda o, r, by: ops.PoolHistoryRequest(path=path_of(r)),
    f"{PLANS}.PlanJob": lambda o, r, by: plans.PlanJobRequest(
        config=create_request(o.pool(r)).config
    ),
    f"{PLANS}.PlanPool": lambda o, r, by: plans.PlanPoolRequest(
        pool_id=update_request(o, r).id.value, config=update_request(o, r).config
    ),
    f"{PLANS}.ExplainPool": lambda o, r, by: plans.ExplainPoolRequest(path=path_of(r)),
    f"{SCHEDULES}.CreateSchedule": lambda o, r, by: wire.CreateScheduleRequest(
        schedule=wire.Schedule(name="x", cron="@yearly", pool=path_of(r))
    ),
    f"{SCHEDULES}.CheckSchedule": lambda o, r, by: wire.CheckScheduleRequest(
        schedule=wire.Schedule(name="x", cron="@yearly", pool=path_of(r))
    ),
    f"{SCHEDULES}.GetSchedule": lambda o, r, by: wire.GetScheduleRequest(name=o.schedule(r, by)),
    f"{SCHEDULES}.ListSchedules": lambda o, r, by: wire.ListSchedulesRequest(),
    # Of a kind without a rule, which is not installed: who may call it is told so.
    f"{ACTORS}.ListKinds": lambda o, r, by: actors.ListKindsRequest(),
    f"{ACTORS}.Tell": lambda o, r, by: actors.TellRequest(kind="lock", name="a"),
    f"{ACTORS}.Ask": lambda o, r, by: actors.AskRequest(kind="lock", name="a"),
    f"{ACTORS}.ListActors": lambda o, r, by: actors.ListActorsRequest(kind="lock"),
    f"{ACTORS}.WatchActor": lambda o, r, by: actors.WatchActorRequest(kind="lock", name="a"),
    f"{SCHEDULES}.PauseSchedule": lambda o, r, by: wire.PauseScheduleRequest(
        name=o.schedule(r, by)
    ),
    f"{SCHEDULES}.ResumeSchedule": lambda o, r, by: wire.ResumeScheduleRequest(
        name=o.schedule(r, by)
    ),
    f"{SCHEDULES}.DeleteSchedule": lambda o, r, by: wire.DeleteScheduleRequest(
        name=o.schedule(r, by)
    ),
    f"{OPS}.ListHosts": lambda o, r, by: ops.ListHostsRequest(),
    f"{OPS}.ListPools": lambda o, r, by: ops.ListPoolsRequest(),
    f"{OPS}.ShowHost": lambda o, r, by: ops.ShowHostRequest(name="nobody"),
    f"{OPS}.ForgetHost": lambda o, r, by: ops.ForgetHostRequest(name="nobody"),
    f"{INTERNAL_HOSTS}.ClusterCapacity": lambda o, r, by: hostsvc.ClusterCapacityRequest(),
    f"{INTERNAL_HOSTS}.GetHostsByQuery": lambda o, r, by: hostsvc.GetHostsByQueryRequest(),
    f"{INTERNAL_HOSTS}.GetMesosAgentInfo": lambda o, r, by: hostsvc.GetMesosAgentInfoRequest(),
    f"{INTERNAL_HOSTS}.GetOutstandingOffers": lambda o, r, by: (
        hostsvc.GetOutstandingOffersRequest()
    ),
    f"{INTERNAL_HOSTS}.WatchEventStreamEvent": lambda o, r, by: hostsvc.WatchEventRequest(
        topic="eventstream"
    ),
    f"{INTERNAL_HOSTS}.WatchHostSummaryEvent": lambda o, r, by: hostsvc.WatchEventRequest(
        topic="hostSummary"
    ),
    f"{INTERNAL_HOSTS}.CancelWatchEvent": lambda o, r, by: hostsvc.CancelWatchRequest(),
    f"{INTERNAL_HOSTS}.GetDrainingHosts": lambda o, r, by: hostsvc.GetDrainingHostsRequest(),
    f"{INTERNAL_HOSTS}.MarkHostDrained": lambda o, r, by: hostsvc.MarkHostDrainedRequest(
        hostname="nobody"
    ),
    f"{INTERNAL_HOSTS}.GetHostPoolCapacity": lambda o, r, by: hostsvc.GetHostPoolCapacityRequest(),
    f"{INTERNAL_HOSTS}.GetTasksByHostState": lambda o, r, by: hostsvc.GetTasksByHostStateRequest(),
    f"{INTERNAL_HOSTS}.GetMesosMasterHostPort": lambda o, r, by: (
        hostsvc.MesosMasterHostPortRequest()
    ),
    f"{EVENTS}.InitStream": lambda o, r, by: eventstream.InitStreamRequest(
        clientName="peloton-jobmgr"
    ),
    f"{EVENTS}.WaitForEvents": lambda o, r, by: eventstream.WaitForEventsRequest(),
    f"{POD_EVENTS}.InitStream": lambda o, r, by: eventstreamsvc.InitStreamRequest(
        client_name="peloton-jobmgr"
    ),
    f"{POD_EVENTS}.WaitForEvents": lambda o, r, by: eventstreamsvc.WaitForEventsRequest(),
    f"{HOST_MANAGER}.GetEvents": lambda o, r, by: hostmgr_svc.GetEventsRequest(),
    f"{HOST_MANAGER}.ClusterCapacity": lambda o, r, by: hostmgr_svc.ClusterCapacityRequest(),
    f"{INTERNAL_HOSTS}.AcquireHostOffers": lambda o, r, by: hostsvc.AcquireHostOffersRequest(
        filter={"resourceConstraint": {"minimum": {"cpuLimit": 1e6}}}  # no host has so much
    ),
    f"{INTERNAL_HOSTS}.ReleaseHostOffers": lambda o, r, by: hostsvc.ReleaseHostOffersRequest(),
    f"{INTERNAL_HOSTS}.GetHosts": lambda o, r, by: hostsvc.GetHostsRequest(filter={}),
    f"{INTERNAL_HOSTS}.LaunchTasks": lambda o, r, by: hostsvc.LaunchTasksRequest(
        hostname="nobody",
        agentId={"value": "nobody"},
        id={"value": "none"},
        tasks=[{"taskId": {"value": "t"}, "config": {"command": {"value": "true"}}}],
    ),
    f"{INTERNAL_HOSTS}.KillTasks": lambda o, r, by: hostsvc.KillTasksRequest(
        taskIds=[{"value": f"{o.job(r, by, fresh=True)}-0-1"}]
    ),
    f"{INTERNAL_HOSTS}.KillAndReserveTasks": lambda o, r, by: hostsvc.KillAndReserveTasksRequest(
        entries=[{"taskId": {"value": f"{o.job(r, by, fresh=True)}-0-1"}}]
    ),
    f"{INTERNAL_HOSTS}.ReleaseHostsHeldForTasks": lambda o, r, by: (
        hostsvc.ReleaseHostsHeldForTasksRequest(ids=[{"value": "nobody-0"}])
    ),
    f"{INTERNAL_HOSTS}.ReserveHosts": lambda o, r, by: hostsvc.ReserveHostsRequest(),
    f"{INTERNAL_HOSTS}.GetCompletedReservations": lambda o, r, by: (
        hostsvc.GetCompletedReservationRequest()
    ),
    f"{INTERNAL_HOSTS}.DisableKillTasks": lambda o, r, by: hostsvc.DisableKillTasksRequest(),
    f"{HOST_MANAGER}.KillAndHoldPods": lambda o, r, by: hostmgr_svc.KillAndHoldPodsRequest(
        entries=[{"pod_id": {"value": f"{o.job(r, by, fresh=True)}-0-1"}}]
    ),
    f"{HOST_MANAGER}.AcquireHosts": lambda o, r, by: hostmgr_svc.AcquireHostsRequest(
        filter={"resource_constraint": {"minimum": {"cpu_limit": 1e6}}}
    ),
    f"{HOST_MANAGER}.TerminateLeases": lambda o, r, by: hostmgr_svc.TerminateLeasesRequest(),
    f"{HOST_MANAGER}.LaunchPods": lambda o, r, by: hostmgr_svc.LaunchPodsRequest(
        hostname="nobody",
        lease_id={"value": "none"},
        pods=[
            {"pod_id": {"value": "t"}, "spec": {"containers": [{"entrypoint": {"value": "true"}}]}}
        ],
    ),
    f"{HOST_MANAGER}.KillPods": lambda o, r, by: hostmgr_svc.KillPodsRequest(
        pod_ids=[{"value": f"{o.job(r, by, fresh=True)}-0-1"}]
    ),
    f"{HOST_MANAGER}.GetHostCache": lambda o, r, by: hostmgr_svc.GetHostCacheRequest(),
    f"{INTERNAL_TASKS}.GetActiveTasks": lambda o, r, by: resmgrsvc.GetActiveTasksRequest(
        jobID=o.job(r, by)
    ),
    f"{INTERNAL_TASKS}.GetOrphanTasks": lambda o, r, by: resmgrsvc.GetOrphanTasksRequest(),
    f"{INTERNAL_TASKS}.GetPendingTasks": lambda o, r, by: resmgrsvc.GetPendingTasksRequest(
        respoolID=pool_id(o.pool(r))
    ),
    f"{INTERNAL_TASKS}.GetTasksByHosts": lambda o, r, by: resmgrsvc.GetTasksByHostsRequest(),
    f"{INTERNAL_TASKS}.KillTasks": lambda o, r, by: resmgrsvc.KillTasksRequest(
        tasks=[{"value": f"{o.job(r, by, fresh=True)}-0"}]
    ),
    f"{INTERNAL_TASKS}.GetPreemptibleTasks": lambda o, r, by: (
        resmgrsvc.GetPreemptibleTasksRequest()
    ),
    f"{INTERNAL_TASKS}.GetHostsByScores": lambda o, r, by: resmgrsvc.GetHostsByScoresRequest(),
    f"{INTERNAL_TASKS}.UpdateTasksState": lambda o, r, by: resmgrsvc.UpdateTasksStateRequest(),
    f"{INTERNAL_TASKS}.NotifyTaskUpdates": lambda o, r, by: resmgrsvc.NotifyTaskUpdatesRequest(),
    f"{INTERNAL_TASKS}.EnqueueGangs": lambda o, r, by: resmgrsvc.EnqueueGangsRequest(),
    f"{INTERNAL_TASKS}.DequeueGangs": lambda o, r, by: resmgrsvc.DequeueGangsRequest(),
    f"{INTERNAL_TASKS}.SetPlacements": lambda o, r, by: resmgrsvc.SetPlacementsRequest(),
    f"{INTERNAL_TASKS}.GetPlacements": lambda o, r, by: resmgrsvc.GetPlacementsRequest(),
    f"{SERVICES}.CreateJob": lambda o, r, by: service_request(o.pool(r)),
    f"{SERVICES}.GetReplaceJobDiff": lambda o, r, by: stateless_svc.GetReplaceJobDiffRequest(
        job_id=of(o.job(r, by))
    ),
    f"{SERVICES}.GetJobCache": lambda o, r, by: stateless_svc.GetJobCacheRequest(
        job_id=of(o.job(r, by))
    ),
    f"{SERVICES}.QueryJobs": lambda o, r, by: stateless_svc.QueryJobsRequest(
        spec={"pagination": {"limit": 1000, "max_limit": 1000}}
    ),
    f"{SERVICES}.ListJobs": lambda o, r, by: stateless_svc.ListJobsRequest(),
    # Of no version that a job has: whoever may is refused for that, and nothing changes.
    f"{SERVICES}.StartJob": lambda o, r, by: stateless_svc.StartJobRequest(job_id=of(o.job(r, by))),
    f"{SERVICES}.StopJob": lambda o, r, by: stateless_svc.StopJobRequest(job_id=of(o.job(r, by))),
    f"{SERVICES}.DeleteJob": lambda o, r, by: stateless_svc.DeleteJobRequest(
        job_id=of(o.job(r, by))
    ),
    **{
        f"{SERVICES}.{name}": lambda o, r, by, name=name: getattr(stateless_svc, f"{name}Request")(
            job_id=of(o.job(r, by))
        )
        for name in (
            *(
                "ReplaceJob",
                "RestartJob",
                "PauseJobWorkflow",
                "ResumeJobWorkflow",
                "AbortJobWorkflow",
            ),
            "ListJobWorkflows",
            "PatchJob",
            "GetWorkflowEvents",
        )
    },
    **{
        f"{SERVICES}.{name}": lambda o, r, by, name=name: getattr(stateless_svc, f"{name}Request")(
            job_id=of(o.job(r, by))
        )
        for name in ("ListPods", "QueryPods")
    },
    **{
        f"{PODS}.{name}": lambda o, r, by, name=name: getattr(pod_svc, f"{name}Request")(
            pod_name=of(f"{o.job(r, by, fresh=name in FRESH)}-0")
        )
        for name in (
            *("StartPod", "StopPod", "RestartPod", "GetPod", "GetPodCache", "GetPodEvents"),
            *("RefreshPod", "BrowsePodSandbox"),
        )
    },
    f"{PODS}.DeletePodEvents": lambda o, r, by: pod_events_request(o.job(r, by, fresh=True)),
    f"{UPDATES}.CreateUpdate": lambda o, r, by: update_svc.CreateUpdateRequest(
        jobId={"value": o.job(r, by)}
    ),
    f"{UPDATES}.ListUpdates": lambda o, r, by: update_svc.ListUpdatesRequest(
        jobID={"value": o.job(r, by)}
    ),
    # Of an update that is not there: whoever may see the job learns that.
    **{
        f"{UPDATES}.{name}": lambda o, r, by, name=name: getattr(update_svc, f"{name}Request")(
            updateId={"value": f"{o.job(r, by)}-7"}
        )
        for name in (
            "GetUpdate",
            "GetUpdateCache",
            "PauseUpdate",
            "ResumeUpdate",
            "AbortUpdate",
            "RollbackUpdate",
        )
    },
    f"{SERVICES}.RefreshJob": lambda o, r, by: stateless_svc.RefreshJobRequest(
        job_id=of(o.job(r, by))
    ),
    f"{SERVICES}.GetJob": lambda o, r, by: stateless_svc.GetJobRequest(
        job_id=of(o.job(r, by)), summary_only=True
    ),
    f"{SERVICES}.GetJobIDFromJobName": lambda o, r, by: stateless_svc.GetJobIDFromJobNameRequest(
        job_name="test"
    ),
    f"{JOB_CACHE}.GetInstanceAvailabilityInfoForJob": lambda o, r, by: (
        jobmgrsvc.GetInstanceAvailabilityInfoForJobRequest(job_id={"value": o.job(r, by)})
    ),
    f"{JOB_CACHE}.GetJobCache": lambda o, r, by: jobmgrsvc.GetJobCacheRequest(
        job_id={"value": o.job(r, by)}
    ),
    f"{JOB_CACHE}.GetThrottledPods": lambda o, r, by: jobmgrsvc.GetThrottledPodsRequest(),
    f"{JOB_CACHE}.RefreshJob": lambda o, r, by: jobmgrsvc.RefreshJobRequest(
        job_id={"value": o.job(r, by)}
    ),
    f"{WATCHES}.Cancel": lambda o, r, by: watch_svc.CancelRequest(),
    f"{WATCHES}.Watch": lambda o, r, by: watch_svc.WatchRequest(
        start_revision=1, stateless_job_filter={}
    ),
    f"{ADMIN}.Lockdown": lambda o, r, by: admin_svc.LockdownRequest(),
    f"{ADMIN}.RemoveLockdown": lambda o, r, by: admin_svc.RemoveLockdownRequest(),
    f"{ENDPOINTS}.ListEndpoints": lambda o, r, by: endpoints_pb2.ListEndpointsRequest(
        job_id=o.job(r, by)
    ),
    f"{OUTPUTS}.HoldOutputs": lambda o, r, by: outputs_pb2.HoldOutputsRequest(
        job_id=o.job(r, by), for_s=1.0
    ),
    f"{OUTPUTS}.ReadOutputs": lambda o, r, by: outputs_pb2.ReadOutputsRequest(job_id=o.job(r, by)),
    f"{JOB_CACHE}.QueryJobCache": lambda o, r, by: jobmgrsvc.QueryJobCacheRequest(),
    "grpc.health.v1.Health.Check": lambda o, r, by: health_pb2.HealthCheckRequest(),
    "grpc.health.v1.Health.Watch": lambda o, r, by: health_pb2.HealthCheckRequest(),
    "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo": lambda o, r, by: (
        reflection_pb2.ServerReflectionRequest(list_services="")
    ),
}


def recast(name: str, made: Made) -> Made:
    """The request of another call whose fields have the same numbers."""

    def build(objects: Objects, relation: str, by: Principal) -> Any:
        sent = made(objects, relation, by)
        return GetMessageClass(methods()[name].input_type).FromString(sent.SerializeToString())

    return build


JOBS_2, TASKS_2 = "peloton.api.v0.job.svc.JobService", "peloton.api.v0.task.svc.TaskService"
POOLS_2 = "peloton.api.v0.respool.ResourcePoolService"
POOLS_V1 = "peloton.api.v1alpha.respool.ResourcePoolService"
HOST_SERVICES = ("peloton.api.v0.host.svc.HostService", "peloton.api.v1alpha.host.svc.HostService")

BY_NUMBER = {
    f"{POOLS_V1}.{name}": f"{POOLS}.{first}"
    for name, first in (
        ("CreateResourcePool", "CreateResourcePool"),
        ("GetResourcePool", "GetResourcePool"),
        ("UpdateResourcePool", "UpdateResourcePool"),
        ("LookupResourcePoolID", "LookupResourcePoolID"),
        ("QueryResourcePools", "Query"),
    )
} | {f"{POOLS_2}.CreateResourcePool": f"{POOLS}.CreateResourcePool"}
REQUESTS |= {
    name: recast(name, REQUESTS[first])
    for name, first in ({**COUNTERPARTS, **BY_NUMBER}).items()
    if first in REQUESTS
}
REQUESTS |= {
    f"{JOBS_2}.CreateJob": lambda o, r, by: job_svc.CreateJobRequest(
        pool={"value": path_of(r)}, config=create_request("").config
    ),
    # Fresh ones: those of a call that stops jobs would end here, and be missing in later listings.
    f"{JOBS_2}.DeleteJob": lambda o, r, by: job_svc.DeleteJobRequest(
        id=named(o.job(r, by, fresh=True))
    ),
    f"{JOBS_2}.QueryJobs": lambda o, r, by: job_svc.QueryJobsRequest(
        pagination={"limit": 1000, "maxLimit": 1000}
    ),
    f"{TASKS_2}.QueryTasks": lambda o, r, by: task_svc.QueryTasksRequest(jobId=named(o.job(r, by))),
    f"{POOLS_2}.DeleteResourcePool": lambda o, r, by: respool_svc.DeleteResourcePoolRequest(
        id=pool_id(o.pool(r))
    ),
    f"{POOLS_V1}.DeleteResourcePool": lambda o, r, by: respool_svc_v1.DeleteResourcePoolRequest(
        respool_id={"value": o.pool(r)}
    ),
}
REQUESTS |= {
    f"{service}.{name}": lambda o, r, by, name=name: host_request(name)  # type: ignore[misc]
    for service in HOST_SERVICES
    for name in (
        "QueryHosts",
        "ListHostPools",
        "StartMaintenance",
        "CompleteMaintenance",
        "CreateHostPool",
        "DeleteHostPool",
        "ChangeHostPool",
    )  # fmt: skip
}

VOLUME_SERVICES = (VOLUMES, VOLUMES_V1) = (
    "peloton.api.v0.volume.svc.VolumeService",
    "peloton.api.v1alpha.volume.svc.VolumeService",
)
REQUESTS |= {
    f"{VOLUMES}.ListVolumes": lambda o, r, by: volume_svc.ListVolumesRequest(
        jobId=named(o.job(r, by))
    ),
    f"{VOLUMES_V1}.ListVolumes": lambda o, r, by: volume_svc_v1.ListVolumesRequest(
        job_id={"value": o.job(r, by)}
    ),
} | {
    f"{service}.{name}": lambda o, r, by, name=name: volume_request(name, o.job(r, by))  # type: ignore[misc]
    for service in VOLUME_SERVICES
    for name in ("GetVolume", "DeleteVolume")
}


def volume_request(name: str, job: str) -> Any:
    """Of an instance without a volume; both generations have the same messages on the wire."""
    return getattr(volume_svc, f"{name}Request")(id={"value": f"{job}-0"})


REQUESTS[f"{HOST_SERVICES[0]}.MoveHosts"] = lambda o, r, by: host_request("MoveHosts")


def host_request(name: str) -> Any:
    """About no host that there is; the messages of both generations are the same on the wire."""
    request = getattr(host_svc, f"{name}Request")()
    if "Maintenance" in name:
        request.hostname = "nobody"
    return request


WITHOUT_OBJECT = {f"{OPS}.ListQuarantine", f"{OPS}.Redrive", f"{OPS}.ListHosts"} | {
    f"{OPS}.ShowHost",
    f"{OPS}.ForgetHost",
    f"{WATCHES}.Cancel",
    *(
        name
        for name in REQUESTS
        if name.startswith((*HOST_SERVICES, ADMIN, ACTORS, "grpc.", "peloton.private."))
    ),
}


# ---- cells ----


def cells(fleet: Guarded) -> Iterator[tuple[str, str, list[str]]]:
    """Method, role and the outcomes by relation; after each refusal nothing has changed."""
    objects = Objects(fleet)
    for method in methods():
        if method in ACCESS_TABLE:
            for role, principal in ROLES.items():
                yield method, role, [*_outcomes(fleet, objects, method, principal)]


def _outcomes(fleet: Guarded, objects: Objects, method: str, by: Principal) -> Iterator[str]:
    if ACCESS_TABLE[method] is FILTERED:
        yield from _shown(fleet, objects, method, by)
        return
    nothing = _answer(fleet, method, REQUESTS[method](objects, "unknown", by), by)
    for relation in RELATIONS:
        sent = REQUESTS[method](objects, relation, by)
        before = fleet.digest()
        answer = _answer(fleet, method, sent, by)
        if answer[0] == CODE.PERMISSION_DENIED:
            outcome = "denied"
        elif method in WITHOUT_OBJECT or answer != nothing:
            outcome = "allowed"
        else:
            outcome = "no object" if relation == "unknown" else "hidden"
        if outcome in ("denied", "hidden"):
            assert fleet.digest() == before, f"{method} of {by} was {outcome} and changed something"
        yield outcome


def _answer(fleet: Guarded, method: str, sent: Any, by: Principal) -> tuple[Any, ...]:
    """What the client learns, without ids."""
    if methods()[method].server_streaming:
        answer = _first(fleet, method, sent, by)
    else:
        answer = fleet.call(method, sent, by)
    code, text, data = answer
    kind = GetMessageClass(methods()[method].output_type)
    shown = str(kind.FromString(data)).encode() if data else b""
    for path in (*PATHS.values(), "/nowhere"):
        text, shown = text.replace(path, "PATH"), shown.replace(path.encode(), b"PATH")
    return code, UUID.sub(b"ID", text.encode()), UUID.sub(b"ID", shown)


def _first(
    fleet: Guarded, method: str, sent: Any, by: Principal
) -> tuple[grpc.StatusCode, str, bytes]:
    """The first message of a stream, as an answer."""
    service, _, name = method.rpartition(".")
    both = methods()[method].client_streaming
    open_ = fleet.channel.stream_stream if both else fleet.channel.unary_stream
    data = sent.SerializeToString()
    stream = open_(f"/{service}/{name}")(
        iter([data]) if both else data, metadata=said_by(by), timeout=WAIT_S_MAX
    )
    try:
        found = next(stream)
    except grpc.RpcError as error:
        return error.code(), error.details(), b""
    stream.cancel()
    return CODE.OK, "", found


def _streamed(
    fleet: Guarded, method: str, sent: Any, by: Principal
) -> tuple[grpc.StatusCode, str, bytes]:
    """The messages of a stream as one: lists in them are joined."""
    service, _, name = method.rpartition(".")
    stream = fleet.channel.unary_stream(f"/{service}/{name}")(
        sent.SerializeToString(), metadata=said_by(by), timeout=WAIT_S_MAX
    )
    if method.startswith(WATCHES):  # it does not end: up to the end of what there is
        found = [next(stream)]
        while len(found) < 2 or len(found[-1]) > len(found[0]) + 9:
            found.append(next(stream))
        stream.cancel()
        return CODE.OK, "", b"".join(found)
    return CODE.OK, "", b"".join(stream)


def _shown(fleet: Guarded, objects: Objects, method: str, by: Principal) -> Iterator[str]:
    is_pools = method.startswith((POOLS, POOLS_2, POOLS_V1, f"{OPS}.ListPools"))
    made = objects.schedule if method.startswith(SCHEDULES) else objects.job
    made = objects.service if method.startswith(WATCHES) else made
    ids = {
        relation: objects.pool(relation) if is_pools else made(relation, by)
        for relation in RELATIONS
    }
    call = _streamed if methods()[method].server_streaming else type(fleet).call
    code, text, data = call(fleet, method, REQUESTS[method](objects, "own", by), by)
    assert code in (CODE.OK, CODE.NOT_FOUND), text  # where a listing of nothing is refused
    answer = GetMessageClass(methods()[method].output_type).FromString(data or b"")
    for relation, value in ids.items():
        if relation == "unknown":
            yield "no object"
        else:
            yield "shown" if value in str(answer) else "not shown"


def as_text(found: Mapping[tuple[str, str], list[str]]) -> str:
    lines, last = [HEADER], ""
    for (method, role), outcomes in found.items():
        if method != last:
            permission = ACCESS_TABLE[method].permission
            lines.append(f"\n{method} ({permission or 'for all who may call'})")
            lines.append("".join(["  " + " " * 15, *(f"{r:12}" for r in RELATIONS)]).rstrip())
        lines.append("".join([f"  {role:15}", *(f"{one:12}" for one in outcomes)]).rstrip())
        last = method
    return "\n".join(lines) + "\n"


def all_cells(folder: Path) -> str:
    with guarded(folder) as fleet:
        return as_text({(method, role): row for method, role, row in cells(fleet)})


def test_each_cell(tmp_path: Path) -> None:
    assert all_cells(tmp_path) == GOLDEN.read_text()


def test_the_table_has_a_row_for_each_served_method_and_no_other() -> None:
    assert ACCESS_TABLE.keys() == REQUESTS.keys()
    assert ACCESS_TABLE.keys() <= methods().keys()


def test_a_method_without_a_row_is_served_by_no_server() -> None:
    described = ops.DESCRIPTOR.services_by_name["Ops"]
    for method in described.methods:
        table = {name: row for name, row in ACCESS_TABLE.items() if name != method.full_name}
        gates = Gates(_Client(), table)  # type: ignore[arg-type]
        server = Server(
            [],
            Intake(message_bytes_max=1, bytes_max=1),
            gates=gates.of,
            authentication=Authentication.open(),
        )
        with pytest.raises(UnlistedMethod, match=rf"{method.full_name} has no row"):
            server.add(described, Ops.__new__(Ops), names=[described.full_name])
        with pytest.raises(UnlistedMethod):
            server.add_each("/some.Service/Method", lambda data: data)
        assert server.stop(0).wait(WAIT_S_MAX)


class _Client:
    permissions = Permissions()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(all_cells(Path(made)))
    sys.stdout.write(GOLDEN.read_text())
