"""JobService.QueryJobs and ListJobs: which jobs, as summaries of v1alpha.

A QuerySpec becomes the query that v0 makes of its own, and lines of listings become summaries. Jobs
that the caller may not see are left out; a result that is incomplete is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peloton.actors.job.messages import GetJob, JobSummary, JobView
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as v0_query
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.query import query_pb2 as query
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.v0.archived_jobs import includes_archived, with_archived
from peloton.gateway.v0.job_query import BadQuery, list_query, page_of_jobs
from peloton.gateway.v1alpha.stateless_status import stateless_summary
from peloton.runtime.core.reading.listing import Listed, ListViews, onwards
from peloton.runtime.vocabulary import Key

STREAM_PAGE = 100
"""Summaries that a stream has in memory at a time."""
RANGES = (
    ("creation_time_range", "creationTimeRange"),
    ("completion_time_range", "completionTimeRange"),
)
"""What v1alpha and v0 call the same field."""


def query_jobs(
    cluster_client: ClusterClient, sent: svc.QueryJobsRequest, *, context: Context
) -> svc.QueryJobsResponse:
    """Return the jobs that match, page by page."""
    if not sent.HasField("spec"):
        return svc.QueryJobsResponse()
    request = job.QueryRequest(spec=to_query_v0(sent.spec))
    try:
        rights = cluster_client.rights(context)
        asked = list_query(request, now_s=cluster_client.execution.now(), rights=rights)
        found = cluster_client.listing(asked, context)
        if includes_archived(asked):
            found = with_archived(cluster_client, asked, found=found, context=context)
    except BadQuery as error:
        text = str(error)
        for given, copy in RANGES:
            text = text.replace(copy, given)
        end(context, Code.INVALID_ARGUMENT, text=text, field="spec")
    pages = request.spec.pagination
    lines, page = page_of_jobs(found.items, pages, matched=found.matched)
    return svc.QueryJobsResponse(
        records=_summaries(cluster_client, lines, context=context),
        pagination=query.Pagination(offset=page.offset, limit=page.limit, total=page.total),
        spec=sent.spec,
    )


def to_query_v0(sent: stateless.QuerySpec) -> job.QuerySpec:
    """Return the same query in v0: states and ways to order have the same numbers."""
    pages = sent.pagination
    found = job.QuerySpec(
        pagination=v0_query.PaginationSpec(
            offset=pages.offset, limit=pages.limit, maxLimit=pages.max_limit
        ),
        keywords=sent.keywords,
        jobStates=[int(state) for state in sent.job_states],
        respool={"value": sent.respool.value},
        owner=sent.owner,
        name=sent.name,
    )
    for by in pages.order_by:
        found.pagination.orderBy.add(order=int(by.order), property={"value": by.property.value})
    for label in sent.labels:
        found.labels.add(key=label.key, value=label.value)
    for given, copy in RANGES:
        if sent.HasField(given):
            times, to = getattr(sent, given), getattr(found, copy)
            to.SetInParent()
            for bound in ("min", "max"):
                if times.HasField(bound):
                    getattr(to, bound).CopyFrom(getattr(times, bound))
    return found


async def stream_jobs(cluster_client: ClusterClient, call: LongCall) -> None:
    """Write every job in memory that the caller may see, each in a message, in no order."""
    stream = _JobStream(cluster_client)
    rights = cluster_client.rights(call)
    tests = rights.listing if rights is not None else ()
    for shard in cluster_client.cluster.shards_of("job"):
        rest: ListViews | None = ListViews("job", tests)
        while rest is not None:
            page = await call.run(stream.page, (shard, rest))
            for at in range(0, len(page.items), STREAM_PAGE):
                for found in await call.run(stream.summaries, page.items[at : at + STREAM_PAGE]):
                    await call.write(svc.ListJobsResponse(jobs=[found]))
            rest = onwards(rest, page) if page.after else None


class _JobStream:
    """The parts of a stream of jobs that run on a thread."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def page(self, asked: tuple[Key, ListViews], context: Context) -> Listed:
        """Return what a shard lists next; end the call if it does not answer."""
        cluster = self._cluster_client.cluster
        found = self._cluster_client.wait(cluster.ask(*asked), context)
        if not isinstance(found, Listed):
            end(context, Code.INTERNAL, text="a shard answered a listing with something else")
        return found

    def summaries(
        self, lines: Iterable[JobSummary], context: Context
    ) -> list[stateless.JobSummary]:
        return list(_summaries(self._cluster_client, lines, context=context))


def _summaries(
    cluster_client: ClusterClient, lines: Iterable[JobSummary], *, context: Context
) -> Iterator[stateless.JobSummary]:
    """Yield a summary of each job of these lines; one that was deleted meanwhile is no match any
    more."""
    for view in cluster_client.each(((line.job, GetJob()) for line in lines), context):
        if isinstance(view, JobView):
            yield stateless_summary(view)
