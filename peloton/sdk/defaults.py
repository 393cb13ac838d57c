"""The resources of a task that requests nothing: an amount with which the machines stay usable.

On the wire a task without resources counts nothing, so that all of a job start at once. The command
line, and programs that ask here, request one cpu and its share of memory instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from peloton.sdk import specs
from peloton.sdk.errors import Denied, Unsupported

if TYPE_CHECKING:
    from peloton.sdk.client import Client

CPUS = 1.0
MEMORY_MB = 1024.0
"""For one cpu, where the cluster does not tell its hosts."""
MESOS_CLUSTER = "mesos.cluster"
"""The label that hosts of Mesos have: its value is the name of their cluster."""


class TaskShare(NamedTuple):
    """The cpus of a task that requests nothing, and the memory that goes with one cpu."""

    cpus: float
    memory_mb_per_cpu: float

    def resource(self, cpus: float | None = None) -> dict[str, float]:
        """Return the share as the `resource` of a task config."""
        cpus = self.cpus if cpus is None else cpus
        memory_mb = float(int(self.memory_mb_per_cpu * cpus))
        return {"cpuLimit": cpus, "memLimitMb": memory_mb, "diskLimitMb": 0.0}


def task_share(peloton: Client, pool: str) -> TaskShare:
    """Return one cpu and the memory of the host with the least for each of its cpus; never more
    than the pool has.

    Tasks with it fill a host neither above its cpus nor above its memory.
    """
    sizes = [(host.capacity.cpu, host.capacity.memory_mb) for host in known_hosts(peloton)]
    found = peloton.pools.get(peloton.pools.lookup(pool)).poolinfo.config.resources
    limits = {one.kind: one.limit for one in found}
    sizes.append((limits.get("cpu", 0.0), limits.get("memory", 0.0)))
    known = [(cpus, memory_mb) for cpus, memory_mb in sizes if cpus > 0 and memory_mb > 0]
    if not known:
        return TaskShare(CPUS, MEMORY_MB)
    most = min(max(cpus for cpus, _ in known), limits.get("cpu") or CPUS)
    return TaskShare(min(CPUS, most), min(memory_mb / max(cpus, CPUS) for cpus, memory_mb in known))


def has_mesos(peloton: Client) -> bool:
    """Return whether there are hosts that are agents of Mesos: other machines than that of a
    daemon."""
    return any(map(is_of_mesos, known_hosts(peloton)))


def is_of_mesos(host: Any) -> bool:
    """Return whether this host, as `ops.hosts` has it, is an agent of Mesos."""
    return MESOS_CLUSTER in host.attributes


def known_hosts(peloton: Client) -> Any:
    """Return the hosts; none if the cluster does not tell them."""
    try:
        return peloton.ops.hosts().hosts
    except (Denied, Unsupported):
        return ()  # a cluster of the original, or a caller who may not see its hosts


def with_resource(spec: Mapping[str, Any], resource: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the spec with this `resource` in its default config; None if it has one, or no config.

    Instances with a `resource` of their own keep it.
    """
    key = next((key for key in spec if specs.plain(str(key)) == "defaultconfig"), None)
    default = spec.get(key) if key is not None else None
    if not isinstance(default, Mapping):
        return None
    if any(specs.plain(str(name)) == "resource" for name in default):
        return None
    return {**spec, str(key): {**default, "resource": dict(resource)}}
