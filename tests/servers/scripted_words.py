"""What a master of Mesos says of its agents and of what they offer, as the scripted one says it.

It must not change anything: what is held where is the affair of who asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.servers.scripted_http import VERSION, Event

Amounts = dict[str, float]
TOTAL: Amounts = {"cpus": 8.0, "mem": 8192.0, "disk": 10240.0}
PORTS = (31000, 32000)
CAPABILITIES = (
    "MULTI_ROLE", "HIERARCHICAL_ROLE", "RESERVATION_REFINEMENT", "RESOURCE_PROVIDER",
    "RESIZE_VOLUME", "AGENT_OPERATION_FEEDBACK", "AGENT_DRAINING", "TASK_RESOURCE_LIMITS",
)  # fmt: skip


@dataclass
class FakeAgent:
    """One host; `free` is what neither tasks nor offers hold."""

    id: str
    hostname: str
    total: Amounts
    free: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.free = dict(self.total)


@dataclass
class FakeOffer:
    """One offer that is neither accepted nor declined."""

    id: str
    agent: FakeAgent
    amounts: Amounts


def offered(offer: FakeOffer, *, role: str, framework_id: Event) -> Event:
    """An offer as the framework is told of it."""
    agent = offer.agent
    allocation = {"allocation_info": {"role": role}}
    ports = {"range": [{"begin": PORTS[0], "end": PORTS[1]}]}
    resources = [{"name": "ports", "type": "RANGES", "ranges": ports, "role": "*"} | allocation]
    resources += [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"} | allocation
        for name, value in offer.amounts.items()
        if value
    ]
    address = {"hostname": agent.hostname, "ip": "127.0.0.1", "port": 5051}
    return {
        "id": {"value": offer.id},
        "framework_id": framework_id,
        "agent_id": {"value": agent.id},
        "hostname": agent.hostname,
        "url": {"scheme": "http", "address": address, "path": "/slave(1)"},
        "resources": resources,
        "attributes": _attributes(agent),
    } | allocation


def listed(agent: FakeAgent) -> Event:
    """An agent as operators are told of it."""
    ports = {"range": [{"begin": PORTS[0], "end": PORTS[1]}]}
    total: list[Event] = [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}}
        for name, value in agent.total.items()
    ]
    total.append({"name": "ports", "type": "RANGES", "ranges": ports})
    info: Event = {"hostname": agent.hostname, "port": 5051, "id": {"value": agent.id}}
    info |= {"attributes": _attributes(agent), "checkpoint": True, "resources": total}
    return {
        "agent_info": info, "active": True, "deactivated": False, "version": VERSION,
        "pid": "slave(1)@127.0.0.1:5051", "registered_time": {"nanoseconds": time.time_ns()},
        "total_resources": [{**entry, "role": "*"} for entry in total],
        "capabilities": [{"type": name} for name in CAPABILITIES],
    }  # fmt: skip


def _attributes(agent: FakeAgent) -> list[Event]:
    attributes = {"host": agent.hostname, "rack": agent.hostname.replace("h", "r")}
    return [
        {"name": name, "type": "TEXT", "text": {"value": value}}
        for name, value in attributes.items()
    ]


def add(to: Amounts, amounts: Mapping[str, float], sign: int = 1) -> None:
    """Add, or with -1 take away, in place."""
    for name in to:
        to[name] = round(to[name] + sign * amounts.get(name, 0.0), 3)


def total_of(parts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    total = dict.fromkeys(TOTAL, 0.0)
    for part in parts:
        add(total, part)
    return total


def amounts_of(info: Event) -> Amounts:
    """What a task, or an executor, is to have of each kind that it names."""
    wanted: Amounts = {}
    for one in info.get("resources", []):
        if one["type"] == "SCALAR":
            wanted[one["name"]] = round(wanted.get(one["name"], 0.0) + one["scalar"]["value"], 3)
    return wanted
