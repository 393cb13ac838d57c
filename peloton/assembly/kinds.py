"""The table of all kinds of actors. Only the assembly, and tests, import this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peloton.actors.archive import kind as archive
from peloton.actors.engine import kind as engine
from peloton.actors.engine.messages import LINK_MESSAGES
from peloton.actors.host import kind as host
from peloton.actors.host.inventory import kind as inventory
from peloton.actors.host.messages import BACKEND_MESSAGES
from peloton.actors.job import kind as job
from peloton.actors.job.name import kind as name
from peloton.actors.job.notice_messages import NOTIFIER_MESSAGES
from peloton.actors.job.slice import kind as slice_
from peloton.actors.job.slice.parking import ParkingPolicy
from peloton.actors.job.version import kind as version
from peloton.actors.lockdown import kind as lockdown
from peloton.actors.respool import kind as respool
from peloton.actors.respool.lot import kind as lot
from peloton.actors.respool.messages import Within
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.schedule import kind as schedule
from peloton.actors.schedule.messages import RIGHTS_MESSAGES
from peloton.actors.task import kind as task
from peloton.placement.messages import PLACER_MESSAGES
from peloton.runtime.adapters.time_zones import zone_of
from peloton.runtime.kinds import Kind
from peloton.sdk.kit.calls import CLIENT_MESSAGES
from peloton.settings.archive import byte_count
from peloton.settings.daemon import DaemonSettings

SERVICE_MESSAGES = {
    "placer": PLACER_MESSAGES,
    "backend": BACKEND_MESSAGES,
    "link": LINK_MESSAGES,
    "notifier": NOTIFIER_MESSAGES,
    "rights": RIGHTS_MESSAGES,
    "client": CLIENT_MESSAGES,
}
"""Messages that ephemeral services receive from other daemons, by the prefix of their keys."""


class ArchivePolicy(NamedTuple):
    """When ended jobs leave memory at the latest, and when they are deleted: seconds after.

    They leave earlier if there are more of them, or all of them have more than so many bytes.
    """

    archive_after_s: float = job.FINISHED_JOBS_S
    forget_after_s: float = archive.FORGET_AFTER_S
    keep_bytes: float = job.FINISHED_JOBS_BYTES_MAX
    finished_jobs_max: int = job.FINISHED_JOBS_MAX


def kinds(
    sizes: Mapping[str, int],
    *,
    policy: ArchivePolicy = ArchivePolicy(),  # noqa: B008
    quarantine: int = 0,
    preemption: PreemptionPolicy = PreemptionPolicy(),  # noqa: B008
    parking: ParkingPolicy = ParkingPolicy(),  # noqa: B008
) -> dict[str, Kind]:
    """Return every kind by its name, for groups of these sizes.

    Hosts are quarantined after `quarantine` failures of their own; 0: never.
    """
    found = (
        job.kind(
            sizes["jobmgr"],
            finished_jobs_max=policy.finished_jobs_max,
            finished_bytes_max=policy.keep_bytes,
            archive_after_s=policy.archive_after_s,
        ),
        archive.kind(policy.forget_after_s),
        name.KIND,
        version.KIND,
        schedule.kind(zone_of),
        slice_.kind(parking),
        task.KIND,
        respool.kind(preemption),
        lot.KIND,
        host.kind(sizes["hostmgr"], quarantine_after=quarantine),
        inventory.KIND,
        lockdown.KIND,
        engine.KIND,
    )
    return {kind.name: kind for kind in found}


def kinds_of(settings: DaemonSettings) -> dict[str, Kind]:
    """Return every kind by its name, with the settings of a daemon."""
    archived, given_back = settings.archive, settings.preemption
    kept_bytes, retry = byte_count(archived.keep_bytes), settings.placement.retry
    return kinds(
        settings.sizes,
        policy=ArchivePolicy(archived.after_s, archived.forget_after_s, kept_bytes),
        quarantine=settings.limits.quarantine_after,
        preemption=PreemptionPolicy(
            enabled=given_back.enabled,
            sustained_s=given_back.after_s,
            in_flight_max=given_back.at_once,
            evictions_max=given_back.most,
            window_s=given_back.within_s,
            within_reservation=Within[given_back.within_rule.upper()],
            inside=given_back.inside_s,
        ),
        parking=ParkingPolicy(
            retry.enabled, retry.attempts_per_cycle, retry.timeout_s, retry.backoff_s
        ),
    )
