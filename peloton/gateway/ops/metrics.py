"""The text of /metrics: jobs and instances by state, health, and this process.

The cluster's own listings become Prometheus text at the moment of a scrape. Nothing is counted
here: a second count would drift from the first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from peloton.actors.archive.messages import GetPeriods, PeriodsListed, archive_key
from peloton.gateway.cluster.listing import gather
from peloton.gateway.ops.health_notes import forgotten_late_s, leaves_late_s
from peloton.runtime.core.disk_room import DiskRoom
from peloton.runtime.core.reading.listing import FieldCounts, Listed, ListViews
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Absent

SCRAPE_S_MAX = 5.0
JOB_COUNTS = ListViews("job", limit=0, tally=("state", "counts"), ranked=True)
"""Each shard counts its own: no line of a job leaves it."""


class ClusterCollector(Collector):
    """The figures of one cluster."""

    def __init__(self, cluster: Region) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        """Yield all figures, as of now; those that cannot be had in time are left out."""
        condition = self._cluster.daemon_health()
        yield GaugeMetricFamily("peloton_healthy", "1 when all is well", float(condition.ready))
        yield from _rooms(condition.rooms)
        yield from self._retained()
        try:
            jobs, instances = self._counted().tallies
        except TimeoutError:
            return
        yield _by_state("peloton_jobs", "Jobs by state", counts=jobs)
        yield _by_state("peloton_instances", "Instances of jobs by state", counts=instances)
        yield from self._archived()

    def _retained(self) -> Iterator[Metric]:
        """Yield the ended jobs in the memory of this process."""
        retained = self._cluster.ended_retained("job")
        text = "Ended jobs in the memory of this daemon"
        yield GaugeMetricFamily(
            "peloton_ended_jobs_held", text, sum(one.entities for one in retained)
        )
        text = "Bytes of the ended jobs in the memory of this daemon, as stored"
        yield GaugeMetricFamily(
            "peloton_ended_job_held_bytes", text, sum(one.size for one in retained)
        )
        text = "Ended jobs that had to leave the memory of this daemon, by the bound they met"
        left = CounterMetricFamily("peloton_ended_jobs_left", text, labels=["rule"])
        sums = Counter[str]()
        for one in retained:
            sums.update(dict(one.left))
        for rule, count in sorted(sums.items()):
            left.add_metric([rule], count)
        yield left
        text = "How long ended jobs are overdue to leave the memory of this daemon"
        late_s = leaves_late_s(self._cluster, time.time())
        yield GaugeMetricFamily("peloton_ended_jobs_late_seconds", text, late_s)

    def _archived(self) -> Iterator[Metric]:
        """Yield what the archives count; nothing if one of them cannot answer in time."""
        until_s = time.monotonic() + SCRAPE_S_MAX
        found = []
        for at in range(len(self._cluster.shards_of("archive"))):
            asked = self._cluster.ask(archive_key(at), GetPeriods(limit=0))
            try:
                answer = asked.result(max(until_s - time.monotonic(), 0.0))
            except TimeoutError:
                return
            if isinstance(answer, PeriodsListed):
                found.append(answer)
            elif not isinstance(answer, Absent):
                return  # a shard is moving: what the others count is not all
        archived, forgotten = (
            sum(one.archived for one in found),
            sum(one.forgotten for one in found),
        )
        late_s = max((forgotten_late_s(one, time.time()) for one in found), default=0.0)
        text = "Ended jobs that left memory and are found in the archive"
        yield GaugeMetricFamily("peloton_jobs_archived", text, archived)
        text = "Jobs that were deleted because their time was over"
        yield CounterMetricFamily("peloton_jobs_forgotten", text, forgotten)
        text = "How long the oldest archived jobs are overdue for deletion"
        yield GaugeMetricFamily("peloton_archive_late_seconds", text, late_s)

    def _counted(self) -> Listed:
        until_s = time.monotonic() + SCRAPE_S_MAX

        def wait(future: Future[Any]) -> Listed:
            found = future.result(max(until_s - time.monotonic(), 0.0))
            if not isinstance(found, Listed):
                raise TimeoutError  # a shard is moving: what the others count is not all
            return found

        return gather(self._cluster, JOB_COUNTS, wait=wait)


def _by_state(name: str, text: str, *, counts: FieldCounts) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["state"])
    for state, count in counts:
        family.add_metric([state], count)
    return family


def _rooms(rooms: Iterable[DiskRoom]) -> Iterator[Metric]:
    """Yield the disks under this daemon's folders."""
    free = GaugeMetricFamily("peloton_disk_free_bytes", "Room on the disk", labels=["of"])
    size = GaugeMetricFamily("peloton_disk_size_bytes", "Size of the disk", labels=["of"])
    for room in rooms:
        for name in room.of:
            free.add_metric([name.removeprefix("the ")], room.free_bytes)
            size.add_metric([name.removeprefix("the ")], room.size_bytes)
    yield free
    yield size


def metrics_text(cluster: Region) -> bytes:
    """Return the text of one scrape."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(cluster))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
