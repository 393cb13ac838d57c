"""Ends the worlds of a test, whose memory pykka's registry would keep, and plays few of its seeds.

Of a `range` of seeds that a test names the first stand for all, but at night. Those that a test
lists were picked by hand, and all of them are played.
"""

from __future__ import annotations

from collections.abc import Iterator

import pykka
import pytest

SEEDS = 2
"""So many of a test are played in every run. Fresh ones are drawn elsewhere (`test_fleet.py`)."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """The seeds of a range beyond the first are for the night."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.indices.get("seed", 0) < SEEDS:
        return
    named = (mark.args[:2] for mark in item.iter_markers("parametrize"))
    if any(name == "seed" and isinstance(values, range) for name, values in named):
        item.add_marker(pytest.mark.nightly)


@pytest.fixture(autouse=True)
def worlds_end() -> Iterator[None]:
    before = {ref.actor_urn for ref in pykka.ActorRegistry.get_all()}
    yield
    for ref in pykka.ActorRegistry.get_all():
        if ref.actor_urn not in before:
            pykka.ActorRegistry.unregister(ref)
