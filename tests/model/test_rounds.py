"""Rounds of two shards searched to the end within small bounds, and with planted mistakes.

What is searched is the journal itself, see `rounds.py`. Examples are in `tests/core` and
`tests/contracts`.
"""

from __future__ import annotations

import pytest

from peloton.runtime.ports import Fenced, RoundRefused
from tests.model.faults import Fault, planted
from tests.model.round_faults import ROUND_FAULTS
from tests.model.rounds import Bounds, Idle, Rounds
from tests.model.search import Found, search

DOUBTS = (Bounds(troubles=2), 9_000)
BOUNDS = {
    "two rounds": (Bounds(rounds=2), 13_000),
    "crashes": (Bounds(troubles=2, crashes=1), 10_000),
    "takeovers": (Bounds(epochs=3, strays=1), 3_000),
}
WIDER = {
    "doubts": (Bounds(rounds=2, troubles=2), 140_000),
    "three": (Bounds(processes=3, epochs=3, troubles=2), 140_000),
    "takeovers": (Bounds(rounds=2, epochs=3, strays=1), 50_000),
}
"""All with the fewest states that they must have: a search that shrinks has lost something."""


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
def test_a_round_is_whole_in_every_order_of_events(
    name: str, bounds: Bounds, states_min: int
) -> None:
    found = search(Rounds(bounds))
    print(f"\n{name}: {bounds}\n{found}")
    whole(found, states_min)


def test_the_model_gets_to_what_it_is_about() -> None:
    bounds, states_min = DOUBTS
    model = Rounds(bounds)
    whole(search(model), states_min)
    stories = model.stories.values
    assert any(all(story.committed) for story in stories), "a round is committed"
    assert any(story.refused for story in stories), "a frame is refused for good"
    told = [said.news for said in model._said.values() if isinstance(said, Idle)]
    answers = [tuple(answer for _, answer in news) for news in told]
    assert any(isinstance(one, RoundRefused) for some in answers for one in some)
    in_doubt = [one for some in answers for one in some if isinstance(one, Fenced)]
    assert any(not one.definite for one in in_doubt)
    lone = [node for node in model.nodes.values if node.calls and node.calls[-1].name == "settle"]
    assert any(len(node.calls[-1].shards) == 1 for node in lone), "one of two settles first"


@pytest.mark.parametrize("fault", ROUND_FAULTS, ids=[one.broken.__name__ for one in ROUND_FAULTS])
def test_a_planted_mistake_is_found(fault: Fault) -> None:
    with planted(fault):
        found = search(Rounds(fault.bounds))
    print(f"\n{fault.broken.__name__}: {fault.broken.__doc__}\n{found}")
    assert found.wrong, str(found)
    assert len(found.trace) == found.depth + 1, "the way is a shortest one"
    right = search(Rounds(fault.bounds), states_max=found.states)
    assert not right.wrong, "it is the mistake that shows"
