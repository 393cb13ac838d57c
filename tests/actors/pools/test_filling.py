"""Claims that change in whatever order give the levels of the same claims put anew."""

from __future__ import annotations

import random

import pytest

from peloton.actors.respool.filling import BLOCK_MAX, WeightedFill


def anew(claims: dict[str, tuple[int, int]], order: list[str]) -> WeightedFill:
    fill = WeightedFill()
    for name in order:
        amount, weight = claims[name]
        fill.put(name, amount=amount, weight=weight)
    return fill


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_changed_claims_are_as_if_they_were_put_anew(seed: int, step: int) -> None:
    """Over several blocks: by little, so that most stay in theirs, and by much."""
    chance = random.Random(seed)
    names = [f"{number:04}" for number in range(5 * BLOCK_MAX)]
    fill, claims = WeightedFill(), dict.fromkeys(names, (0, 0))
    for turn in range(1500):
        name = chance.choice(names)
        amount, weight = claims[name]
        amount = max(0, amount + chance.randrange(-step, 2 * step))
        claims[name] = amount, chance.choice((weight, weight, chance.randrange(4)))
        fill.put(name, amount=amount, weight=claims[name][1])
        if turn % 100:
            continue
        other = anew(claims, chance.sample(names, len(names)))
        assert (fill.amount, fill.weight) == (other.amount, other.weight)
        for part in range(5):
            level = fill.level(fill.amount * part // 4)
            assert level == other.level(fill.amount * part // 4)
            assert [fill.received(name, level) for name in names] == [
                other.received(name, level) for name in names
            ]
            if level is not None:
                assert fill.poured(level) == other.poured(level)
