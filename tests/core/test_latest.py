"""Reports that are not seen: resent soon, later seldom; a new one begins anew."""

from __future__ import annotations

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.resends import REPORT_RESEND_FAST_MAX, RESEND_SLOW_TICKS, UnseenReports
from peloton.runtime.vocabulary import Seen, key
from tests.toy import messages as w

NOTE, GRID = key("note", "x"), key("grid", "g")


def lamps(version: int) -> Envelope:
    return Envelope(NOTE, w.Lamps(version, 1), sender=GRID)


def ticks(pending: UnseenReports, first: int, last: int) -> list[int]:
    return [tick for tick in range(first, last) if pending.due(tick)]


def test_what_nobody_sees_falls_to_the_slow_rate():
    pending = UnseenReports()
    pending.sent(lamps(1), 0)
    due_at = ticks(pending, 1, 601)
    pauses = [after - before for before, after in zip([0, *due_at], due_at, strict=False)]
    assert pauses[:REPORT_RESEND_FAST_MAX] == [2] * REPORT_RESEND_FAST_MAX
    assert set(pauses[REPORT_RESEND_FAST_MAX:]) == {RESEND_SLOW_TICKS}
    assert len(due_at) <= REPORT_RESEND_FAST_MAX + 600 // RESEND_SLOW_TICKS


def test_a_new_report_begins_fast_again_and_a_seen_one_is_not_resent():
    pending = UnseenReports()
    pending.sent(lamps(1), 0)
    ticks(pending, 1, 100)
    pending.sent(lamps(2), 100)
    assert ticks(pending, 101, 106) == [102, 104]
    pending.seen(NOTE, GRID, message=Seen("Lamps", 1))
    assert ticks(pending, 106, 108), "it saw an older one"
    pending.seen(NOTE, GRID, message=Seen("Lamps", 2))
    assert not pending and not ticks(pending, 108, 200)


def test_who_hurries_says_what_waits_for_its_slow_time_once_and_at_once():
    pending = UnseenReports()
    pending.sent(lamps(1), 0)
    last = ticks(pending, 1, 31)[-1]
    assert not pending.due(last + 1)
    pending.hurry()
    assert pending.due(last + 2)
    assert not ticks(pending, last + 3, last + 3 + REPORT_RESEND_FAST_MAX)


def test_a_hurried_try_brings_the_slow_rate_no_nearer():
    pending = UnseenReports()
    pending.sent(lamps(1), 0)
    for tick in range(1, 20):
        pending.hurry()
        pending.due(tick)
    assert ticks(pending, 20, 26), "a fleet that moved for long has not used up its tries"
