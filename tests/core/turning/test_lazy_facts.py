"""Rounds that made only lazy facts: what waits for the next frame, for how long, and what does not.

`Added` and `Closed` of a note are lazy here. What is held is seen only by what leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from peloton.assembly.kinds import kinds
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.shard import AFTER_FRAME, IN_ROUND
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.lazy_facts import LAZY_ROWS_MAX, LAZY_S_MAX
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import panel
from tests.toy.kinds import KINDS

LAZY = {
    **KINDS,
    "note": msgspec.structs.replace(KINDS["note"], lazy=frozenset((w.Added, w.Closed))),
}
NOTE = Key("note/a/0")
OTHER = Key("note/b/0")


def begun(*notes: Key) -> Bench:
    """A bench with notes that exist, and are in the journal."""
    bench = Bench(kinds=LAZY)
    for note in notes or (NOTE,):
        bench.send(note, w.Add(1), reply_to="begin")
    bench.rest()
    bench.answers()
    return bench


def held(*notes: Key) -> Bench:
    """The same, with one more fact of each that is not in the journal yet."""
    bench = begun(*notes)
    frames = len(bench.frames)
    for note in notes or (NOTE,):
        bench.send(note, w.Add(2))
    bench.rest()
    assert len(bench.frames) == frames
    return bench


def totals(bench: Bench) -> Iterator[int]:
    for state in bench.replay().population.cells.values():
        yield state.total


def facts_of(frame: bytes) -> list[object]:
    _, entries = Bench(kinds=LAZY).codec.decode_frame(frame)
    return [fact for entry in entries for fact in entry.facts]


def test_lazy_facts_are_the_first_of_the_next_frame() -> None:
    bench = held()
    assert bench.shard.population.cells[NOTE].total == 3 and [*totals(bench)] == [1]
    bench.send(NOTE, w.Lamps(7, 1))
    bench.rest()
    found = facts_of(bench.frames[-1].body)
    assert [type(fact) for fact in found] == [w.Added, w.Heard]
    assert digest(bench.replay()) == digest(bench.shard)


def test_they_get_a_frame_of_their_own_when_none_comes_in_time() -> None:
    bench = held()
    bench.now += LAZY_S_MAX / 2
    assert bench.once().frame is None
    wake_at = bench.once().wake_at
    assert wake_at is not None and wake_at <= bench.now + LAZY_S_MAX / 2
    bench.now = wake_at
    assert bench.once().frame is not None
    assert digest(bench.replay()) == digest(bench.shard)
    assert bench.once().wake_at != wake_at, "once is enough"


def test_a_shard_that_is_woken_too_early_by_a_rounding_error_writes_all_the_same() -> None:
    bench = held()
    wake_at = bench.once().wake_at
    assert wake_at is not None
    bench.now = wake_at - 1e-6
    assert bench.once().frame is not None


def test_who_is_answered_finds_in_the_journal_what_the_answer_says() -> None:
    bench = held()
    bench.send(NOTE, w.Add(3), reply_to="asked")
    ready = bench.once()
    assert bench.answers() == [w.Total(6)] and ready.frame is not None
    assert [*totals(bench)] == [6]


def test_a_query_is_answered_by_a_round_only_if_it_would_show_what_is_held() -> None:
    bench = begun(NOTE, OTHER)
    bench.send(NOTE, w.Add(2))
    bench.rest()
    assert bench.shard.answer(Envelope(OTHER, w.Show(), reply_to=1), bench.now) == w.Total(1)
    query = Envelope(NOTE, w.Show(), reply_to="query")
    assert bench.shard.reads.answer(NOTE, w.Show()) == w.Total(1), "of what is durable"
    assert bench.shard.answer(query, bench.now) is IN_ROUND
    bench.shard.take([query])
    ready = bench.ready()
    assert ready.frame is not None and [reply.value for reply in ready.replies] == [w.Total(3)]
    assert bench.shard.answer(query, bench.now) is AFTER_FRAME, "it is in flight now"
    bench.write(ready)
    bench.shard.committed()
    assert bench.shard.answer(query, bench.now) == w.Total(3)
    assert bench.shard.reads.answer(NOTE, w.Show()) == w.Total(3)


def test_readers_and_followers_see_it_with_its_frame() -> None:
    bench = held()
    end = bench.shard.changes.end
    assert bench.shard.views._safe[NOTE] == (NOTE, 1)
    bench.now += LAZY_S_MAX
    bench.once()
    assert bench.shard.views._safe[NOTE] == (NOTE, 3)
    changes = bench.shard.changes.after(end).changes
    assert [fact for change in changes for fact in change.line.facts] == [w.Added(2)]


def test_messages_do_not_wait_with_it() -> None:
    """What leaves is what a round without facts may let leave, too."""
    lazy = {name: everything_lazy(KINDS[name]) for name in ("bulb", "panel")}
    bench = Bench(kinds={**KINDS, **lazy})
    bench.send(panel("a"), w.Install(3), reply_to="install")
    bench.rest()
    frames = len(bench.frames)
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert [type(each.message) for each in bench.taken()] == [w.Draw]
    assert len(bench.frames) == frames


def everything_lazy(kind: Kind) -> Kind:
    return msgspec.structs.replace(kind, lazy=frozenset(kind.facts.values()))


def test_it_is_bounded_in_number() -> None:
    bench = begun()
    frames = len(bench.frames)
    for _ in range(LAZY_ROWS_MAX):
        bench.send(NOTE, w.Add(1))
        bench.rest()
    assert len(bench.frames) == frames
    bench.send(NOTE, w.Add(1))
    bench.rest()
    assert len(bench.frames) == frames + 1


def test_an_owner_that_cannot_be_sure_writes_at_once() -> None:
    """A frame proves that it owns the shard; messages that leave without one need that it knows."""
    bench = begun()
    bench.send(NOTE, w.Add(2))
    assert bench.ready(may_withhold=False).frame is not None


def test_what_has_ended_by_it_leaves_after_its_frame() -> None:
    bench = begun()
    bench.send(NOTE, w.Close())
    bench.rest()
    assert not bench.ended and not bench.shard.busy
    bench.now += LAZY_S_MAX
    bench.rest()
    assert NOTE in bench.ended and NOTE not in bench.shard.population.cells


def test_a_failure_is_written_at_once_and_with_it_what_was_held() -> None:
    bench = held()
    frames = len(bench.frames)
    bench.send(NOTE, w.Add(13))
    bench.after(60.0)
    assert bench.shard.deferred.dead_letters[NOTE]
    assert w.Added(2) in facts_of(bench.frames[frames].body)
    assert digest(bench.replay()) == digest(bench.shard)


@pytest.mark.parametrize("name", sorted(kinds({"jobmgr": 1, "resmgr": 1, "hostmgr": 1})))
def test_lazy_facts_write_no_time(name: str) -> None:
    """They are folded with the time of their frame, which is later than that of their turn."""
    kind = kinds({"jobmgr": 1, "resmgr": 1, "hostmgr": 1})[name]
    assert kind.lazy <= {*kind.facts.values()}
    if kind.crowd is not None:
        assert kind.lazy.isdisjoint(kind.crowd.write)
