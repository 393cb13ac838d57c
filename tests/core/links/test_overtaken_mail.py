"""Mail of an owner that was overtaken is refused, also by whoever recovers the receiving shard."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.core.turning.resends import OWED_RESEND_FAST_MAX, OwedSends
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import At, Decision, Send, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import panel
from tests.toy.kinds import KINDS

X = key("note", "x")
SENDER = ShardId("city", 0)


@pytest.mark.parametrize("checkpoint", [False, True], ids=["a tail", "a checkpoint"])
def test_the_next_owner_refuses_what_the_last_one_would(checkpoint: bool) -> None:
    bench = Bench(checkpoint_bytes_min=1 if checkpoint else 10**9)
    assert bench.shard.take([Envelope(X, w.Add(1))], Stamp(SENDER, 5))
    bench.rest()
    assert bool(bench.checkpoint[0]) is checkpoint
    bench.shard = bench.replay()
    assert not bench.shard.take([Envelope(X, w.Add(1))], Stamp(SENDER, 4))
    assert bench.shard.take([Envelope(X, w.Add(1))], Stamp(SENDER, 5))


def test_an_epoch_is_journaled_with_mail_that_changes_nothing() -> None:
    """Its answer may leave: an older message that is taken after it would undo what was said."""
    bench = Bench()
    assert bench.shard.take([Envelope(X, w.Close())], Stamp(SENDER, 5))
    bench.rest()
    assert not bench.replay().take([Envelope(X, w.Add(1))], Stamp(SENDER, 4))


def test_what_waits_for_a_load_is_delivered_in_the_order_it_came() -> None:
    bench = Bench()
    for reply, message in enumerate((w.Add(1), w.Close(), w.Add(2))):
        bench.send(X, message, reply_to=reply)
    bench.rest()
    assert bench.answers() == [w.Total(1), w.Total(1), w.Total(3)]


def test_a_report_is_answered_when_it_was_taken_and_not_before() -> None:
    note, failing = KINDS["note"], [True]

    def lamps(message: w.Lamps, at: At) -> Decision:
        if failing:
            raise ValueError("not today")
        return note.absent[w.Lamps](message, at)

    kind = replace(note, absent={**note.absent, w.Lamps: lamps})
    bench = Bench(kinds={**KINDS, "note": kind})
    bench.send(X, w.Lamps(1, 1), sender=key("grid", "0"))
    bench.rest()
    assert bench.taken() == [], "its sender repeats it"
    failing.clear()
    bench.after(2.0)  # the turn is tried again
    assert [type(each.message).__name__ for each in bench.taken()] == ["Seen"]


def test_what_a_cell_owed_is_sent_again_after_a_recovery() -> None:
    """It may never have left: the process may have died behind its commit."""
    owed = (Send(key("meter", "0"), w.Undraw(1)),)
    note = replace(KINDS["note"], owed=lambda note: owed if note.total == 7 else ())
    bench = Bench(kinds={**KINDS, "note": note})
    bench.send(X, w.Add(7))
    bench.send(key("note", "y"), w.Add(1))
    bench.rest()
    bench.taken()
    bench.shard = bench.replay()
    bench.rest()
    assert [(each.sender, each.message) for each in bench.taken()] == [(X, w.Undraw(1))]


def test_what_members_owed_is_sent_again_after_a_recovery() -> None:
    bench = Bench()
    bench.send(panel("a"), w.Install(3))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    first = [each for each in bench.taken() if isinstance(each.message, w.Draw)]
    bench.shard = bench.replay()
    bench.rest()
    again = [each for each in bench.taken() if isinstance(each.message, w.Draw)]
    assert [(each.to, each.origin) for each in again] == [(each.to, each.origin) for each in first]
    assert first


def test_who_always_has_something_new_to_send_resends_the_old() -> None:
    owed = OwedSends()
    owed.sent(X, 1)
    due = []
    for tick in range(1, 3 + OWED_RESEND_FAST_MAX):
        due.append(bool(owed.tick(tick)))
        owed.sent_more(X, 1)
    assert due.count(True) >= OWED_RESEND_FAST_MAX
