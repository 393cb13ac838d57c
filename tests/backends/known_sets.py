"""What hosts say of their runs when they ask for a list, and what a list says, by names of runs.

Of a run they say only that it runs, and since when.
"""

from __future__ import annotations

from peloton.actors.host.ledger import by_crowd, names_of
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.host.messages import RunsListed
from peloton.runtime.vocabulary import Bits


def known_sets(*runs: str, since: float = 0.0) -> tuple[KnownSet, ...]:
    """These runs, as the ledger of their host has them."""
    named, strange = by_crowd(runs)
    assert not strange
    return tuple(KnownSet(crowd, run, Bits(raw), since) for (crowd, run), raw in named.items())


def names_listed(listed: RunsListed) -> list[str]:
    """What a list says to run, by name."""
    sets = (names_of(some.crowd, some.members.raw, run=some.run) for some in listed.sets)
    return sorted([*listed.running, *(name for names in sets for name in names)])
