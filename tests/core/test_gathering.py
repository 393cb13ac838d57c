"""Ended entities that wait for each other: which are written, when, and that none is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.assembly.kinds import kinds
from peloton.runtime.core.ended.gathering import (
    ENDED_BUCKETS,
    GATHERED_BYTES_MAX,
    GATHERED_MIN,
    GATHERED_S_MAX,
    Gathering,
    bucket_of,
)
from peloton.runtime.core.limits import ShardLimits
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.vocabulary import Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench

MANY = 10_000
COMPANY = 6


class Gathers(Bench):
    """A bench whose ended entities wait for company."""

    def fresh(self) -> Shard:
        return Shard(
            self.id,
            self.kinds,
            sharding=Sharding(self.kinds, self.sizes),
            codec=self.codec,
            limits=ShardLimits(ended_rows_gathered=COMPANY),
        )

    def close(self, *numbers: int) -> None:
        """These notes end, each with its number in it."""
        for number in numbers:
            self.send(note(number), w.Add(number))
            self.send(note(number), w.Close())
            self.rest()

    @property
    def kept(self) -> set[Key]:
        return {name for name in self.shard.population.cells if name.startswith("note/")}


def note(number: int) -> Key:
    return key("note", f"n{number}")


def keys(count: int) -> list[Key]:
    return [Key(f"slice/{number:08x}-0000-4000-8000-000000000000/0") for number in range(count)]


def test_the_bucket_of_a_key_never_changes() -> None:
    """Rows are found by it. Whoever has to change this must read both places."""
    assert [bucket_of(key) for key in ("job/a", "slice/a/0", "note/7")] == [31, 62, 62]


def test_the_keys_of_one_shard_use_all_buckets() -> None:
    """The shard is chosen by a checksum too."""
    sharding = Sharding(kinds({"jobmgr": 16, "resmgr": 1, "hostmgr": 16}), {"jobmgr": 16})
    mine = [key for key in keys(MANY) if sharding.shard_of(key).number == 3]
    found = Counter(bucket_of(key) for key in mine)
    assert len(found) == ENDED_BUCKETS and max(found.values()) < 4 * len(mine) / ENDED_BUCKETS


def test_the_fullest_bucket_is_written_and_holds_many() -> None:
    waiting, writes = Gathering(GATHERED_MIN), []
    for name in keys(MANY):
        waiting.add(name, now=1.0, size=500)
        while waiting.is_due(1.0):
            taken = waiting.take(512, now=1.0)
            writes.append(len({bucket_of(each) for each in taken}))
            assert len(taken) / writes[-1] >= 8
    rows = MANY - len(waiting)
    assert rows / sum(writes) > 12, "rows a write"
    assert GATHERED_MIN / 2 < len(waiting) < GATHERED_MIN


def test_one_that_waits_alone_is_written_in_time() -> None:
    waiting = Gathering(GATHERED_MIN)
    first, second = keys(2)
    waiting.add(first, now=100.0)
    waiting.add(second, now=150.0)
    assert waiting.next_s == 100.0 + GATHERED_S_MAX
    assert not waiting.is_due(699.0) and waiting.take(9, now=699.0) == []
    assert waiting.take(9, now=700.0) == [first]
    assert waiting.next_s == 750.0 and second in waiting and first not in waiting
    assert waiting.take(9, now=750.0) == [second] and waiting.next_s is None


def test_large_ones_do_not_wait_for_many() -> None:
    waiting = Gathering(GATHERED_MIN)
    small, *large = keys(5)
    waiting.add(small, now=1.0, size=10)
    for name in large:
        waiting.add(name, now=1.0, size=GATHERED_BYTES_MAX // 3)
    taken = waiting.take(9, now=1.0)
    assert taken and set(taken) <= set(large), "the heaviest bucket, and not all"
    assert not waiting.is_due(1.0) and small in waiting


def test_without_company_the_first_is_the_first() -> None:
    waiting = Gathering()
    some = keys(5)
    for name in some:
        waiting.add(name, now=1.0)
    assert waiting.is_due(1.0) and waiting.next_s is None
    assert waiting.take(2, now=1.0) == some[:2] and waiting.take(9, now=1.0) == some[2:]
    assert len(waiting) == 0 and not waiting.is_due(1.0)


def test_what_is_in_hand_is_known() -> None:
    waiting = Gathering(2)
    first, second = keys(2)
    waiting.add(first, now=1.0)
    assert waiting.only({first: None}) and not waiting.only({second: None})


@pytest.mark.parametrize("least", [1, 3, 40])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 400_000), st.integers(1, 9)), max_size=80
    )
)
def test_none_is_lost_and_none_is_twice(least: int, steps: list[tuple[int, int, int]]) -> None:
    waiting, there, now = Gathering(least), set(), 0.0
    names = keys(61)
    for number, size, room in steps:
        now += 40.0
        if names[number] not in waiting:
            waiting.add(names[number], now=now, size=size)
            there.add(names[number])
        due = waiting.is_due(now)
        taken = waiting.take(room, now=now)
        assert due == bool(taken) and len(taken) <= room and len({*taken}) == len(taken)
        assert {*taken} <= there
        there -= {*taken}
        assert len(waiting) == len(there) and all(key in waiting for key in there)
    while there:
        now += GATHERED_S_MAX
        there -= {*waiting.take(7, now=now)}
    assert len(waiting) == 0 and waiting.next_s is None
    waiting.add(names[0], now=now)
    assert (waiting._count, waiting._weight) == (1, 256)


# ---- of a shard ------------------------------------------------------------------------------


def test_an_ended_entity_stays_until_others_have_ended_too() -> None:
    bench = Gathers()
    bench.close(*range(COMPANY - 1))
    assert not bench.ended and len(bench.kept) == COMPANY - 1 and not bench.shard.busy
    bench.close(COMPANY)
    assert bench.ended and not {*bench.ended} & bench.kept
    assert len(bench.ended) + len(bench.kept) == COMPANY
    assert digest(bench.replay()) == digest(bench.shard)


def test_what_waits_for_company_is_in_the_checkpoint_and_waits_on_after_a_recovery() -> None:
    bench = Gathers()
    bench.close(1, 2, 3)
    bench.shard = bench.replay()
    assert bench.kept == {note(1), note(2), note(3)} and not bench.ended
    bench.rest()
    assert not bench.ended
    bench.now += GATHERED_S_MAX + 1.0
    bench.rest()
    assert {*bench.ended} == {note(1), note(2), note(3)} and not bench.kept


def test_a_shard_without_mail_wakes_up_for_what_waits_for_company() -> None:
    bench = Gathers()
    bench.close(1)
    (due, ready) = (bench.shard.endings.next_s, bench.once())
    assert due == pytest.approx(bench.now + GATHERED_S_MAX, abs=1.0) and ready.wake_at is not None
    bench.now = due
    bench.rest()
    assert {*bench.ended} == {note(1)} and bench.shard.endings.next_s is None


def test_what_waits_for_company_may_live_on_or_be_deleted() -> None:
    bench = Gathers()
    bench.close(1, 2, 3)
    bench.send(note(1), w.Add(10), reply_to=1)
    bench.send(note(2), w.Forget())
    bench.rest()
    assert bench.answers()[-1:] == [w.Total(11)]
    bench.now += GATHERED_S_MAX + 1.0
    bench.rest()
    assert {*bench.ended} == {note(3)} and bench.kept == {note(1)}, "the one is open again"
    for number, total in ((1, 11), (3, 3)):
        bench.send(note(number), w.Show(), reply_to=number)
        bench.rest()
        assert bench.answers() == [w.Total(total)]
    assert digest(bench.replay()) == digest(bench.shard)
