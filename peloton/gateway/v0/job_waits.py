"""Checks of a creation that need other actors: the jobs it waits for, and the owner of its name.

A repeat of a creation that succeeded has to pass, whatever has become of the others meanwhile.
"""

from __future__ import annotations

from peloton.actors.job.name.messages import CancelReservation, ReserveName, name_key
from peloton.actors.job.spec import JobSpec
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.translate.job_labels import AFTER, UNIQUE
from peloton.gateway.translate.texts import client_name
from peloton.runtime.vocabulary import Key, Refused
from peloton.settings.permissions_file import Permission


class OthersFirst:
    """The other jobs and the name of one creation."""

    def __init__(
        self, cluster_client: ClusterClient, spec: JobSpec, *, context: Context, job: Key
    ) -> None:
        self._cluster_client = cluster_client
        self._spec = spec
        self._context = context
        self._job = job
        self._reserved = False

    def problem(self) -> str:
        """Return why the job cannot be created; empty if it can, and its name is reserved then."""
        if self._cluster_client.job(self._job, self._context) is not None:
            return ""  # it exists: the job itself answers, as it did at first
        for after in self._spec.after:
            if not sees_job(self._cluster_client, after.job, context=self._context):
                return f"config.labels: {AFTER}: there is no job {client_name(after.job)}"
        return self._reserve() if self._spec.unique else ""

    def give_up(self) -> None:
        """Cancel the reservation of the name, because the job was not created."""
        if self._reserved:
            message = CancelReservation(self._job)
            self._cluster_client.ask(self._name(), message, context=self._context)

    def _reserve(self) -> str:
        message = ReserveName(self._job)
        answer = self._cluster_client.ask(self._name(), message, context=self._context)
        self._reserved = not isinstance(answer, Refused)
        return f"config.labels: {UNIQUE}: {answer.text}" if isinstance(answer, Refused) else ""

    def _name(self) -> Key:
        return name_key(self._spec.pool, self._spec.name)


def sees_job(cluster_client: ClusterClient, job: Key, *, context: Context) -> bool:
    """Return whether there is this job, and the caller may see it."""
    found = cluster_client.job(job, context)
    rights = cluster_client.rights(context)
    if found is None or rights is None:
        return found is not None
    path, by = found.summary.pool_path, found.created_by
    return rights.may_with_job(Permission.SEE, path, created_by=by)
