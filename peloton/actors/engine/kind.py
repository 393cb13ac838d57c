"""The kind "engine", as registered with the runtime: one for each outside engine of the cluster."""

from __future__ import annotations

from peloton.actors.engine import messages as m
from peloton.actors.engine.decide import ABSENT, DECIDE, owed
from peloton.actors.engine.facts import FACTS
from peloton.actors.engine.state import EVOLVE, OutsideBackend
from peloton.runtime.kinds import Kind

KIND = Kind(
    name="engine",
    group="hostmgr",
    state=OutsideBackend,
    decide=DECIDE,
    absent=ABSENT,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers=m.ANSWERS,
    partition=lambda key: key,
    owed=owed,
)
