"""Reasons for health that need a person: an archive that lags, and hosts that wait.

An archive lags where jobs should have left memory, or have been deleted; a host waits where another
keeper or backend answers for it. Turns what the local shards have published into reasons. It must
not wait for a shard, nor look at hosts that are well, and says nothing of a delay that the normal
course of things has: rows that wait for others, a lap through jobs that did not go.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.actors.archive.messages import GetPeriods, PeriodsListed, archive_key
from peloton.gateway.translate.texts import client_name
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.shells.region import Region

ARCHIVE = "archive"
LEAVES_LATE_S = 900.0
"""So long after its time an ended job may be in memory."""
FORGOTTEN_LATE_S = 3600.0
"""So long after its time a job may be in the archive."""
COUNTS = GetPeriods(limit=0)


def leaves_late_s(cluster: Region, now: float) -> float:
    """Return for how long the first ended job of a local shard should have left memory by now."""
    due = (held.due_s for held in cluster.ended_retained("job"))
    return max((now - since for since in due if since is not None and since < now), default=0.0)


def archive_notes(cluster: Region, now: float) -> tuple[NotReadyReason, ...]:
    """Return what is late in the shards of this daemon; it is no reason against being ready."""
    return tuple(NotReadyReason(ARCHIVE, text) for text in _texts(cluster, now))


def _texts(cluster: Region, now: float) -> Iterator[str]:
    late_s = leaves_late_s(cluster, now)
    if late_s > LEAVES_LATE_S:
        yield f"ended jobs should have left memory {late_s:.0f} s ago"
    pages = (
        cluster.read(archive_key(at), COUNTS) for at in range(len(cluster.shards_of("archive")))
    )
    found = [forgotten_late_s(page, now) for page in pages if isinstance(page, PeriodsListed)]
    late_s = max(found, default=0.0)
    if late_s > FORGOTTEN_LATE_S:
        yield f"archived jobs should have been deleted {late_s:.0f} s ago"


def forgotten_late_s(page: PeriodsListed, now: float) -> float:
    """Return for how long the oldest jobs of an archive should have been deleted by now."""
    return max(now - page.due_at, 0.0) if page.due_at else page.late_s


HOSTS = "hosts"
SHOWN_MAX = 5
QUERY = ListViews("host", limit=SHOWN_MAX)


def waiting_hosts(cluster: Region) -> tuple[NotReadyReason, ...]:
    """Return one reason for all waiting hosts of the shards of this daemon; nothing if none waits.

    A daemon with such hosts is ready all the same: it serves everything else.
    """
    pages = [cluster.read(shard, QUERY) for shard in cluster.shards_of(QUERY.kind)]
    found = [page for page in pages if isinstance(page, Listed)]
    count = sum(page.matched for page in found)
    if not count:
        return ()
    views = [view for page in found for view in page.items][:SHOWN_MAX]
    texts = [f"{client_name(view.summary.host)}: {view.because}" for view in views]
    if count > len(texts):
        texts.append(f"and {count - len(texts)} more")
    return (NotReadyReason(HOSTS, f"{count} wait for a person: {'; '.join(texts)}"),)
