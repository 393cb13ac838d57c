"""The kind "lockdown", as registered with the runtime: one in a cluster."""

from __future__ import annotations

from peloton.actors.lockdown import messages as m
from peloton.actors.lockdown.decide import ABSENT, DECIDE, get_locks
from peloton.actors.lockdown.facts import FACTS
from peloton.actors.lockdown.state import EVOLVE, Lockdown
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import OWN_STATE

KIND = Kind(
    name="lockdown",
    group="resmgr",
    state=Lockdown,
    decide=DECIDE,
    absent=ABSENT,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers=m.ANSWERS,
    partition=lambda key: key,
    inspect={m.GetLocks: get_locks},
    depends=lambda query: OWN_STATE,
    queries=m.QUERIES,
)
