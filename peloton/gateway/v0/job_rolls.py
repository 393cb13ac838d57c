"""JobManager.Restart, Start and Stop: instances of a service by ranges, a batch at a time.

Turns a call into the workflow of a job. It must not choose instances; batch jobs have no workflows.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.messages import RestartJob
from peloton.actors.job.workflow.decide import OTHER_CONFIG
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowOrdered, WorkflowTypes
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.named_jobs import existing_job, refuse
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.texts import client_name
from peloton.runtime.vocabulary import Refused


def roll(
    cluster_client: ClusterClient,
    sent: Any,
    *,
    context: Context,
    kind: WorkflowTypes,
    options: WorkflowOptions,
) -> dict[str, Any]:
    """Begin the workflow; the fields of the answer."""
    view = existing_job(cluster_client, sent.id.value, context=context)
    if not view.spec.is_service:
        text = f"{kind.name} supported only for service jobs"
        end(context, Code.INVALID_ARGUMENT, text=text)
    if not sent.resourceVersion:
        end(context, Code.INVALID_ARGUMENT, text=OTHER_CONFIG)
    ranges = tuple((getattr(one, "from"), one.to) for one in sent.ranges)
    command = RestartJob(ranges, options, kind=kind, config=sent.resourceVersion)
    key, request = view.summary.job, request_of(sent, context)
    answer = cluster_client.ask(key, command, context=context, request=request)
    if not isinstance(answer, WorkflowOrdered):
        assert isinstance(answer, Refused), answer
        refuse(context, answer)
    update_id = f"{client_name(key)}-{answer.number}"
    return {"resourceVersion": answer.version.config, "updateID": {"value": update_id}}
