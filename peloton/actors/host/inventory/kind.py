"""The kind "inventory", as registered with the runtime: one in every hostmgr shard."""

from __future__ import annotations

from peloton.actors.host.inventory import facts as f
from peloton.actors.host.inventory import messages as m
from peloton.actors.host.inventory.decide import ABSENT, DECIDE, list_hosts, report
from peloton.actors.host.inventory.goals import pursue
from peloton.actors.host.inventory.pools import get_host_pools, owed
from peloton.actors.host.inventory.state import EVOLVE, Hosts, Inventory
from peloton.runtime.kinds import Kind, Reporting

KIND = Kind(
    name="inventory",
    group="hostmgr",
    state=Inventory,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=f.FACTS,
    partition=lambda key: int(key.partition("/")[2]),
    index=Hosts,
    reporting=Reporting(make=report),
    owed=owed,
    lazy=frozenset((f.HostTold,)),  # until then the order is owed, and answered by the host
    inspect={m.ListHosts: list_hosts, m.GetHostPools: get_host_pools},
    queries={501: m.ListHosts, 502: m.GetHostPools},
    answers={501: m.HostView, 502: m.HostPools, 503: m.HostPoolChanged},
)
