"""Resources, labels and ports of hosts in the messages of Mesos, which v0 clients read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peloton.actors.resources import Resources, amount
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.placement.conditions import HOST_POOL
from peloton.placement.messages import Label

MESOS_KINDS = (("cpus", "cpu"), ("mem", "memory"), ("disk", "disk"), ("gpus", "gpu"))


def mesos_resources(of: Resources) -> Iterator[mesos.Resource]:
    """Yield the kinds of which there is any, as scalars in cpus, MB, MB and gpus."""
    for name, kind in MESOS_KINDS:
        value = getattr(of, kind)
        if value > 0:
            scalar = mesos.Value.Scalar(value=amount(value))
            yield mesos.Resource(name=name, type=mesos.Value.SCALAR, scalar=scalar)


def mesos_attributes(labels: Iterable[Label]) -> Iterator[mesos.Attribute]:
    """Yield the labels of a host as text attributes."""
    for label in labels:
        if label.key == HOST_POOL:
            continue  # that is none of the machine's own
        text = mesos.Value.Text(value=label.value)
        yield mesos.Attribute(name=label.key, type=mesos.Value.TEXT, text=text)
