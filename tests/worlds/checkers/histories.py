"""Histories of committed facts, written by hand, for checkers of storms.

Turns steps into what a checker says of them: an entry is noted, a number of seconds passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Fact, Key

Step = Entry | float


class Noting(Protocol):
    """A checker that names the facts it looks at."""

    noted: dict[type, Callable[[Entry, Any], None]]


def of(key: str, *facts: Fact, members: int = 0) -> Entry:
    """The facts of one turn."""
    return Entry(Key(key), facts, members)


def small_cluster() -> SimulatedCluster:
    """A cluster in which nothing happens but that time passes."""
    return SimulatedCluster(seed=1, daemons=1, hosts=1)


def note(check: Noting, steps: Sequence[Step], *, cluster: SimulatedCluster | None = None) -> None:
    """Tell a checker of a history. Raises `Contradiction`."""
    for step in steps:
        if isinstance(step, float):
            assert cluster is not None
            cluster.world.run_for(step)
            continue
        for fact in step.facts:
            if type(fact) in check.noted:
                check.noted[type(fact)](step, fact)


def breaks(do: Callable[[], object], text: str) -> None:
    """The checker reports it, in these words."""
    with pytest.raises(Contradiction) as caught:
        do()
    rule, _, rest = text.partition(" ")
    assert str(caught.value).startswith(f"{rule} ") and rest in str(caught.value)
