"""The faults of hosts, machines and clients of a simulated cluster, by name.

Turns a fault's name into its effect on a `SimulatedCluster`; together with the faults of any fleet
this is the whole table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peloton.chaos.cluster.work import (
    agents,
    changing,
    displacing,
    everywhere,
    ganging,
    gpu_work,
    host_holds,
    host_pooling,
    larger,
    lending,
    noticing,
    ordering,
    overcommit,
    pacing,
    placing,
    pool_work,
    quarantining,
    reading,
    rolling,
    scheduling,
    servicing,
    sparing,
    stateful,
    workload,
)
from peloton.chaos.cluster.work.workload import cluster_of
from peloton.chaos.cluster.world import feed_readers
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.simulation import decay, outages, partitions, shocks, single
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Fault, LastingFault, MomentaryFault, Storm
from peloton.runtime.vocabulary import Key


def _host(storm: Storm, action: StormAction) -> Key:
    hosts = cluster_of(storm).hosts
    return hosts[action.which % len(hosts)]


def _for_a_while(
    storm: Storm, action: StormAction, *, do: Callable[[Key], object], undo: Callable[[Key], object]
) -> None:
    """Do something to a host, and undo it after the action's time."""
    host = _host(storm, action)
    storm.strike(action.name, f"{host} for {action.for_s:.1f} s")
    do(host)
    storm.later(action.for_s, partial(undo, host))


def cut_host(storm: Storm, action: StormAction) -> None:
    """Stop orders and reports of a host; its runs go on."""
    backend = cluster_of(storm).backend
    _for_a_while(storm, action, do=backend.cut, undo=backend.mend)


def switch_off(storm: Storm, action: StormAction) -> None:
    """Let a machine fail with all its runs, and come back empty."""
    backend = cluster_of(storm).backend
    _for_a_while(storm, action, do=backend.switch_off, undo=backend.mend)


def freeze_host(storm: Storm, action: StormAction) -> None:
    """Freeze a machine: its orders and reports wait, and are delivered when it continues."""
    backend = cluster_of(storm).backend
    _for_a_while(storm, action, do=backend.freeze, undo=backend.thaw)


def slow_to_die(storm: Storm, strength: float) -> None:
    """Let processes take up to 8 s to end after a kill."""
    cluster_of(storm).machines.stop_s = 8.0 * strength


def slow_to_start(storm: Storm, strength: float) -> None:
    """Let processes take up to 4 s to start."""
    cluster_of(storm).machines.start_s = 4.0 * strength


def lose_answers(storm: Storm, strength: float) -> None:
    """Let clients lose the answers to their requests."""
    cluster_of(storm).clients.lose_answer = 0.3 * strength


STROKES = (
    MomentaryFault("F7", "host cut", "a host is out of reach, both ways", cut_host),
    MomentaryFault(
        "F25", "host lost", "a host is out of reach past its timeout", cut_host, 2, (15., 40.)
    ),
    MomentaryFault("F23", "host switched off", "a machine fails with its runs", switch_off, 2),
    MomentaryFault("F24", "host stands still", "orders and reports wait", freeze_host),
)  # fmt: skip
BACKEND = (
    ("F7", "orders lost", "orders to machines vanish", "lose_order", 0.2, "order lost"),
    ("F7", "words lost", "reports of machines vanish", "lose_report", 0.2, "report lost"),
    ("F28", "words repeated", "reports of machines come twice", "repeat_report", 0.4,
     "report repeated"),
    ("F28", "words late", "reports of machines overtake each other", "report_delay_s", 3.0, ""),
    ("F7", "orders late", "orders overtake each other", "order_delay_s", 2.0, ""),
    ("F26", "foreign runs", "a machine lists runs nobody launched", "foreign_run", 0.3,
     "foreign run"),
)  # fmt: skip
"""Faults between daemons and machines: number, name, what, field, share, and what counts it."""
OTHERS = (
    LastingFault(
        "F24", "slow to die", "a process takes seconds to end", slow_to_die, lambda storm: 1
    ),
    LastingFault(
        "F24", "slow to start", "a process takes seconds to start", slow_to_start, lambda storm: 1
    ),
    LastingFault(
        "F21", "reply lost to client", "a client does not get the answer", lose_answers,
        lambda storm: cluster_of(storm).clients.struck,
    ),
)  # fmt: skip


def _begin(storm: Storm, strength: float, *, fault: str, share: float) -> None:
    backend = cluster_of(storm).backend
    backend.faults = backend.faults._replace(**{fault: share * strength})


def _count(storm: Storm, *, counted: str) -> int:
    return cluster_of(storm).backend.struck[counted] if counted else 1


def _backend_rows() -> list[Fault]:
    rows: list[Fault] = []
    for number, name, what, fault, share, counted in BACKEND:
        begin = partial(_begin, fault=fault, share=share)
        rows.append(LastingFault(number, name, what, begin, partial(_count, counted=counted)))
    return rows


def rows() -> dict[str, Fault]:
    """Return every fault, by name."""
    mine = [
        *_backend_rows(), *STROKES, *OTHERS, *workload.STROKES, *outages.FAULTS, *larger.STROKES,
        *single.FAULTS, outages.SLOW_COMMITS, *reading.FAULTS,
        *decay.FAULTS, *agents.FAULTS, *partitions.FAULTS,
    ]  # fmt: skip
    return {**shocks.rows(), **{fault.name: fault for fault in mine}}


def calm(cluster: SimulatedCluster) -> None:
    """End the faults that `World.calm` does not know of."""
    if cluster.master is not None:
        cluster.master.come_back()
    cluster.backend.calm()
    cluster.clients.lose_answer = 0.0
    feed_readers.calm(cluster.readers)
    cluster.listener.lost_share = 0.0
    host_pooling.calm(cluster)
    quarantining.calm(cluster)
    workload.update_pool(cluster, hosts=len(cluster.hosts))


ALL_FAULTS = rows()
ADDED = [fault.name for fault in (*outages.FAULTS, *larger.STROKES)]
"""Drawn separately from all others, so that older seeds keep their storms."""
SINGLE = [fault.name for fault in single.FAULTS]
"""Drawn by `single.drawn`, likewise."""
SLOW = outages.SLOW_COMMITS.name
LATEST = [fault.name for fault in (
    *reading.FAULTS, *decay.FAULTS, *agents.FAULTS, *partitions.FAULTS,
)]  # fmt: skip
APART = frozenset((*ADDED, *SINGLE, SLOW, *LATEST))
"""Faults that have generators of their own."""
CLUSTER_ACTIONS: dict[str, Callable[[Storm, StormAction], None]] = {
    **workload.WORK, **changing.WORK, **larger.WORK, **pool_work.WORK,
    **placing.WORK, **ordering.WORK, **host_holds.WORK, **pacing.WORK, **noticing.WORK,
    **scheduling.WORK, **host_pooling.WORK, **quarantining.WORK, **lending.WORK, **ganging.WORK,
    **gpu_work.WORK, **overcommit.WORK, **displacing.WORK, **servicing.WORK, **rolling.WORK,
    **sparing.WORK, **everywhere.WORK, **rolling.RESIZES, **stateful.WORK,
    **rolling.STEADIES,
}  # fmt: skip
