"""The epoch filter: mail of an older epoch is refused, and counted."""

from __future__ import annotations

from peloton.runtime.core.owning.epoch_filter import EpochFilter
from peloton.runtime.core.turning.envelope import Stamp
from peloton.runtime.ports import ShardId

SENDER = ShardId("g", 3)


def test_after_a_younger_owner_the_older_one_is_refused_and_counted() -> None:
    epochs = EpochFilter()
    assert epochs.accepts(Stamp(SENDER, 5)) and epochs.accepts(Stamp(SENDER, 6))
    assert epochs.refused == 0
    assert not epochs.accepts(Stamp(SENDER, 5))
    assert epochs.refused == 1
    assert epochs.accepts(Stamp(SENDER, 6)), "the younger one is still accepted"


def test_mail_of_no_shard_is_accepted() -> None:
    assert EpochFilter().accepts(None)
