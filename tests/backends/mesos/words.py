"""What a Mesos master says, as JSON, for tests."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
ROLE = "peloton"


def scalar(name: str, value: float, **more: Any) -> Json:
    """An entry of resources that is a number."""
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}, **more}


def ports(*ranges: tuple[int, int], **more: Any) -> Json:
    """An entry of ports, the last ones included."""
    found = [{"begin": begin, "end": end} for begin, end in ranges]
    return {"name": "ports", "type": "RANGES", "ranges": {"range": found}, **more}


def reserved(role: str) -> Json:
    """What an entry that is reserved for a role has more."""
    return {"reservations": [{"type": "STATIC", "role": role}]}


def allocated(role: str) -> Json:
    """What an entry that a role has got has more."""
    return {"allocation_info": {"role": role}}


def offer(name: str, agent: str = "S0", *entries: Json, cpus: float = 4.0) -> Json:
    """An offer of an agent, by default of some cpu, memory, disk and ports."""
    usual = (
        scalar("cpus", cpus),
        scalar("mem", 4096.0),
        scalar("disk", 100.0),
        ports((31000, 32000)),
    )
    return {"id": {"value": name}, "agent_id": {"value": agent}, "resources": [*(entries or usual)]}


def agent(agent_id: str = "S0", hostname: str = "h0", **more: Any) -> Json:
    """An agent as the master lists it."""
    info = {"id": {"value": agent_id}, "hostname": hostname, **more.pop("info", {})}
    total = [scalar("cpus", 4.0), scalar("mem", 4096.0), ports((31000, 32000))]
    return {"agent_info": info, "active": True, "total_resources": total, **more}


def status(task: str, state: str, agent: str = "S0", **more: Any) -> Json:
    """An update of an executor, unless `more` says that of another source."""
    ids = {"task_id": {"value": task}, "agent_id": {"value": agent}}
    return {**ids, "state": f"TASK_{state}", "source": "SOURCE_EXECUTOR", **more}


def reconciled(task: str, state: str, agent: str = "S0", **more: Any) -> Json:
    """The master's answer to a question."""
    text = "Reconciliation: Latest task state"
    reason = {"source": "SOURCE_MASTER", "reason": "REASON_RECONCILIATION", "message": text}
    return status(task, state, agent, **{**reason, **more})
