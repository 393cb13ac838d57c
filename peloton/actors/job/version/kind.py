"""The kind "version", as registered with the runtime: each has one earlier spec of a job.

It has ended from the beginning, so it leaves memory once its row is written, and is deleted with
that row.
"""

from __future__ import annotations

from peloton.actors.job.version import messages as m
from peloton.actors.job.version.decide import ABSENT, DECIDE, get_spec
from peloton.actors.job.version.facts import FACTS
from peloton.actors.job.version.state import EVOLVE, Version
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Key


def _partition(key: Key) -> str:
    return key.split("/")[1] + "/0"  # that of its job


KIND = Kind(
    name="version",
    group="jobmgr",
    state=Version,
    decide=DECIDE,
    absent=ABSENT,
    evolve=EVOLVE,
    messages=m.MESSAGES,
    facts=FACTS,
    answers=m.ANSWERS,
    queries=m.QUERIES,
    partition=_partition,
    ended=lambda version, index: True,
    inspect={m.GetSpec: get_spec},
    lookup=frozenset((m.DropSpec,)),
)
