"""The fencing protocol searched to the end within small bounds, and with planted mistakes.

Prints states, depth and seconds (`pytest -s`); `script/model` searches further. What is searched is
the code itself, see `protocol.py`. Examples are in `tests/core`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.faults import FAULTS, Fault, planted
from tests.model.owners import Node, Rest, resume
from tests.model.protocol import Bounds, Protocol, segments_of
from tests.model.search import Found, Move, State, search

DOUBTS = (Bounds(checkpoints=2, cuts=1), 50_000)
BOUNDS = {
    "crashes": (Bounds(crashes=1), 35_000),
    "takeovers": (Bounds(epochs=3), 60_000),
    "overtaken": (Bounds(epochs=3, checkpoints=1, cuts=1, leaves=1, troubles=0), 55_000),
    "sweeps": (Bounds(checkpoints=1, sweeps=1), 50_000),
    "three": (Bounds(owners=3, epochs=3, frames=1, troubles=0), 45_000),
    "together": (Bounds(checkpoints=1, refusals=1), 50_000),
    "shared": (Bounds(epochs=3, checkpoints=1, cuts=1, troubles=0, segment_writes=100), 10_000),
    "lists": (Bounds(owners=1, epochs=1, frames=4, checkpoints=3, cuts=2), 1_000),
}
# A few times as many states each: for --nightly.
WIDER = {
    "doubts": (Bounds(checkpoints=2, cuts=1, troubles=2), 400_000),
    "crashes": (Bounds(checkpoints=1, crashes=1), 100_000),
    "takeovers": (Bounds(epochs=3, frames=3), 100_000),
    "overtaken": (Bounds(epochs=3, checkpoints=2, cuts=1, leaves=1, troubles=0), 50_000),
    "sweeps": (Bounds(checkpoints=2, sweeps=1), 80_000),
    "three": (Bounds(owners=3, epochs=3, troubles=0), 100_000),
    "together": (Bounds(epochs=3, checkpoints=1, troubles=0, refusals=2), 20_000),
    "shared": (
        Bounds(epochs=3, frames=3, checkpoints=2, cuts=1, troubles=0, segment_writes=100),
        100_000,
    ),
    "lists": (Bounds(owners=1, frames=4, checkpoints=3, cuts=2), 10_000),
}
"""All with the fewest states that they must have: a search that shrinks has lost something."""


def searched(model: Protocol, states_max: int = 2**62) -> Found:
    with segments_of(model.bounds.segment_writes):
        return search(model, states_max=states_max)


def whole(found: Found, states_min: int) -> None:
    """All was searched, and nothing is wrong."""
    assert not found.wrong, str(found)
    assert found.complete
    assert found.states >= states_min


@pytest.mark.parametrize(
    ("name", "bounds", "states_min"),
    [
        *(pytest.param(name, *BOUNDS[name], id=name) for name in BOUNDS),
        *(
            pytest.param(name, *WIDER[name], id=f"{name}-wider", marks=pytest.mark.nightly)
            for name in WIDER
        ),
    ],
)
def test_no_order_of_events_breaks_a_promise(name: str, bounds: Bounds, states_min: int) -> None:
    found = searched(Protocol(bounds))
    print(f"\n{name}: {bounds}\n{found}")
    whole(found, states_min)


def test_the_model_gets_to_what_it_is_about() -> None:
    bounds, states_min = DOUBTS
    model = Protocol(bounds)
    whole(searched(model), states_min)
    stories, stores = model.stories.values, model.stores.values
    assert any({one.epoch for one in story.committed} == {1, 2} for story in stories)
    assert any(story.refused for story in stories), "a frame is refused for good"
    assert any(store.register.floor == 2 for store in stores)
    cut = [store for store in stores if store.register.floor == 2 and len(store.journal) == 1]
    assert cut, "a segment is cut under a floor"
    losers = [row for store in stores for _, rows in store.journal for row in rows]
    assert len({key for key, _ in losers if key[0] == 1}) > 1, "a row that lost stays in the way"


LONG_WAYS = ("cuts_the_whole", "trouble_is_damage", "BlindWalk")
"""What shows only within bounds of three claims and cuts: planted at night."""
MARKED = [
    pytest.param(
        fault,
        id=fault.broken.__name__,
        marks=pytest.mark.nightly if fault.broken.__name__ in LONG_WAYS else (),
    )
    for fault in FAULTS
]


@pytest.mark.parametrize("fault", MARKED)
def test_a_planted_mistake_is_found(fault: Fault) -> None:
    with planted(fault):
        found = searched(Protocol(fault.bounds))
    print(f"\n{fault.broken.__name__}: {fault.broken.__doc__}\n{found}")
    assert found.wrong, str(found)
    assert len(found.trace) == found.depth + 1, "the way is a shortest one"
    right = searched(Protocol(fault.bounds), states_max=found.states)
    assert not right.wrong, "it is the mistake that shows"


def test_an_owner_is_a_value() -> None:
    model = Protocol(Bounds(checkpoints=1, troubles=0))
    searched(model)
    rests = [node.rest for node in model.nodes.values if not node.talk]
    assert any(rest.owned is not None for rest in rests)
    for node in model.nodes.values:
        assert resume(node) == resume(node), "a talk told the same says the same"
    assert resume(Node(Rest(1), "claim")) == resume(Node(Rest(2), "claim"))


# ---- the search itself -----------------------------------------------------------------------


class Mistaken(Exception):
    pass


class Stairs:
    """Steps of one or two up to a height; the step onto `trap` is wrong."""

    wrong: type[Exception] = Mistaken

    def __init__(self, height: int, trap: int = -1) -> None:
        self.height = height
        self.trap = trap

    def start(self) -> State:
        return (0,)

    def moves(self, state: State) -> Iterator[Move]:
        yield from ((1,), (2,))

    def after(self, state: State, move: Move) -> State | None:
        to = state[0] + move[0]
        if to == self.trap:
            raise Mistaken(f"on {to}")
        return (to,) if to <= self.height else None

    def explain(self, state: State, move: Move) -> str:
        return f"{state[0]}+{move[0]}"


def test_a_search_visits_every_state_once() -> None:
    found = search(Stairs(10))
    assert (found.states, found.steps, found.depth, found.complete) == (11, 22, 5, True)


def test_a_search_tells_the_shortest_way() -> None:
    found = search(Stairs(10, trap=5))
    assert (found.wrong, found.trace) == ("on 5", ("0+1", "1+2", "3+2"))
    assert not found.complete
    assert str(found).splitlines()[1:] == ["  1. 0+1", "  2. 1+2", "  3. 3+2", "WRONG: on 5"]


def test_a_search_may_be_stopped() -> None:
    found = search(Stairs(10**6), states_max=100)
    assert not found.complete and 100 <= found.states <= 102
