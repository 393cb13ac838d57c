"""Host calls of the ops service: state, capacity, free resources and runs; removal of a host.

A listing does not query hosts, as there may be many: the inventory of a shard follows each of them.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.drain_view import waits_for_slice, why_not_down
from peloton.actors.host.holds.foreign_names import shown_run
from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.ledger import RunSet
from peloton.actors.host.messages import GetHost, HostGone
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources, amount
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts
from peloton.gateway.cluster.names_in_texts import JobNames
from peloton.gateway.translate.host_states import HostStanding, state_and_text
from peloton.gateway.translate.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import Key, Refused, key

SHOWN_RUNS_MAX = 1_000
"""Runs of one host in one answer."""


def host_views(cluster_client: ClusterClient, context: Context) -> list[ops.Host]:
    """Return every host, by name, as the ops service describes it."""
    hosts = [_host_of(view) for view in all_hosts(cluster_client, context)]
    named = JobNames(cluster_client, context)
    for host in hosts:
        host.text = named.in_text(host.text)
    return hosts


def known_host(cluster_client: ClusterClient, host: Key, *, context: Context) -> bool:
    """Return whether there is a host of this key."""
    return isinstance(cluster_client.ask(host, GetHost(), context=context), Host)


def host_with_runs(
    cluster_client: ClusterClient, sent: ops.ShowHostRequest, *, context: Context
) -> Any:
    """Return a host and the runs of its ledger, those with the lowest names first."""
    at = key("host", sent.name)
    found = cluster_client.ask(at, GetHost(), context=context)
    if not isinstance(found, Host) or found.removed:
        end(context, Code.NOT_FOUND, text=f"no such host: {sent.name}")
    limit = min(sent.limit or SHOWN_RUNS_MAX, SHOWN_RUNS_MAX)
    runs = sorted(found.runs)
    quarantined = found.quarantine is not None
    state, text = state_and_text(
        HostStanding(found.state, found.maintenance, quarantined, found.labels),
        name=sent.name,
        text=JobNames(cluster_client, context).in_text(_why(found)),
    )
    return ops.ShowHostResponse(
        host=ops.Host(
            name=sent.name,
            state=state,
            text=text,
            capacity=amounts(found.capacity),
            free=amounts(found.free),
            runs=len(runs),
            attributes={label.key: label.value for label in found.labels},
        ),
        runs=[_run_of(pod, found.runs[pod]) for pod in runs[:limit]],
        more=max(0, len(runs) - limit),
    )


def _why(host: Host) -> str:
    if host.because or host.maintenance == Maintenance.NONE:
        return host.because or ("held for a caller" if host.hold is not None else "")
    waiting = (
        (crowd, len(some.members)) for crowd, some in host.runs.sets() if waits_for_slice(some)
    )
    return why_not_down(waiting, host.use)


def forget(cluster_client: ClusterClient, sent: ops.ForgetHostRequest, *, context: Context) -> Any:
    """Remove a host.

    If a daemon's config still names it, that daemon's next start restores it.
    """
    host = key("host", sent.name)
    found = cluster_client.ask(host, GetHost(), context=context)
    if not isinstance(found, Host) or found.removed:
        end(context, Code.NOT_FOUND, text=f"no such host: {sent.name}")
    # The host itself checks for runs: it may grant one after any check made here.
    lost = cluster_client.ask(host, HostGone(sent.lose_runs), context=context)
    if isinstance(lost, Refused):
        end(context, Code.FAILED_PRECONDITION, text=lost)
    return ops.ForgetHostResponse(runs_lost=lost)


def _host_of(view: HostView) -> Any:
    summary = view.summary
    name = client_name(summary.host)
    state, text = state_and_text(
        HostStanding(view.state, view.maintenance, summary.quarantined, summary.labels),
        name=name,
        text=view.because or ("held for a caller" if view.hold else ""),
    )
    return ops.Host(
        name=name,
        state=state,
        text=text,
        capacity=amounts(summary.capacity),
        free=amounts(summary.free),
        runs=view.runs,
        attributes={label.key: label.value for label in summary.labels},
    )


def _run_of(pod: str, run: RunSet) -> Any:
    return ops.HostRun(
        pod=shown_run(pod),
        phase=run.phase.name,
        resources=amounts(run.resources),
        ports=run.ports,
        gpus=run.devices,
        since=run.since,
    )


def amounts(of: Resources) -> ops.Amounts:
    """Return resources as clients of the ops service read them."""
    return ops.Amounts(
        cpu=amount(of.cpu),
        memory_mb=amount(of.memory),
        disk_mb=amount(of.disk),
        gpu=amount(of.gpu),
        slack=amount(of.slack),
    )
