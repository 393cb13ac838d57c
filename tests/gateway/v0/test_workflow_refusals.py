"""What a job refuses of workflows, as the statuses that clients know."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec
import pytest

from peloton.actors.job.messages import GetJob, job_key
from peloton.actors.job.stages import JobStates
from peloton.actors.job.workflow.decide import CONFLICT, DELETING, NO_WORKFLOW, TERMINATING
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.named_jobs import refuse
from peloton.gateway.server.calls import CallContext
from peloton.gateway.v0.update_service import UpdateService
from peloton.runtime.vocabulary import Refused
from tests.gateway.fleet_fixture import Deployment
from tests.gateway.v0.test_updates import running, update

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (Refused(DELETING, "job is going to be deleted", "id"), CODE.INVALID_ARGUMENT),
        (Refused(TERMINATING, "job is being terminated, cannot start it now"), CODE.ABORTED),
        (Refused(CONFLICT, "workflow RESTART cannot overwrite workflow UPDATE"),
         CODE.INVALID_ARGUMENT),
        (Refused(NO_WORKFLOW, "no workflow found"), CODE.NOT_FOUND),
        (Refused("NOT_FOUND", "job not found"), CODE.NOT_FOUND),
    ],
)  # fmt: skip
def test_each_refusal_has_the_status_of_the_original(refused: Refused, code: Any) -> None:
    context: Any = CallContext()
    with pytest.raises(CallEnded) as ended:
        refuse(context, refused)
    assert (ended.value.code, ended.value.details) == (code, refused.text)


class PartlyMade(ClusterClient):
    """Shows jobs as they are before all of their slices are open."""

    def job(self, *args: Any, **more: Any) -> Any:
        view = super().job(*args, **more)
        assert view is not None
        summary = msgspec.structs.replace(view.summary, state=JobStates.INITIALIZED)
        return msgspec.structs.replace(view, summary=summary)


def test_a_job_that_is_partly_made_is_not_updated(deployment: Deployment) -> None:
    job = running(deployment)
    context: Any = CallContext()
    sent: svc.CreateUpdateRequest = update(deployment, job)
    with pytest.raises(CallEnded) as ended:
        UpdateService(PartlyMade(deployment.region)).CreateUpdate(sent, context)
    text = "cannot update partially created job"
    assert (ended.value.code, ended.value.details) == (CODE.UNAVAILABLE, text)
    found = deployment.region.ask(job_key(job), GetJob()).result()
    assert found.spec.config_version == 1
