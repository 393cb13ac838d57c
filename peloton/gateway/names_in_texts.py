"""Names of jobs in texts that actors made, which know only ids.

Turns the ids in a text into names with the beginnings of the ids, by which commands find the jobs,
too. An id whose job is gone, or is not for the caller to see, stays; nothing else is changed.
"""

from __future__ import annotations

import re

from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.texts import known_job
from peloton.runtime.vocabulary import Key
from peloton.settings.permissions_file import Permission

ID_CHARS = 8
NAMED_MAX = 200
"""Jobs that are looked up for one call; further ids stay."""
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class JobNames:
    """The names of jobs, for one call."""

    def __init__(self, cluster_client: ClusterClient, context: Context) -> None:
        self._cluster_client, self._context = cluster_client, context
        self._known: dict[str, str] = {}

    def in_text(self, text: str) -> str:
        """The text with names where ids were."""
        return _ID.sub(lambda found: self._shown(found[0]), text)

    def _shown(self, job_id: str) -> str:
        if job_id not in self._known:
            if len(self._known) >= NAMED_MAX:
                return job_id
            self._known[job_id] = self._name(job_id, known_job(job_id)) or job_id
        return self._known[job_id]

    def _name(self, job_id: str, key: Key | None) -> str:
        view = self._cluster_client.job(key, self._context)
        if view is None or not view.spec.name:
            return ""
        rights = self._cluster_client.rights(self._context)
        line = view.summary
        if rights is not None and not rights.may_with_job(
            Permission.SEE, line.pool_path, created_by=line.created_by
        ):
            return ""
        return f"{view.spec.name} ({job_id[:ID_CHARS]})"
