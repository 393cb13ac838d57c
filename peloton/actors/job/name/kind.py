"""The kind "name", as registered with the runtime."""

from __future__ import annotations

from peloton.actors.job.name import messages as m
from peloton.actors.job.name.decide import ABSENT, DECIDE, deadline
from peloton.actors.job.name.facts import FACTS
from peloton.actors.job.name.state import EVOLVE, Name
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import SETTLED, WAITING

KIND = Kind(
    name="name",
    group="jobmgr",
    state=Name,
    decide=DECIDE,
    absent=ABSENT,
    pursue=lambda name, at: SETTLED if name.claimed else WAITING,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers=m.ANSWERS,
    partition=lambda key: key,
    deadline=deadline,
)
