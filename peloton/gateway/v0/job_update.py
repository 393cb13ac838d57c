"""JobManager.Update: more instances of a batch job, and what its spec says of the job as a whole.

An UpdateRequest becomes one command, or pieces and a last command as for a create. What cannot
change during the call is checked here, all else by the job: so a repeat of a request that was
carried out gets its first answer. The configs of existing instances stay.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.messages import AddChange, JobUpdated, JobView, UpdateJob
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.actors.resources import BadAmount
from peloton.actors.respool.messages import GetPool, pool_key
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import existing_job, refuse
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.host_abilities import refuse_uris
from peloton.gateway.translate.run_as import NotPermitted, run_as
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_job import ParsedJob, job_config_of, to_spec
from peloton.gateway.translate.translate_task import SecretVolume
from peloton.gateway.v0.job_create import WHOLE_BYTES_MAX
from peloton.gateway.v0.job_secrets import NO_VOLUMES, SecretsOfCall, masked
from peloton.gateway.v0.pool_limits import warn_of_limits
from peloton.runtime.vocabulary import Key, Refused

FIXED = {
    "name": "Name",
    "labels": "Labels",
    "owningTeam": "OwningTeam",
    "respoolID": "RespoolID",
    "type": "Type",
    "ldapGroups": "LdapGroups",
    "defaultConfig": "DefaultConfig",
}
"""Fields of a config that an update may not change, by the names in refusals."""


class JobUpdate:
    """One Update call."""

    def __init__(
        self, cluster_client: ClusterClient, sent: job.UpdateRequest, *, context: Context
    ) -> None:
        self._cluster_client = cluster_client
        self._sent = sent
        self._context = context
        self._secrets = SecretsOfCall(cluster_client, context)

    def answer(self) -> Any:
        """Update the job; return the answer to the client."""
        view = existing_job(self._cluster_client, self._sent.id.value, context=self._context)
        if view.spec.job_type != "BATCH":
            return self._wrong("job update is only supported for batch jobs")
        self._secrets.end_unless_enabled(self._sent.secrets)
        config = job.JobConfig()
        config.CopyFrom(self._sent.config)
        violations = _violations(config, view)
        if violations:
            return self._wrong("; ".join(violations))
        version = config.changeLog.version
        config.ClearField("changeLog")
        try:
            by, on_mesos = run_as(self._context.principal), self._cluster_client.on_mesos
            wanted = to_spec(config, by, on_mesos=on_mesos)
            if not on_mesos:
                refuse_uris(wanted)
            wanted = self._of_new_instances(wanted, view)
            pool = GetPool(pool_key(config.respoolID.value), config_only=True)
            pools = self._cluster_client.pool(pool, self._context)
        except SecretVolume as error:
            return self._wrong(f"{NO_VOLUMES}: {error}")
        except (BadField, BadAmount) as error:
            return self._wrong(str(error))
        except NotPermitted as error:
            code = Code.PERMISSION_DENIED
            return end(self._context, code, text=str(error), field=error.field)
        warn_of_limits(wanted, pools, context=self._context)
        self._secrets.for_updated(self._sent.secrets, view=view)
        self._store_secrets(view, version=version)
        return self._update(view.summary.job, wanted, version=version)

    def _store_secrets(self, view: JobView, *, version: int) -> None:
        """Store secrets before the command, so that instances which it adds have them.

        Not for an update that the job is going to refuse, for all that is known.
        """
        state, known = view.summary.state, view.spec.config_version
        if state not in TERMINAL_JOB_STATES and version in (0, known):
            self._secrets.store()

    def _update(self, key: Key, wanted: ParsedJob, *, version: int) -> Any:
        pieces = 0
        if wanted.size_bytes() > WHOLE_BYTES_MAX:
            pieces = len(wanted.pieces)
            for number, overrides in wanted.pieces.items():
                piece = AddChange(number, overrides)
                added = self._cluster_client.ask(key, piece, context=self._context)
                if isinstance(added, Refused):
                    return refuse(self._context, added)
        whole = () if pieces else tuple(wanted.pieces.items())
        command = UpdateJob(wanted.spec, whole, pieces, version)
        sent = masked(self._sent, self._cluster_client.secrets)
        request = request_of(sent, self._context)
        answer = self._cluster_client.ask(key, command, context=self._context, request=request)
        if not isinstance(answer, JobUpdated):
            assert isinstance(answer, Refused), answer
            return refuse(self._context, answer)
        if not answer.added and not self._sent.secrets:
            return job.UpdateResponse()
        job_id = peloton_pb2.JobID(value=client_name(key))
        return job.UpdateResponse(id=job_id, message=f"added {answer.added} instances")

    def _of_new_instances(self, wanted: ParsedJob, view: JobView) -> ParsedJob:
        """Return the request without the configs of existing instances, which must not change."""
        known: dict[int, bytes] = {}
        count = view.spec.instances
        if any(o.instance < count for piece in wanted.pieces.values() for o in piece):
            instances = self._cluster_client.instances(view, context=self._context)
            known = {each.instance: each.config.raw for each in instances}
        pieces: dict[int, tuple[Override, ...]] = {}
        for number, piece in wanted.pieces.items():
            new = tuple(o for o in piece if o.instance >= count)
            for override in piece:
                if override.instance < count and override.config.raw != known[override.instance]:
                    field = f"config.instanceConfig[{override.instance}]"
                    raise BadField(field, "the config of an existing instance cannot be changed")
            if new:
                pieces[number] = new
        return ParsedJob(wanted.spec, pieces)

    def _wrong(self, text: str) -> Any:
        return end(self._context, Code.INVALID_ARGUMENT, text=text)


def _violations(config: job.JobConfig, view: JobView) -> list[str]:
    """Return what the update would change and may not; a pool or a type that is not named is
    kept."""
    known = job_config_of(view)
    if not config.respoolID.value:
        config.respoolID.CopyFrom(known.respoolID)
    found = [
        f"updating {name} not supported"
        for field, name in FIXED.items()
        if _value(config, field) != _value(known, field)
    ]
    if found and config.instanceCount < known.instanceCount:
        found.append("new instance count can't be less")  # alone, the job says so
    return found


def _value(config: job.JobConfig, field: str) -> Any:
    value = getattr(config, field)
    if field == "labels":
        return sorted((label.key, label.value) for label in value)
    if field == "ldapGroups":
        return [*value]
    return (config.HasField(field), value) if field == "defaultConfig" else value
