"""The hosts that wait for a person, for health: another keeper or backend answers for them.

Turns what the local shards have published into one reason. It must not wait for a shard, nor look
at hosts that are well: shards list only those that wait.
"""

from __future__ import annotations

from peloton.gateway.translate.texts import client_name
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.shells.region import Region

HOSTS = "hosts"
SHOWN_MAX = 5
QUERY = ListViews("host", limit=SHOWN_MAX)


def waiting_hosts(cluster: Region) -> tuple[NotReadyReason, ...]:
    """One reason for all of them, of the shards of this daemon; none where no host waits.

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
