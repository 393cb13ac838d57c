"""A new run of one instance of a service, unless the service would have too few left.

Turns such a wish of a client into a request to the slice that has the instance, and its refusal
into the original's answer. Where several slices share what may be down, the slice first asks its
job: then the request is sent again, for a moment. Must not count who is down.
"""

from __future__ import annotations

import time

from peloton.actors.job.messages import StartInstances
from peloton.actors.job.slice.budget_messages import (
    ASKED_JOB,
    VIOLATES_TEXT,
    MemberRestarted,
    RestartIfSpared,
)
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.task.messages import SLICE_SIZE
from peloton.gateway.cluster_client import ClusterClient, Code, Context, end
from peloton.runtime.vocabulary import Key, Refused

TRIES_MAX, TRY_EVERY_S = 40, 0.05
"""The job answers its slice within a few milliseconds, if it can spare an instance."""


def restart_within_sla(
    cluster_client: ClusterClient, job: Key, *, instance: int, context: Context
) -> None:
    """Restart it, or end the call: ABORTED where the service cannot spare it.

    One that was stopped is started: that takes nobody down.
    """
    number, member = divmod(instance, SLICE_SIZE)
    to, order = slice_key(job.partition("/")[2], number), RestartIfSpared(member)
    for _ in range(TRIES_MAX):
        answer = cluster_client.ask(to, order, context=context)
        if not isinstance(answer, Refused) or answer.code != ASKED_JOB:
            break
        time.sleep(TRY_EVERY_S)
    if isinstance(answer, Refused):
        end(context, Code.ABORTED, text=VIOLATES_TEXT)
    if isinstance(answer, MemberRestarted) and not answer.wanted:
        again = StartInstances(((instance, instance + 1),), again=True)
        cluster_client.ask(job, again, context=context)
