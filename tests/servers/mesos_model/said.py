"""What a master of Mesos says of its agents and of what they offer, in the words of a real one.

It changes nothing; the caller knows what is held where.
"""

from __future__ import annotations

from tests.backends.mesos.words import Json, ports, scalar
from tests.servers.mesos_model.offers import Amounts, Offer

VERSION = "1.12.0"
PORTS = (31000, 32000)
CAPABILITIES = (
    "MULTI_ROLE", "HIERARCHICAL_ROLE", "RESERVATION_REFINEMENT", "RESOURCE_PROVIDER",
    "RESIZE_VOLUME", "AGENT_OPERATION_FEEDBACK", "AGENT_DRAINING", "TASK_RESOURCE_LIMITS",
)  # fmt: skip


def offered(offer: Offer, hostname: str, *, role: str, framework_id: Json) -> Json:
    """An offer as the framework is told of it."""
    allocation = {"allocation_info": {"role": role}}
    address = {"hostname": hostname, "ip": "127.0.0.1", "port": 5051}
    return {
        "id": {"value": offer.name},
        "framework_id": framework_id,
        "agent_id": {"value": offer.agent},
        "hostname": hostname,
        "url": {"scheme": "http", "address": address, "path": "/slave(1)"},
        "resources": [
            ports(PORTS, role="*", **allocation),
            *_scalars(offer.amounts, role="*", **allocation),
        ],
        "attributes": _attributes(hostname),
    } | allocation


def listed(name: str, hostname: str, has: Amounts, *, active: bool, now: float) -> Json:
    """An agent as operators are told of it."""
    info: Json = {"hostname": hostname, "port": 5051, "id": {"value": name}}
    info |= {"attributes": _attributes(hostname), "checkpoint": True}
    info["resources"] = [*_scalars(has), ports(PORTS)]
    return {
        "agent_info": info, "active": active, "deactivated": False, "version": VERSION,
        "pid": "slave(1)@127.0.0.1:5051", "registered_time": {"nanoseconds": int(now * 1e9)},
        "total_resources": [*_scalars(has, role="*"), ports(PORTS, role="*")],
        "capabilities": [{"type": name} for name in CAPABILITIES],
    }  # fmt: skip


def container(name: str) -> Json:
    """Of a task: what is known of its container."""
    addresses = [{"protocol": "IPv4", "ip_address": "127.0.0.1"}]
    return {
        "container_id": {"value": name},
        "network_infos": [{"ip_addresses": addresses}],
        "executor_pid": 1,
    }


def too_much(need: Amounts, there: Amounts, *, role: str, group: bool) -> str:
    """Why a launch is refused that asks for so much where there is less."""

    def text(amounts: Amounts) -> str:
        return "; ".join(
            f"{name}(allocated: {role}):{some / 1000:g}" for name, some in amounts.items() if some
        )

    whose = "task group and its executor are" if group else "task and its executor is"
    return (
        f"Total resources {text(need)} required by {whose} more than available "
        f"ports(allocated: {role}):[{PORTS[0]}-{PORTS[1]}]; {text(there)}"
    )


def _scalars(amounts: Amounts, **more: object) -> list[Json]:
    return [scalar(name, some / 1000, **more) for name, some in amounts.items() if some > 0]


def _attributes(hostname: str) -> list[Json]:
    attributes = {"host": hostname, "rack": hostname.replace("h", "r")}
    return [
        {"name": name, "type": "TEXT", "text": {"value": value}}
        for name, value in attributes.items()
    ]
