"""The kind "inventory", as registered with the runtime: one in every hostmgr shard.

It must hold nothing but the table.
"""

from __future__ import annotations

from peloton.actors.host.inventory import messages as m
from peloton.actors.host.inventory.decide import ABSENT, DECIDE, list_hosts, report
from peloton.actors.host.inventory.facts import FACTS
from peloton.actors.host.inventory.goals import pursue
from peloton.actors.host.inventory.state import EVOLVE, Hosts, Inventory
from peloton.runtime.vocabulary import Kind

KIND = Kind(
    name="inventory",
    group="hostmgr",
    state=Inventory,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    partition=lambda key: int(key.partition("/")[2]),
    index=Hosts,
    report=report,
    inspect={m.ListHosts: list_hosts},
    queries={501: m.ListHosts},
    answers={501: m.HostView},
)
