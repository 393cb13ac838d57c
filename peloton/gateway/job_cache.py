"""peloton.private.jobmgr.JobManagerService: jobs by name and labels, for tools.

Turns listings into its messages. What shows a service's spec or the availability of its instances
is not here: `unimplemented.py` answers it.
"""

from __future__ import annotations

from typing import Any

from peloton.gateway.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.job_query import BY_ID
from peloton.gateway.texts import client_name
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.runtime.core.listing import AMONG, PAIR, ListViews, Where

CACHED_JOBS_MAX = 100_000
"""Jobs in one answer; a query that finds more has to be narrower."""


class JobManagerService:
    """The calls; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, *, jobs_max: int = CACHED_JOBS_MAX) -> None:
        self._cluster_client = cluster_client
        self._jobs_max = jobs_max

    def QueryJobCache(self, sent: jobmgrsvc.QueryJobCacheRequest, context: Context) -> Any:
        """The listed jobs of exactly that name, if one is given, that have all of the labels."""
        rights = self._cluster_client.rights(context)
        tests = [Where("labels", PAIR, words=(one.key, one.value)) for one in sent.spec.labels]
        if sent.spec.name:
            tests.append(Where("name", AMONG, words=(sent.spec.name,)))
        tests += rights.listing if rights is not None else ()
        query = ListViews("job", tuple(tests), (BY_ID,), limit=self._jobs_max)
        listed = self._cluster_client.listing(query, context)
        if listed.matched > self._jobs_max:
            text = f"more than {self._jobs_max} jobs: name a job or labels"
            end(context, Code.RESOURCE_EXHAUSTED, text=text)
        found = jobmgrsvc.QueryJobCacheResponse()
        for line in listed.items:
            found.result.add(job_id={"value": client_name(line.job)}, name=line.name)
        return found
