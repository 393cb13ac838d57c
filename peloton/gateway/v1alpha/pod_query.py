"""JobService.QueryPods and ListPods: which pods of a job, and which page of them.

A QuerySpec becomes the query that v0 makes of its own, and instances become pods. Only what is on
the page is translated.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.messages import JobView
from peloton.api.v0.query import query_pb2 as v0_query
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.query import query_pb2 as query
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.instances import Instances
from peloton.gateway.cluster.named_jobs import existing_job
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.v0.job_query import BadQuery
from peloton.gateway.v0.task_query import TaskListing
from peloton.gateway.v1alpha.pod_status import V0_STATES, pod_info_of, pod_summary_of

STREAM_PAGE = 100
"""Pods that a stream has in memory at a time."""
NO_STATE = 2**31 - 1
"""Of v0, for a state that no instance can be in."""


def query_pods(
    cluster_client: ClusterClient, sent: svc.QueryPodsRequest, *, context: Context
) -> svc.QueryPodsResponse:
    """Return the pods that match, page by page.

    The page is the spec's: the pagination beside it only comes back with the total, as clients of
    the original know it.
    """
    job = existing_job(cluster_client, sent.job_id.value, context=context)
    try:
        page = TaskListing(cluster_client, job, context=context).page(to_query_v0(sent.spec))
    except BadQuery as error:
        end(context, Code.INVALID_ARGUMENT, text=str(error), field="spec")
    infos = Instances(cluster_client).infos(job, page.views, context=context)
    asked = sent.pagination
    return svc.QueryPodsResponse(
        pods=[
            pod_info_of(info, view.outcome, told=view.containers)
            for info, view in zip(infos, page.views, strict=True)
        ],
        pagination=query.Pagination(
            offset=asked.offset, limit=asked.limit, total=page.pagination.total
        ),
    )


def to_query_v0(sent: pod.QuerySpec) -> task.QuerySpec:
    """Return the same query in v0, where some states have other numbers."""
    pages = sent.pagination
    states: list[Any] = [V0_STATES.get(state, NO_STATE) for state in sent.pod_states]
    found = task.QuerySpec(
        pagination=v0_query.PaginationSpec(
            offset=pages.offset, limit=pages.limit, maxLimit=pages.max_limit
        ),
        taskStates=states,
        names=[name.value for name in sent.names],
        hosts=sent.hosts,
    )
    for by in pages.order_by:
        found.pagination.orderBy.add(order=int(by.order), property={"value": by.property.value})
    return found


async def stream_pods(
    cluster_client: ClusterClient, sent: svc.ListPodsRequest, *, call: LongCall
) -> None:
    """Write the pods of a job in a range, all by default, each in a message."""
    stream = _PodStream(cluster_client)
    job = await call.run(stream.job, sent.job_id.value)
    start, stop = 0, job.reach
    if sent.HasField("range"):
        start, stop = getattr(sent.range, "from"), min(sent.range.to, stop)
    for first in range(start, stop, STREAM_PAGE):
        part = first, min(first + STREAM_PAGE, stop)
        for found in await call.run(stream.summaries, (job, part)):
            await call.write(svc.ListPodsResponse(pods=[found]))


class _PodStream:
    """The parts of a stream of pods that run on a thread."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client
        self._instances = Instances(cluster_client)

    def job(self, job_id: str, context: Context) -> JobView:
        """Return the job; end the call if there is none."""
        return existing_job(self._cluster_client, job_id, context=context)

    def summaries(
        self, asked: tuple[JobView, tuple[int, int]], context: Context
    ) -> list[pod.PodSummary]:
        """Return summaries of the instances in a part of the range."""
        job, (start, stop) = asked
        views = [*self._cluster_client.instances(job, start, context=context, stop=stop)]
        infos = self._instances.infos(job, views, context=context)
        return [
            pod_summary_of(info, view.outcome, told=view.containers)
            for info, view in zip(infos, views, strict=True)
        ]
