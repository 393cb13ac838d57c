"""Reports that are not seen: resent soon, later seldom; a new one begins anew."""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.resends import OWED_RESEND_FAST_MAX, UnseenReports
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Decision, Key, Seen, Send, key
from tests.toy import messages as w
from tests.toy.bench import START_S, Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

NOTE, GRID = key("note", "x"), key("grid", "g")


def lamps(version: int) -> Envelope:
    return Envelope(NOTE, w.Lamps(version, 1), sender=GRID)


def ticks(pending: UnseenReports, first: int, last: int) -> list[int]:
    return [tick for tick in range(first, last) if pending.due(tick)]


def test_a_new_report_begins_fast_again_and_a_seen_one_is_not_resent():
    pending = UnseenReports()
    pending.sent(lamps(1))
    ticks(pending, 1, 100)
    pending.sent(lamps(2))
    assert ticks(pending, 101, 106) == [102, 103, 104]
    pending.seen(NOTE, GRID, message=Seen("Lamps", 1))
    assert pending, "it saw an older one"
    pending.seen(NOTE, GRID, message=Seen("Lamps", 2))
    assert not pending and not ticks(pending, 108, 200)


def test_who_hurries_says_what_waits_for_its_slow_time_once_and_at_once():
    pending = UnseenReports()
    pending.sent(lamps(1))
    last = ticks(pending, 1, 31)[-1]
    assert not pending.due(last + 1)
    pending.hurry()
    assert pending.due(last + 2)
    assert not ticks(pending, last + 3, last + 3 + OWED_RESEND_FAST_MAX)


def reported(**more: Any) -> tuple[Bench, list[float]]:
    """A panel whose bulbs are switched on and get power later; and the times of its reports."""
    reporting = KINDS["panel"].reporting
    assert reporting is not None
    times: list[float] = []

    def report(state: Any, at: Any) -> Any:
        times.append(at.now)
        return reporting.make(state, at)

    def phase(state: Any, crowd: Any) -> bool:
        return bool(state.version)

    own = msgspec.structs.replace(reporting, make=report, phase=phase, **more)
    kind = msgspec.structs.replace(KINDS["panel"], reporting=own)
    bench = Bench(kinds={**KINDS, "panel": kind})
    bench.send(panel("a"), w.Install(2))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.send(bulbs("a"), w.Granted(1), 0b11, sender=Key("meter/0"))
    bench.after(2)
    return bench, times


RECALL_S = START_S + 60.0


def noting(pursue: Any) -> Kind:
    """A panel with notes."""
    return msgspec.structs.replace(KINDS["panel"], pursue=pursue, recall_s=lambda notes: RECALL_S)


def test_within_a_final_phase_there_is_one_report():
    bench, times = reported()
    assert len(times) == 2 and bench.shard.population.cells[key("note", "a")].heard == 2
    bench, times = reported(final=lambda phase: phase)
    assert len(times) == 1 and bench.shard.reports.next_s is None


def test_a_report_within_a_shard_is_seen_once_its_turn_did_not_fail():
    failing = [True]
    note = KINDS["note"]

    def hear(*args: Any) -> Any:
        if failing:
            raise ValueError("not yet")
        state, message, at = args if len(args) == 3 else (None, *args)
        decide: Any = note.decide if state is not None else note.absent
        return decide[w.Lamps](*args)

    kind = msgspec.structs.replace(
        note, decide={**note.decide, w.Lamps: hear}, absent={**note.absent, w.Lamps: hear}
    )
    bench = Bench(kinds={**KINDS, "note": kind})
    bench.send(panel("a"), w.Install(2))
    bench.send(panel("a"), w.Switch(True))
    bench.send(bulbs("a"), w.Granted(1), 0b11, sender=Key("meter/0"))
    bench.after(0.8)
    assert bench.shard.reports.pending.from_key(panel("a"))
    failing.clear()
    bench.after(3)
    assert not bench.shard.reports.pending
    assert not [each for each in bench.taken() if isinstance(each.message, Seen)]


def test_a_step_without_facts_needs_no_turn():
    def pursue(state: Any, at: Any) -> Any:
        if at.notes == "looked":
            return own(state, at)
        meter = Send(Key("meter/0"), w.Draw(1))
        return Decision(sends=(meter,), notes="looked", because="to tell why")

    own = KINDS["panel"].pursue
    bench = Bench(kinds={**KINDS, "panel": noting(pursue)})
    bench.send(panel("a"), w.Install(2))
    bench.send(panel("a"), w.Switch(True))
    bench.after(1)
    bench.shard.population.notes.clear()
    bench.taken()
    before = bench.shard.delivered
    bench.send(bulbs("a"), w.Granted(1), 0b11, sender=Key("meter/0"))
    bench.rest()
    assert bench.shard.delivered == before + 1
    assert bench.shard.population.notes[panel("a")] == "looked"
    assert bench.shard.turns.alarms.next_s() == RECALL_S, "notes are recalled"
    (sent,) = [each for each in bench.taken() if isinstance(each.message, w.Draw)]
    assert sent.sender == panel("a") and bench.shard.turns.resolver.owed_sends.of(panel("a"))
    told = bench.shard.turns.story.of(panel("a"), None)[-1]
    assert (told.cause, told.because) == ("Pursue", "to tell why")


def test_notes_that_cannot_be_recalled_are_a_failure_of_the_actor():
    def pursue(state: Any, at: Any) -> Any:
        return Decision(notes="looked")

    def broken(notes: Any) -> Any:
        raise ValueError("no time")

    kind = msgspec.structs.replace(noting(pursue), recall_s=broken)
    bench = Bench(kinds={**KINDS, "panel": kind})
    bench.send(panel("a"), w.Install(2))
    bench.rest()
    assert panel("a") not in bench.shard.population.notes
    assert panel("a") in bench.shard.deferred.retrying
