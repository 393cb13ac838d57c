"""Hosts that are held for tasks, as the private services order it, and kills with such a hold.

A hold ends by its time at the latest, so a call that fails half-way needs no repair. Hosts decide
which tasks get room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from peloton.actors.host.holds.foreign_names import foreign_crowd, held_task, is_foreign_id
from peloton.actors.host.holds.hold_messages import (
    PLACER,
    TASK_HOLD_S,
    HeldForTask,
    HoldForTask,
    HostHeld,
    ReleaseTaskHolds,
    TaskHold,
)
from peloton.actors.host.inventory.messages import HostView
from peloton.actors.resources import Resources
from peloton.actors.task.messages import SLICE_SIZE, crowd_key
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.cluster.inventories import all_hosts, hosts_held_for, takes_work, unused_of
from peloton.gateway.private.foreign_runs import kill_runs
from peloton.gateway.private.host_offers import new_hold
from peloton.gateway.translate.actor_keys import parse_number
from peloton.gateway.translate.texts import client_name, known_job
from peloton.placement.filters import HostWant
from peloton.runtime.vocabulary import Key, Refused, key

RESERVE_S = 900.0
"""How long a host waits for room for a task: what runs there has to end first."""

log = structlog.get_logger("gateway")


class KillEntry(NamedTuple):
    """A run to be killed, the name of its task, and the host that waits for its next run."""

    run: str
    task: str
    host: str


class Completed(NamedTuple):
    """A reservation whose room is there, and is held for the client now."""

    hold: TaskHold
    held: HostHeld


def place_of(task: str) -> tuple[Key, int] | None:
    """Return crowd and member of a task by its name, of a job or a client's own; None for no
    name."""
    job, _, number = task.rpartition("-")
    found, instance = known_job(job), parse_number(number)
    if found is not None and instance is not None:
        slice_number, member = divmod(instance, SLICE_SIZE)
        return crowd_key(client_name(found), slice_number), member
    return (foreign_crowd(task), 0) if is_foreign_id(task) else None


def kill_and_hold(
    cluster_client: ClusterClient, entries: Sequence[KillEntry], *, context: Context
) -> list[str]:
    """Hold the hosts, then end the runs; return the names that are of no run.

    A hold that fails is only logged, as in the original. The hosts of runs that were not killed are
    released.
    """
    holder = cluster_client.permissions.whose(context).text
    asks = []
    for entry in entries:
        place = place_of(entry.task)
        if place is None or not entry.host:
            log.warning("no host is held for a task", task=entry.task, host=entry.host)
            continue
        message = HoldForTask(entry.task, *place, holder, TASK_HOLD_S)
        asks.append((key("host", entry.host), message))
    for (host, message), answer in zip(
        asks, cluster_client.each(asks, context, changes=True), strict=True
    ):
        if isinstance(answer, Refused):
            log.warning("no host is held for a task", task=message.task, host=host, why=answer.text)
    missing = kill_runs(cluster_client, [entry.run for entry in entries], context=context)
    left = frozenset(missing)
    drops: dict[Key, list[str]] = {}
    for entry in entries:
        if entry.run in left and entry.host:
            drops.setdefault(key("host", entry.host), []).append(entry.task)
    _release(cluster_client, drops, context=context)
    return missing


def drop_task_holds(
    cluster_client: ClusterClient,
    tasks: Iterable[str],
    *,
    context: Context,
    but: str = "",
) -> None:
    """Release the hosts that are held for these tasks, except the host `but`."""
    wanted = frozenset(tasks)
    drops = {}
    for view in hosts_held_for(cluster_client, wanted, context=context):
        some = [hold.task for hold in view.task_holds if hold.task in wanted]
        if some and client_name(view.summary.host) != but:
            drops[view.summary.host] = some
    _release(cluster_client, drops, context=context)


def _release(
    cluster_client: ClusterClient, drops: Mapping[Key, Sequence[str]], *, context: Context
) -> None:
    asks = [(host, ReleaseTaskHolds(tuple(tasks))) for host, tasks in sorted(drops.items())]
    for _ in cluster_client.each(asks, context, changes=True):
        pass


def reserve_one(
    cluster_client: ClusterClient,
    hosts: Iterable[str],
    *,
    task: str,
    need: Resources,
    context: Context,
) -> HeldForTask | str:
    """Reserve the first of these hosts that can be for a task; or return why none was."""
    place = place_of(task)
    if place is None:
        return f"{task!r} is not the name of a task"
    holder = cluster_client.permissions.whose(context).text
    text = "no host is named"
    for name in dict.fromkeys(name for name in hosts if name):
        message = HoldForTask(task, *place, holder, RESERVE_S, need, reserve=True)
        answer = cluster_client.ask(key("host", name), message, context=context)
        if isinstance(answer, HeldForTask):
            return answer
        assert isinstance(answer, Refused), answer
        text = f"{name}: {answer.text}"
    return text


def take_completed(cluster_client: ClusterClient, *, context: Context) -> list[Completed]:
    """Turn every reservation whose room is there into a hold of the client's."""
    holder = cluster_client.permissions.whose(context).text
    found: list[tuple[HostView, TaskHold]] = []
    for view in all_hosts(cluster_client, context):
        for hold in view.task_holds:
            if hold.reserved and hold.holder != PLACER and _complete(view, hold):
                found.append((view, hold))
    asks = [
        (view.summary.host, new_hold(HostWant(hold.need), holder=holder, tasks=(hold.task,)))
        for view, hold in found
    ]
    answers = cluster_client.each(asks, context, changes=True)
    done = [
        Completed(hold, answer)
        for (_, hold), answer in zip(found, answers, strict=True)
        if isinstance(answer, HostHeld)  # or another caller was faster
    ]
    _release(
        cluster_client, {one.held.summary.host: [one.hold.task] for one in done}, context=context
    )
    return done


def _complete(view: HostView, hold: TaskHold) -> bool:
    return takes_work(view) and not view.hold and hold.need.within(unused_of(view))


def named_task(run: Any, task: Any) -> str:
    """Return the name of a task in a request: its own, or else that of its run without the run."""
    return task.value or held_task(run.value)
