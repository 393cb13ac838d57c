"""The faults of a cluster of agents that exists once, as a Mesos cluster makes them.

Turns a fault's name into its effect on the updates, launches, kills and lists of machines, and on
the subscription of a `SimulatedCluster`. Drawn for a share of all storms, by a generator of their
own: the others keep theirs.
"""

from __future__ import annotations

import random
from functools import partial

from peloton.chaos.cluster.work.workload import cluster_of
from peloton.chaos.cluster.world.subscription import MACHINES_ENGINE
from peloton.runtime.simulation.scenario import P, StormAction, changed
from peloton.runtime.simulation.storms import (
    Fault,
    LastingFault,
    MomentaryFault,
    Storm,
    drawn_faults,
)

SHARE = 0.12
"""Of all storms; with `--agents` of the sweep all are."""
EACH_SHARE = 0.4
"""Of those, the storms that have each of these faults."""
AWAY_S = (2.0, 40.0)
OVERTAKEN_S = (14.0, 30.0)
"""Longer than a session, and than the takeover that follows its end."""
UPDATES = (
    ("F28", "updates lost", "an update is lost, and told again until it is noted", "lost", 0.4),
    ("F28", "updates repeated", "an update comes again after it was noted", "repeated", 0.4),
    ("F28", "updates reversed", "the end of a run comes before its start", "reversed", 0.4),
    ("F28", "updates stale", "an update of a run comes that is long over", "stale", 0.3),
    ("F28", "updates late", "updates overtake those of other runs and hosts", "late_s", 6.0),
    ("F29", "offers rescinded", "a launch that was taken ends as lost", "rescinded", 0.2),
    ("F29", "launches dropped", "a launch that was taken is never heard of", "dropped", 0.2),
    ("F7", "kills lost", "an order to end a run is never heard of", "unheard", 0.4),
    ("F28", "lists late", "a list of runs is older than what it meets", "lists_late_s", 20.0),
    ("F28", "lists old", "an older list comes behind a newer one", "lists_old", 0.4),
)
"""Number, name, what, field of `UpdateFaults`, and how much at full strength."""
COUNTED = {"lists_late_s": "list late", "lists_old": "old list"}
RENEWED, AWAY, OVERTAKEN = "agent anew", "cluster away", "subscription overtaken"


def renew(storm: Storm, action: StormAction) -> None:
    """Renew a machine at once: it knows nothing of its runs, which have ended."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    storm.strike(action.name, host)
    cluster.backend.renew(host)


def leave(storm: Storm, action: StormAction) -> None:
    """Let all machines of the cluster be out of reach at once; with a master, that is gone."""
    cluster = cluster_of(storm)
    storm.strike(action.name, f"for {action.for_s:.1f} s")
    if cluster.master is not None:
        cluster.master.leave()
        storm.later(action.for_s, cluster.master.come_back)
        return
    for host in cluster.hosts:
        cluster.backend.cut(host)
        storm.later(action.for_s, partial(cluster.backend.mend, host))


def overtake(storm: Storm, action: StormAction) -> None:
    """Freeze the subscribed daemon until another one has subscribed."""
    owner = storm.world.owner_of(MACHINES_ENGINE)
    if owner is None:
        return
    storm.strike(action.name, f"{owner.name} for {action.for_s:.1f} s")
    owner.freeze()
    storm.later(action.for_s, owner.thaw)


def _begin(storm: Storm, strength: float, *, field: str, most: float) -> None:
    updates = cluster_of(storm).backend.updates
    updates.faults = updates.faults._replace(**{field: most * strength})


def _count(storm: Storm, *, field: str) -> int:
    struck = cluster_of(storm).backend.updates.struck
    return 1 if field == "late_s" else struck[COUNTED.get(field, field)]


def _update_rows() -> list[Fault]:
    return [
        LastingFault(
            number,
            name,
            what,
            partial(_begin, field=field, most=most),
            partial(_count, field=field),
        )
        for number, name, what, field, most in UPDATES
    ]


FAULTS: tuple[Fault, ...] = (
    *_update_rows(),
    MomentaryFault("F25", RENEWED, "a machine begins anew, and knows no runs", renew, 3),
    MomentaryFault("F27", AWAY, "a master is gone, and another one comes", leave, 2, AWAY_S),
    MomentaryFault(
        "F27", OVERTAKEN, "another daemon subscribes amid the storm", overtake, 2, OVERTAKEN_S
    ),
)  # fmt: skip


def is_drawn(seed: int) -> bool:
    """Return whether a seed's machines are such a cluster."""
    return random.Random(f"{seed} a master").random() < SHARE


def drawn(seed: int, *, storm_s: float) -> tuple[dict[str, float], list[StormAction]]:
    """Draw the faults of such a seed."""
    chance = random.Random(f"{seed} faults of agents")
    some = (fault for fault in FAULTS if chance.random() < EACH_SHARE)  # lazily, as in `decay`
    return drawn_faults(chance, some, storm_s=storm_s)


def over_agents(scenario: P) -> P:
    """Return the same storm over machines that exist once, with the faults of such a cluster."""
    faults, more = drawn(scenario.seed, storm_s=scenario.storm_s)
    return changed(
        scenario,
        outside=True,
        faults={**scenario.faults, **faults},
        actions=tuple(sorted((*scenario.actions, *more), key=lambda action: action.at_s)),
    )
