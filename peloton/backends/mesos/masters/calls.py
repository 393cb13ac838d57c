"""Calls to a master of Mesos, as JSON: of the v1 scheduler API, and those of its operators.

The sender of a call of the scheduler API adds the id of the framework, which only the connection
knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Call = dict[str, Any]
_NANO = 1_000_000_000
INVERSE_AGAIN_S = 30.0
"""After which the master asks once more whether it may have an agent back."""
RECONCILE_MAX = 1000
"""Tasks in one call of reconciliation."""


class CallFailed(Exception):
    """A call was not accepted, or perhaps not: the stream is of no use."""


class CallRefused(CallFailed):
    """The master has understood an operator's call, and refuses it."""


def accept(
    offers: Sequence[str],
    tasks: Sequence[Mapping[str, Any]],
    *,
    groups: Sequence[Mapping[str, Any]] = (),
) -> Call:
    """Return a call that launches these tasks, and groups of tasks, on these offers of one agent.

    The rest of the offers comes back at once.
    """
    launches: list[Call] = [{"type": "LAUNCH_GROUP", "launch_group": one} for one in groups]
    if tasks:
        launches.insert(0, {"type": "LAUNCH", "launch": {"task_infos": [*tasks]}})
    return {
        "type": "ACCEPT",
        "accept": {
            "offer_ids": _ids(offers),
            "operations": launches,
            "filters": {"refuse_seconds": 0.0},
        },
    }


def of_framework(call: Mapping[str, Any], framework: str) -> Call:
    """Return the call with the framework's id, also in the executor of a group."""
    own = {"framework_id": {"value": framework}}
    if call.get("type") != "ACCEPT":
        return {**call, **own}
    operations = []
    for each in call["accept"]["operations"]:
        group = each.get("launch_group")
        if group is not None:
            each = {**each, "launch_group": {**group, "executor": {**group["executor"], **own}}}
        operations.append(each)
    return {**call, "accept": {**call["accept"], "operations": operations}, **own}


def decline(offers: Sequence[str], refuse_s: float) -> Call:
    """Return a call that gives these offers back, for so long."""
    filters = {"refuse_seconds": refuse_s}
    return {"type": "DECLINE", "decline": {"offer_ids": _ids(offers), "filters": filters}}


def revive() -> Call:
    """Return a call for offers of everything, whatever was declined."""
    return {"type": "REVIVE"}


def kill(task: str, agent: str, *, grace_s: float) -> Call:
    """Return a call that ends a task."""
    policy = {"grace_period": {"nanoseconds": int(grace_s * _NANO)}}
    ids = {"task_id": {"value": task}, "agent_id": {"value": agent}}
    return {"type": "KILL", "kill": {**ids, "kill_policy": policy}}


def shutdown(executor: str, agent: str) -> Call:
    """Return a call that ends an executor, whatever it runs."""
    ids = {"executor_id": {"value": executor}, "agent_id": {"value": agent}}
    return {"type": "SHUTDOWN", "shutdown": ids}


def acknowledge(task: str, agent: str, *, uuid: str) -> Call:
    """Return a call that acknowledges an update: the next one may come."""
    ids = {"task_id": {"value": task}, "agent_id": {"value": agent}, "uuid": uuid}
    return {"type": "ACKNOWLEDGE", "acknowledge": ids}


def reconcile(tasks: Iterable[str], agent: str) -> list[Call]:
    """Return calls for the states of these tasks of an agent."""
    every = [{"task_id": {"value": task}, "agent_id": {"value": agent}} for task in tasks]
    parts = [every[at : at + RECONCILE_MAX] for at in range(0, len(every), RECONCILE_MAX)]
    return [{"type": "RECONCILE", "reconcile": {"tasks": part}} for part in parts]


def reconcile_all() -> Call:
    """Return a call for the states of all tasks of the framework."""
    return {"type": "RECONCILE", "reconcile": {"tasks": []}}


def inverse(offers: Sequence[str], *, accept: bool) -> Call:
    """Return an answer to inverse offers: whether the master may have these agents back."""
    kind = "ACCEPT_INVERSE_OFFERS" if accept else "DECLINE_INVERSE_OFFERS"
    filters = {"refuse_seconds": INVERSE_AGAIN_S}
    answer = {"inverse_offer_ids": _ids(offers), "filters": filters}
    return {"type": kind, kind.lower(): answer}


def new_schedule(windows: Iterable[Mapping[str, Any]]) -> Call:
    """Return a call to the operators' API that replaces the schedule of maintenance."""
    schedule = {"schedule": {"windows": [*windows]}}
    return {"type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": schedule}


def machines_down(machines: Iterable[Mapping[str, str]]) -> Call:
    """Return an operator's call that sets machines down, which ends their agents."""
    return {"type": "START_MAINTENANCE", "start_maintenance": {"machines": [*machines]}}


def machines_up(machines: Iterable[Mapping[str, str]]) -> Call:
    """Return an operator's call that sets machines up and out of the schedule."""
    return {"type": "STOP_MAINTENANCE", "stop_maintenance": {"machines": [*machines]}}


def _ids(offers: Iterable[str]) -> list[dict[str, str]]:
    return [{"value": name} for name in offers]
