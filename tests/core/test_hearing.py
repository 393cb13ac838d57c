"""Whom a shard listens to: words of an older epoch are refused, and counted."""

from __future__ import annotations

from peloton.runtime.core.envelope import Stamp
from peloton.runtime.core.epoch_filter import EpochFilter
from peloton.runtime.ports import ShardId

SPEAKER = ShardId("g", 3)


def test_after_a_younger_owner_the_older_one_is_refused_and_counted() -> None:
    hearing = EpochFilter()
    assert hearing.accepts(Stamp(SPEAKER, 5)) and hearing.accepts(Stamp(SPEAKER, 6))
    assert hearing.refused == 0
    assert not hearing.accepts(Stamp(SPEAKER, 5))
    assert hearing.refused == 1
    assert hearing.accepts(Stamp(SPEAKER, 6)), "the younger one goes on"


def test_what_no_shard_said_is_heard() -> None:
    assert EpochFilter().accepts(None)
