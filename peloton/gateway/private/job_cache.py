"""peloton.private.jobmgr.JobManagerService: jobs by name and labels, and how instances are.

Answers are made from listings and views at the moment of the call: nothing is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peloton.actors.job.messages import JobSummary
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.spec import DAEMON, SERVICE
from peloton.actors.task.messages import TaskGoals
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import existing_job
from peloton.gateway.translate.health_checks import does_its_work
from peloton.gateway.translate.reasons import waits_for_retry
from peloton.gateway.translate.stateless_specs import partial_spec_of
from peloton.gateway.translate.texts import client_name, known_job, pod_name
from peloton.gateway.translate.translate_job import job_config_of
from peloton.gateway.v0.job_query import BY_ID
from peloton.gateway.v1alpha.stateless_status import job_status_of
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.runtime.core.reading.filters import AMONG, PAIR, Where
from peloton.runtime.core.reading.listing import ListViews

AVAILABILITY = "InstanceAvailability_"
ASKED_MAX = 100_000
NOT_CACHED = "job not found in cache"

PAUSED = "FAILED"
"""The state of an instance that waits for its next attempt."""
SERVICES = Where("job_type", AMONG, words=(SERVICE, DAEMON))
CACHED_JOBS_MAX = 100_000
"""Jobs in one answer; a query that finds more has to be narrower."""


class JobManagerService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, *, jobs_max: int = CACHED_JOBS_MAX) -> None:
        self._cluster_client = cluster_client
        self._jobs_max = jobs_max

    def RefreshJob(self, sent: jobmgrsvc.RefreshJobRequest, context: Context) -> Any:
        """Only whether it exists: nothing is cached that could be stale, and goals are resent."""
        existing_job(self._cluster_client, sent.job_id.value, context=context)
        return jobmgrsvc.RefreshJobResponse()

    def GetJobCache(self, sent: jobmgrsvc.GetJobCacheRequest, context: Context) -> Any:
        """Return the status of a job, and the parts of its spec that the original keeps in
        memory."""
        view = self._cluster_client.job(known_job(sent.job_id.value), context)
        if view is None:
            end(context, Code.NOT_FOUND, text=NOT_CACHED)
        spec = partial_spec_of(job_config_of(view))
        return jobmgrsvc.GetJobCacheResponse(spec=spec, status=job_status_of(view))

    def GetThrottledPods(self, sent: jobmgrsvc.GetThrottledPodsRequest, context: Context) -> Any:
        """Return the pods of services that wait out a pause after a failure."""
        found = jobmgrsvc.GetThrottledPodsResponse()
        for line in self._listed([SERVICES], context, too_many="services"):
            if not dict(line.counts).get(PAUSED):
                continue
            job = self._cluster_client.job(line.job, context)
            views = () if job is None else self._cluster_client.instances(job, context=context)
            for view in views:
                if waits_for_retry(view):
                    name = pod_name(client_name(line.job), view.instance)
                    found.throttled_pods.add(value=name)
        return found

    def GetInstanceAvailabilityInfoForJob(
        self, sent: jobmgrsvc.GetInstanceAvailabilityInfoForJobRequest, context: Context
    ) -> Any:
        """Return whether each of these instances runs as it should; by default all of the job's."""
        job = existing_job(self._cluster_client, sent.job_id.value, context=context)
        if len(sent.instances) > ASKED_MAX:
            text = f"more than {ASKED_MAX} instances"
            end(context, Code.INVALID_ARGUMENT, text=text, field="instances")
        wanted = frozenset(sent.instances)
        found = jobmgrsvc.GetInstanceAvailabilityInfoForJobResponse()
        of_instance = found.instance_availability_map
        for instance in sent.instances:
            of_instance[instance] = f"{AVAILABILITY}INVALID"  # unless it is found below
        first, stop = (min(wanted), max(wanted) + 1) if wanted else (0, None)
        views = self._cluster_client.instances(job, first, context=context, stop=stop)
        for view in views:
            if not wanted or view.instance in wanted:
                of_instance[view.instance] = AVAILABILITY + availability(view)
        return found

    def QueryJobCache(self, sent: jobmgrsvc.QueryJobCacheRequest, context: Context) -> Any:
        """Return the listed jobs of exactly that name, if one is given, that have all of the
        labels."""
        tests = [Where("labels", PAIR, words=(one.key, one.value)) for one in sent.spec.labels]
        if sent.spec.name:
            tests.append(Where("name", AMONG, words=(sent.spec.name,)))
        found = jobmgrsvc.QueryJobCacheResponse()
        for line in self._listed(tests, context, too_many="jobs: name a job or labels"):
            found.result.add(job_id={"value": client_name(line.job)}, name=line.name)
        return found

    def _listed(
        self, tests: Sequence[Where], context: Context, *, too_many: str
    ) -> Sequence[JobSummary]:
        """Return all jobs that meet the tests and that the caller may see, or refuse."""
        rights = self._cluster_client.rights(context)
        seen = rights.listing if rights is not None else ()
        query = ListViews("job", (*tests, *seen), (BY_ID,), limit=self._jobs_max)
        listed = self._cluster_client.listing(query, context)
        if listed.matched > self._jobs_max:
            text = f"more than {self._jobs_max} {too_many}"
            end(context, Code.RESOURCE_EXHAUSTED, text=text)
        return listed.items


def availability(view: InstanceView) -> str:
    """Return the availability in the words of the original.

    Without a health check an instance is available while it runs.
    """
    if view.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return view.goal.name
    running = view.state == "RUNNING"
    return "AVAILABLE" if running and does_its_work(view) else "UNAVAILABLE"
