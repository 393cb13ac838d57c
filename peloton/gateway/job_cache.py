"""peloton.private.jobmgr.JobManagerService: jobs by name and labels, for tools.

Turns listings into its messages. What shows a service's spec or the availability of its instances
is not here: `unimplemented.py` answers it.
"""

from __future__ import annotations

from typing import Any

from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.job_query import BY_ID
from peloton.gateway.texts import client_name
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.runtime.core.listing import AMONG, PAIR, ListViews, Where


class JobManagerService:
    """The calls; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client

    def QueryJobCache(self, sent: jobmgrsvc.QueryJobCacheRequest, context: Context) -> Any:
        """The listed jobs of exactly that name, if one is given, that have all of the labels."""
        rights = self._cluster_client.rights(context)
        tests = [Where("labels", PAIR, words=(one.key, one.value)) for one in sent.spec.labels]
        if sent.spec.name:
            tests.append(Where("name", AMONG, words=(sent.spec.name,)))
        tests += rights.listing if rights is not None else ()
        query = ListViews("job", tuple(tests), (BY_ID,))
        found = jobmgrsvc.QueryJobCacheResponse()
        for line in self._cluster_client.listing(query, context).items:
            found.result.add(job_id={"value": client_name(line.job)}, name=line.name)
        return found
