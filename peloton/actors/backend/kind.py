"""The kind "backend", as registered with the runtime: one for each outside engine of the cluster.

It must hold nothing but the table.
"""

from __future__ import annotations

from peloton.actors.backend import messages as m
from peloton.actors.backend.decide import ABSENT, DECIDE, owed
from peloton.actors.backend.facts import FACTS
from peloton.actors.backend.goals import pursue
from peloton.actors.backend.state import EVOLVE, OutsideBackend
from peloton.runtime.vocabulary import Kind

KIND = Kind(
    name="backend",
    group="hostmgr",
    state=OutsideBackend,
    decide=DECIDE,
    absent=ABSENT,
    pursue=pursue,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers=m.ANSWERS,
    partition=lambda key: key,
    owed=owed,
    since=dict.fromkeys((*FACTS.values(), *m.ANSWERS.values()), m.LEVEL_OUTSIDE),
)
