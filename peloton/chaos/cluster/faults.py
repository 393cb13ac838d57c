"""The faults of a simulated cluster that know its hosts, machines and clients, by name.

Turns a name into what is done to a `SimulatedCluster`; together with the faults of any fleet this
is the whole table. It must not strike anything of its own accord.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peloton.chaos.cluster import larger, workload
from peloton.chaos.cluster.cluster import SimulatedCluster
from peloton.chaos.cluster.workload import cluster_of
from peloton.runtime.simulation import outages, shocks
from peloton.runtime.simulation.plan import StormAction
from peloton.runtime.simulation.storms import Fault, LastingFault, MomentaryFault, Storm
from peloton.runtime.vocabulary import Key


def _host(storm: Storm, action: StormAction) -> Key:
    hosts = cluster_of(storm).hosts
    return hosts[action.which % len(hosts)]


def _for_a_while(
    storm: Storm, action: StormAction, *, do: Callable[[Key], object], undo: Callable[[Key], object]
) -> None:
    """Something befalls a host, and passes."""
    host = _host(storm, action)
    storm.strike(action.name, f"{host} for {action.for_s:.1f} s")
    do(host)
    storm.later(action.for_s, partial(undo, host))


def cut_host(storm: Storm, action: StormAction) -> None:
    """Neither orders nor words pass; what runs there runs on."""
    floor = cluster_of(storm).floor
    _for_a_while(storm, action, do=floor.cut, undo=floor.mend)


def switch_off(storm: Storm, action: StormAction) -> None:
    """A machine is gone with its runs, and comes back empty."""
    floor = cluster_of(storm).floor
    _for_a_while(storm, action, do=floor.switch_off, undo=floor.mend)


def stand_still(storm: Storm, action: StormAction) -> None:
    """A machine stands still: late orders are obeyed, late words are said."""
    floor = cluster_of(storm).floor
    _for_a_while(storm, action, do=floor.stop, undo=floor.go_on)


def slow_to_die(storm: Storm, strength: float) -> None:
    """Processes take their time when told to end."""
    cluster_of(storm).machines.stop_s = 8.0 * strength


def slow_to_start(storm: Storm, strength: float) -> None:
    """Processes take their time to start."""
    cluster_of(storm).machines.start_s = 4.0 * strength


def lose_answers(storm: Storm, strength: float) -> None:
    """Clients do not hear what became of their request."""
    cluster_of(storm).clients.lose_answer = 0.3 * strength


STROKES = (
    MomentaryFault("F7", "host cut", "a host is out of reach, both ways", cut_host),
    MomentaryFault("F25", "host lost", "a host is out of reach past its timeout", cut_host, 2, (15., 40.)),
    MomentaryFault("F23", "host switched off", "a machine is gone with its runs", switch_off, 2),
    MomentaryFault("F24", "host stands still", "orders and words wait", stand_still),
)  # fmt: skip
FLOOR = (
    ("F7", "orders lost", "orders to machines vanish", "lose_order", 0.2, "order lost"),
    ("F7", "words lost", "words of machines vanish", "lose_word", 0.2, "word lost"),
    ("F28", "words repeated", "words of machines come twice", "repeat_word", 0.4, "word repeated"),
    ("F28", "words late", "words of machines overtake each other", "word_delay_s", 3.0, ""),
    ("F7", "orders late", "orders overtake each other", "order_delay_s", 2.0, ""),
    ("F26", "foreign runs", "a machine names runs nobody launched", "foreign_run", 0.3,
     "foreign run"),
)  # fmt: skip
OTHERS = (
    LastingFault("F24", "slow to die", "a process takes seconds to end", slow_to_die, lambda storm: 1),
    LastingFault("F24", "slow to start", "a process takes seconds", slow_to_start, lambda storm: 1),
    LastingFault(
        "F21", "reply lost to client", "a client does not hear the answer", lose_answers,
        lambda storm: cluster_of(storm).clients.struck,
    ),
)  # fmt: skip


def _begin(storm: Storm, strength: float, *, fault: str, share: float) -> None:
    floor = cluster_of(storm).floor
    floor.faults = floor.faults._replace(**{fault: share * strength})


def _count(storm: Storm, *, counted: str) -> int:
    return cluster_of(storm).floor.struck[counted] if counted else 1


def _floor_rows() -> list[Fault]:
    rows: list[Fault] = []
    for number, name, what, fault, share, counted in FLOOR:
        begin = partial(_begin, fault=fault, share=share)
        rows.append(LastingFault(number, name, what, begin, partial(_count, counted=counted)))
    return rows


def rows() -> dict[str, Fault]:
    """Every fault there is, by name."""
    mine = [*_floor_rows(), *STROKES, *OTHERS, *workload.STROKES, *outages.FAULTS, *larger.STROKES]
    return {**shocks.rows(), **{fault.name: fault for fault in mine}}


def calm(cluster: SimulatedCluster) -> None:
    """What the world does not know of is mended too."""
    cluster.floor.calm()
    cluster.clients.lose_answer = 0.0
    workload.update_pool(cluster, hosts=len(cluster.hosts))


ALL_FAULTS = rows()
ADDED = [fault.name for fault in (*outages.FAULTS, *larger.STROKES)]
"""Drawn apart from all others, so that the seeds of before mean what they meant."""
CLUSTER_ACTIONS: dict[str, Callable[[Storm, StormAction], None]] = {**workload.WORK, **larger.WORK}
