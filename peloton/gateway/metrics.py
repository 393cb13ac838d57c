"""What /metrics says: jobs and instances by state, health, and this process.

Turns the cluster's own listings into Prometheus text at the moment of a scrape. It must not count
anything itself: a second count would drift from the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from peloton.gateway.cluster import Cluster

SCRAPE_S_MAX = 5.0


class ClusterCollector(Collector):
    """One cluster's figures."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        """All figures, as of now; those that cannot be had in time are left out."""
        well, _ = self._cluster.health()
        yield GaugeMetricFamily("peloton_healthy", "1 when all is well", float(well))
        try:
            lines = self._cluster.views("job").result(SCRAPE_S_MAX)
        except TimeoutError:
            return
        if not isinstance(lines, list):
            return
        jobs, instances = Counter[str](), Counter[str]()
        for line in lines:
            jobs[line.state.name] += 1
            instances.update(dict(line.counts))
        yield _by_state("peloton_jobs", "Jobs by state", counts=jobs)
        yield _by_state("peloton_instances", "Instances of jobs by state", counts=instances)


def _by_state(name: str, text: str, *, counts: Counter[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["state"])
    for state, count in sorted(counts.items()):
        family.add_metric([state], count)
    return family


def text_of(cluster: Cluster) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(cluster))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
