"""The kind "lot", as registered with the runtime. The tree of pools is derived from lots too."""

from __future__ import annotations

from peloton.actors.respool.lot import messages as m
from peloton.actors.respool.lot.decide import ABSENT, DECIDE, owed, waits
from peloton.actors.respool.lot.facts import (
    FACTS,
)
from peloton.actors.respool.lot.state import EVOLVE, Lot
from peloton.actors.respool.messages import ROOT, TREE_PARTITION
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import SETTLED, WAITING

KIND = Kind(
    name="lot",
    group="resmgr",
    state=Lot,
    decide=DECIDE,
    absent=ABSENT,
    pursue=lambda lot, at: WAITING if lot.order is not None or lot.waiting else SETTLED,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    partition=lambda key: TREE_PARTITION,
    parent=lambda key, state: ROOT,
    inspect={m.GetLot: waits},
    queries={501: m.GetLot},
    answers={501: m.LotWaits},
    owed=owed,
)
