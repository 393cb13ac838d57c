"""JobService.CreateJob: a service from a spec of v1alpha.

The spec becomes the config that v0 creates, and the answer of v0 a status that names the fields as
the client wrote them. What only a workflow could do is refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from peloton.actors.job.stages import EntityVersion
from peloton.actors.job.workflow.messages import WorkflowOptions
from peloton.api.v0 import peloton_pb2 as v0
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.rollouts import healthy_s
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.pod_specs import NotBuilt
from peloton.gateway.translate.stateless_specs import spec_path, spec_text, to_config_v0
from peloton.gateway.translate.translate_task import SecretVolume
from peloton.gateway.v0.job_create import (
    NO_POOL_NAMED,
    POOL_OF_POOLS,
    ROOT_NAMED,
    UNKNOWN_POOL,
    Creation,
    CreationWorkflow,
)
from peloton.gateway.v0.opaque_data import opaque_of

NO_SECRETS = "secrets not enabled in cluster"
POOL_CODES = {
    NO_POOL_NAMED: Code.INVALID_ARGUMENT,
    ROOT_NAMED: Code.INVALID_ARGUMENT,
    POOL_OF_POOLS: Code.INVALID_ARGUMENT,
    UNKNOWN_POOL: Code.NOT_FOUND,
}
FIRST_VERSION = str(EntityVersion(1, 1, 1))


class ServiceCreation:
    """One CreateJob call."""

    def __init__(
        self, cluster_client: ClusterClient, sent: svc.CreateJobRequest, *, context: Context
    ) -> None:
        self._cluster_client = cluster_client
        self._sent = sent
        self._context = context

    def answer(self) -> svc.CreateJobResponse:
        """Create the job; return the answer to the client."""
        sent = self._sent
        try:
            config = to_config_v0(
                sent.spec,
                images_run=self._cluster_client.images_run,
                on_mesos=self._cluster_client.on_mesos,
            )
        except BadField as error:
            self._end_misplaced()
            self._end_unfit(error)
        self._refuse_secrets()
        found = self._creation(config).answer()
        self._end_refused(found)
        return svc.CreateJobResponse(
            job_id={"value": found.jobId.value}, version={"value": FIRST_VERSION}
        )

    def _end_misplaced(self) -> None:
        """End the call if its id or its pool is wrong, which is said before anything else is."""
        pool = v0.ResourcePoolID(value=self._sent.spec.respool_id.value)
        self._end_refused(self._creation(job.JobConfig(respoolID=pool), bare=True).misplaced())

    def _creation(self, config: job.JobConfig, *, bare: bool = False) -> Creation:
        """Return the creation by v0. `bare`: without its secrets."""
        request = job.CreateRequest(id={"value": self._sent.job_id.value}, config=config)
        for one in () if bare else self._sent.secrets:
            value = {"data": one.value.data}
            request.secrets.add(id={"value": one.secret_id.value}, path=one.path, value=value)
        return Creation(
            self._cluster_client,
            request,
            context=self._context,
            path_of=lambda path: spec_path(path, self._sent.spec),
            by=CreationWorkflow(
                _options(self._sent.create_spec), opaque_of(self._sent, self._context)
            ),
        )

    def _refuse_secrets(self) -> None:
        """End the call if it has secrets and the cluster no key for them."""
        if self._sent.secrets and self._cluster_client.secrets is None:
            self._end_misplaced()
            end(self._context, Code.INVALID_ARGUMENT, text=NO_SECRETS)

    def _end_unfit(self, error: BadField) -> NoReturn:
        """End the call for a spec that no config of a service can say."""
        if isinstance(error, NotBuilt):
            end(self._context, Code.UNIMPLEMENTED, text=str(error))
        if isinstance(error, SecretVolume):
            text = f"input cannot contain secret volume: {error}"
            end(self._context, Code.INVALID_ARGUMENT, text=text)
        self._end_invalid(str(error))

    def _end_invalid(self, text: str) -> NoReturn:
        end(self._context, Code.INVALID_ARGUMENT, text=f"invalid job spec: {text}")

    def _end_refused(self, found: job.CreateResponse | None) -> None:
        if found is None or not found.HasField("error"):
            return
        error: Any = found.error
        if error.HasField("invalidJobId"):
            end(self._context, Code.INVALID_ARGUMENT, text="jobID is not valid UUID")
        if error.HasField("alreadyExists"):
            end(self._context, Code.ALREADY_EXISTS, text=error.alreadyExists.message)
        text = error.invalidConfig.message
        if text in POOL_CODES:
            text, code = f"failed to validate resource pool: {text}", POOL_CODES[text]
            end(self._context, code, text=text)
        self._end_invalid(spec_text(text, self._sent.spec))


def _options(wanted: stateless.CreateSpec) -> WorkflowOptions:
    return WorkflowOptions(
        batch=wanted.batch_size,
        max_attempts=wanted.max_instance_retries,
        tolerated=wanted.max_tolerable_instance_failures,
        paused=wanted.start_paused,
        healthy_s=healthy_s(wanted),
    )
