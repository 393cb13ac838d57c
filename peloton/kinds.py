"""The table of all kinds of actors. Only the assembly, and tests, import this."""

from __future__ import annotations

from collections.abc import Mapping

from peloton.actors.host import kind as host
from peloton.actors.host.inventory import kind as inventory
from peloton.actors.host.messages import BACKEND_MESSAGES
from peloton.actors.job import kind as job
from peloton.actors.job.slice import kind as slice_
from peloton.actors.respool import kind as respool
from peloton.actors.respool.lot import kind as lot
from peloton.actors.task import kind as task
from peloton.placement.messages import PLACER_MESSAGES
from peloton.runtime.vocabulary import Kind

SERVICE_MESSAGES = {"placer": PLACER_MESSAGES, "backend": BACKEND_MESSAGES}
"""Messages that ephemeral services receive from other daemons, by the prefix of their keys."""


def kinds(
    sizes: Mapping[str, int], *, finished_jobs_max: int = job.FINISHED_JOBS_MAX
) -> dict[str, Kind]:
    """Every kind by its name, for groups of these sizes."""
    found = (
        job.kind(finished_jobs_max),
        slice_.KIND,
        task.KIND,
        respool.KIND,
        lot.KIND,
        host.kind(sizes["hostmgr"]),
        inventory.KIND,
    )
    return {kind.name: kind for kind in found}
