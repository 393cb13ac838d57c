"""Rounds whose outcome is not known, or whose daemon may be overtaken: who waits for what."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import Committed, Unclear
from peloton.runtime.shells import round as round_
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import SETTLE
from peloton.runtime.shells.shard import IN_DOUBT
from peloton.runtime.shells.shell_messages import Drop, Mail, Settle
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import Unavailable, key
from tests.shells.stage import Desk
from tests.shells.test_round import CITY, METER, Town, note_in
from tests.toy import messages as w


def test_a_shard_that_waits_for_its_own_answer_closes_no_second_frame() -> None:
    """The frames of its round are committed, as the answer to another shard shows."""
    town = Town()
    works = town.light()
    town.answer(house=Committed(), city=Unclear("no answer"))
    asked = town.stage.ask(town.city, w.Build(1), key("meter", 1))
    assert town.stage.works() == [], "two frames of one shard would be at the store"
    town.answer(city=town.stage.journal.commit([*works.values()])[0])
    town.commit()
    assert asked.result(0) == w.Done(1)


def test_a_round_is_closed_after_the_one_before_it_is_decided() -> None:
    town = Town()
    stage = town.stage
    stage.ask(town.house, w.Add(1), note_in(town.house))
    first = town.round()
    asked = stage.ask(town.city, w.Build(1), METER)  # it is there, and the answer needs no frame
    assert [*first] == ["house"] and not asked.done()
    town.answer(house=stage.journal.commit([*first.values()])[0])
    assert asked.result(0) == w.Done(1)


def test_each_shard_is_settled_once_whenever_its_answer_came() -> None:
    """A second question would find nothing pending, which reads as a loss."""
    town = Town()
    town.light()
    town.answer(house=Unclear("no answer"))
    town.stage.driver.after(SETTLE.first_s)
    [first] = town.stage.committer.taken()
    town.answer(city=Unclear("no answer"))
    town.stage.driver.after(10 * SETTLE.first_s)
    [second] = town.stage.committer.taken()
    assert isinstance(first, Settle) and isinstance(second, Settle)
    assert [*first.shards.values()] == [town.house.shard]
    assert [*second.shards.values()] == [CITY]


def test_who_waits_for_a_shard_that_ended_waits_for_its_answer() -> None:
    """Its frame is at the store, and no answer was unclear: it may well be committed."""
    town = Town(DaemonLimits(round_passes_max=1))
    stage = town.stage
    stage.driver.paused = (town.city,)
    works = town.light()
    assert [*works] == ["house"]
    ended = town.house
    stage.give(ended, Drop((ended.shard,)))
    stage.driver.paused = ()
    stage.driver.after(SETTLE.first_s)
    assert town.lost() == {}
    stage.answer((ended, stage.journal.commit([*works.values()])[0]))
    town.commit()
    assert town.lost() == {} and not stage.round.has(town.city)


def test_a_full_frame_is_closed_though_others_have_mail() -> None:
    town = Town()
    stage = town.stage
    waiting = begun(Desk("waiting", stage.driver))
    stage.driver.paused = (waiting, stage.round)
    stage.give(waiting, "mail that makes the driver busy")
    stage.ask(town.house, w.Add(1), note_in(town.house))
    stage.round.join(town.house, is_full=True)
    stage.driver.paused = (waiting,)
    stage.driver.run()
    assert [*town.round()] == ["house"]
    assert stage.round.cut_short == 0, "no time or pass was lost on it"


def test_a_round_is_closed_however_long_others_have_mail() -> None:
    town = Town(DaemonLimits(round_passes_max=5))
    stage = town.stage
    waiting = begun(Desk("waiting", stage.driver))
    stage.driver.paused = (waiting, stage.round)
    stage.give(waiting, "mail that makes the driver busy")
    stage.ask(town.house, w.Add(1), note_in(town.house))
    wake, woken = stage.round.wake_soon, [0]

    def bounded() -> None:
        woken[0] += 1
        assert woken[0] < 100, "it goes on for ever"
        wake()

    stage.round.wake_soon = bounded  # type: ignore[method-assign]
    stage.driver.paused = (waiting,)
    stage.driver.run()
    assert [*town.round()] == ["house"] and stage.round.cut_short == 1


def test_who_gets_the_place_of_a_shard_that_left_hands_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(round_, "ROUND_SHARDS_MAX", 1)
    town = Town()
    stage = town.stage
    town.placer()
    told = [Envelope(key("placer", "any"), w.Add(1))]
    stamp = Stamp(CITY, 1)
    assert stage.round.hand_over(town.city, told, stamp=stamp, withheld={}) == told
    stage.give(town.house, Drop((town.house.shard,)))
    stage.ask(town.city, w.Build(1), key("meter", 1))
    town.commit()
    stage.driver.paused = (stage.round,)
    stage.ask(town.city, w.Build(1), key("meter", 2))
    assert stage.round.hand_over(town.city, told, stamp=stamp, withheld={}) == []


# ---- a session in doubt ----


def doubting(town: Town) -> None:
    routes = town.stage.region.routes
    routes.membership_status = MembershipStatus("m1", True, None, "")
    routes.sure_for_s = lambda: 0.0


def test_in_doubt_a_round_without_a_frame_proves_nothing() -> None:
    """The refusal of a command: it changed nothing, and another owner may know better."""
    town = Town()
    doubting(town)
    answer = town.stage.ask(town.house, w.Close(), note_in(town.house))
    assert town.stage.works() == []
    assert answer.result(0) == Unavailable(IN_DOUBT)


def test_in_doubt_a_commit_proves_that_its_answers_are_true() -> None:
    town = Town()
    doubting(town)
    answer = town.stage.ask(town.house, w.Add(1), note_in(town.house))
    town.commit()
    assert answer.result(0) == w.Total(1)


def test_in_doubt_no_query_is_answered_as_current() -> None:
    town = Town()
    note = note_in(town.house)
    town.stage.ask(town.house, w.Add(1), note)
    town.commit()

    def shown() -> Any:
        answer: Future[Any] = Future()
        town.stage.give(town.house, Mail([Envelope(note, w.Show(), reply_to=answer)]))
        return answer.result(0)

    assert shown() == w.Total(1)
    doubting(town)
    assert shown() == Unavailable(IN_DOUBT)


def test_in_doubt_nothing_is_held_back_of_which_messages_leave() -> None:
    town = Town()
    withheld: list[bool] = []
    assert town.house.core is not None
    close = town.house.core.close

    def noted(*, may_withhold: bool) -> Any:
        withheld.append(may_withhold)
        return close(may_withhold=may_withhold)

    town.house.core.close = noted  # type: ignore[method-assign]
    town.stage.ask(town.house, w.Add(1), note_in(town.house))
    town.commit()
    doubting(town)
    town.stage.ask(town.house, w.Add(1), note_in(town.house))
    town.commit()
    assert withheld[0] and not withheld[-1]
