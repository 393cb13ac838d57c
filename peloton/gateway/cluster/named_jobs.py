"""Jobs that calls of several services name by their ids: found, or refused.

A call that names no job ends here, as it does in every service.
"""

from __future__ import annotations

from typing import NoReturn

from peloton.actors.job.messages import JobView
from peloton.actors.job.spec import INVALID
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.translate.texts import known_job
from peloton.runtime.vocabulary import Key, Refused

NOT_FOUND = "job not found"
CODES = {
    "NOT_FOUND": Code.NOT_FOUND,
    "INCOMPLETE": Code.UNAVAILABLE,
    "BUSY": Code.UNAVAILABLE,
    "NO_WORKFLOW": Code.NOT_FOUND,
    "NOT_BUILT": Code.UNIMPLEMENTED,
    "TERMINATING": Code.ABORTED,
}
"""Of refusals; all others say that the request is wrong."""


def named_job(job_id: str, context: Context) -> Key:
    """Return the key of a job; end the call if no job can have that id."""
    key = known_job(job_id)
    if key is None:
        end(context, Code.NOT_FOUND, text=NOT_FOUND)
    return key


def existing_job(cluster_client: ClusterClient, job_id: str, *, context: Context) -> JobView:
    """Return the job; end the call if there is none."""
    view = cluster_client.job(known_job(job_id), context)
    if view is None:
        end(context, Code.NOT_FOUND, text=NOT_FOUND)
    return view


def refuse(context: Context, refused: Refused) -> NoReturn:
    """End the call with the refusal of a job."""
    code = CODES.get(refused.code, Code.INVALID_ARGUMENT)
    # Of the job as a whole the texts are those that clients know, without a field before them.
    field = refused.field if refused.code == INVALID else ""
    end(context, code, text=refused, field=field)
