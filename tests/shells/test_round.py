"""The rounds of a daemon: what follows from an open frame is committed with it, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import (
    Answer,
    Committed,
    EndedRow,
    Fenced,
    Frame,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)
from peloton.runtime.shells import round as round_
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import (
    ROUND_S_MAX,
    SETTLE,
    UNCLEAR_S_MAX,
)
from peloton.runtime.shells.round_at_store import RoundAtStore
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell_messages import (
    Commit,
    Drain,
    Drop,
    Mail,
    Release,
    RoundLost,
    Settle,
    ShardLost,
    WorkDone,
)
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import Key, Unavailable, key
from tests.shells.stage import NOTE, Desk, Stage
from tests.toy import messages as w
from tests.toy.daemon import panel

LAMPS, METER, CITY = panel("a"), key("meter", 0), ShardId("city", 0)
INSTALL, SWITCH = Envelope(LAMPS, w.Install(2)), Envelope(LAMPS, w.Switch(True))
"""Together they make the bulbs of the panel draw power from the meter."""


def note_in(shell: ShardShell) -> Key:
    """The key of a note of this shard."""
    shard_of = shell._context.sharding.shard_of
    return next(
        name for name in (key("note", at) for at in range(99)) if shard_of(name) == shell.shard
    )


class ShardStub:
    """A shard that keeps its outcomes."""

    shard = CITY

    def __init__(self) -> None:
        self.ref: Any = object()
        self.answers: list[Answer] = []

    def done(self, answer: Answer, *, had_turns: bool) -> None:
        assert had_turns
        self.answers.append(answer)


class Town:
    """A stage with the panels' shard and the city's, and what the journal is to write."""

    def __init__(self, limits: DaemonLimits = DaemonLimits()) -> None:  # noqa: B008
        self.stage = Stage(limits)
        self.house = self.stage.opened(self.stage.context.sharding.shard_of(LAMPS))
        self.city = self.stage.opened(CITY)
        self.stage.give(self.city, Mail([Envelope(METER, w.Build(100))]))
        self.commit()
        self.stage.root.taken()

    def light(self) -> dict[str, Work]:
        """The panel is switched on; the works of the round that follows, by group."""
        self.stage.give(self.house, Mail([INSTALL, SWITCH]))
        return self.round()

    def round(self) -> dict[str, Work]:
        """The one round that the journal was given since the last call."""
        letters = self.stage.committer.taken()
        [commit] = [each for each in letters if isinstance(each, Commit)]
        return {work.shard.group: work for work in commit.works.values()}

    def answer(self, **answers: Answer) -> None:
        """What the journal says of each group."""
        shells = {"house": self.house, "city": self.city}
        self.stage.answer(*((shells[group], answer) for group, answer in answers.items()))

    def commit(self) -> None:
        """The journal writes whatever it is given, until nobody wants more."""
        while letters := self.stage.committer.taken():
            for commit in filter(lambda each: isinstance(each, Commit), letters):
                answers = self.stage.journal.commit([*commit.works.values()])
                done = WorkDone(dict(zip(commit.works, answers, strict=True)))
                self.stage.give(self.stage.round, done)

    def write(self, works: Sequence[Work]) -> None:
        """The journal writes these, and answers."""
        answers = self.stage.journal.commit(works)
        self.answer(**{one.shard.group: it for one, it in zip(works, answers, strict=True)})

    def losses(self) -> dict[str, ShardLost]:
        """Which shards were lost since the last call."""
        letters = self.stage.root.taken()
        return {each.shard.group: each for each in letters if isinstance(each, ShardLost)}

    def lost(self) -> dict[str, str]:
        """The same, and why."""
        return {group: each.text for group, each in self.losses().items()}

    def placer(self) -> Desk:
        """A service that may be told what is not committed yet."""
        desk = begun(Desk("placer", self.stage.driver))
        self.stage.region.routes.services["placer"] = desk.ref
        self.stage.round.enter_service(desk.ref)
        return desk


def test_a_message_to_a_shard_of_the_same_daemon_is_in_the_round_of_its_frame():
    town = Town()
    works = town.light()
    assert {group for group, work in works.items() if work.frame is not None} == {"house", "city"}
    town.answer(**{group: Committed() for group in works})
    assert town.lost() == {}


def test_what_leaves_the_round_waits_until_it_is_durable():
    town = Town()
    stage = town.stage
    far = begun(Desk("far", stage.driver))
    stage.give(town.city, Drop((CITY,)))
    stage.committer.taken()
    stage.region.routes.set_shard(CITY, far.ref)
    works = town.light()
    assert [*works] == ["house"] and far.taken() == []
    town.answer(house=Committed())
    [mail] = far.taken()
    assert {type(envelope.message) for envelope in mail.envelopes} == {w.Draw}


def test_a_message_does_not_overtake_one_that_waits():
    town = Town()
    stage = town.stage
    withheld: dict[Any, None] = {}
    some = [Envelope(METER, w.Draw(1)), Envelope(NOTE, w.Add(1)), Envelope(METER, w.Draw(2))]
    stamp = Stamp(town.house.shard, 1)
    stage.region.routes.set_shard(CITY, None)
    left, _ = stage.region.hand_over(some[:1], stamp, company=(), withheld=withheld)
    assert left == some[:1]
    stage.region.routes.set_shard(CITY, town.city.ref)  # opened in the middle of the round
    company = (town.city.ref, town.house.ref)
    left, receivers = stage.region.hand_over(some[1:], stamp, company=company, withheld=withheld)
    assert left == [some[2]], "nothing overtakes what goes to the same shard"
    assert [*receivers] == [town.house.ref]


def test_a_message_that_waited_in_doubt_is_not_overtaken_by_one_that_need_not_wait():
    town = Town()
    routes, stamp = town.stage.region.routes, Stamp(town.house.shard, 1)
    routes.membership_status = MembershipStatus("m1", True, None, "")
    routes.sure_for_s = lambda: 0.0
    first, second = [Envelope(METER, w.Draw(1))], [Envelope(METER, w.Draw(2))]
    withheld: dict[Any, None] = {}
    assert town.stage.round.hand_over(town.house, first, stamp=stamp, withheld=withheld) == first
    routes.sure_for_s = lambda: 1.0
    assert town.stage.round.hand_over(town.house, second, stamp=stamp, withheld=withheld) == second


def test_of_a_refused_round_nothing_is_left():
    town = Town()
    assert {*town.light()} == {"house", "city"}
    town.answer(house=Fenced("epoch 9 has begun"), city=RoundRefused("house-0 is fenced"))
    assert town.lost() == {"house": "fenced: epoch 9 has begun", "city": "house-0 is fenced"}


def test_a_shard_that_ends_in_an_open_round_takes_those_with_it_that_it_has_told():
    town = Town()
    stage = town.stage
    stage.driver.paused = (town.city, stage.round)
    stage.give(town.house, Mail([INSTALL, SWITCH]))
    assert stage.committer.taken() == [], "the round is open"
    stage.driver.paused = ()
    town.house.failed(RuntimeError("broken"))
    stage.driver.run()
    lost = town.lost()
    assert lost["house"] == "RuntimeError: broken"
    assert "was lost with" in lost["city"] and "broken" in lost["city"]
    assert [each for each in stage.committer.taken() if isinstance(each, Commit)] == []


def test_a_shard_that_has_told_nobody_ends_alone():
    town = Town()
    stage = town.stage
    third = stage.opened(ShardId("house", 1 - town.house.shard.number))
    stage.driver.paused = (stage.round,)
    lost = stage.ask(town.house, w.Add(1), note_in(town.house))
    kept = stage.ask(third, w.Add(1), note_in(third))
    town.house.failed(RuntimeError("broken"))
    stage.driver.paused = ()
    stage.driver.run()
    town.commit()
    assert isinstance(lost.result(0), Unavailable)
    assert kept.result(0) == w.Total(1), "the round goes on without it"


def test_who_was_left_to_the_next_round_is_woken_though_this_one_ends_with_its_only_shard():
    town = Town()
    stage = town.stage
    third = stage.opened(ShardId("house", 1 - town.house.shard.number))
    town.commit()
    stage.ask(town.house, w.Add(1), note_in(town.house))  # at the store from now on
    assert [*town.round()] == ["house"]
    stage.driver.paused = (stage.round,)
    stage.ask(third, w.Add(1), note_in(third))
    stage.ask(town.city, w.Build(1), key("meter", 1))
    stage.driver.after(2 * ROUND_S_MAX)
    later = stage.ask(town.city, w.Build(1), key("meter", 2))
    stage.driver.paused = ()
    for shell in (third, town.city):
        stage.give(shell, Drop((shell.shard,)))
    town.city = stage.opened(CITY)
    again = stage.ask(town.city, w.Build(1), key("meter", 2))
    town.commit()
    stage.give(stage.round, WorkDone({town.house.ref: Committed()}))
    town.commit()
    assert later.done() and again.result(0) == w.Done(1)


def test_turns_come_too_late_for_an_old_round_and_in_time_for_the_next():
    town = Town()
    stage = town.stage
    stage.driver.paused = (stage.round,)
    first = stage.ask(town.house, w.Add(1), note_in(town.house))
    stage.driver.after(2 * ROUND_S_MAX)
    late = stage.ask(town.house, w.Add(2), note_in(town.house))
    stage.driver.paused = ()
    stage.driver.run()
    [work] = stage.works()
    assert work.frame is not None
    town.write([work])
    assert first.result(0) == w.Total(1) and not late.done()
    town.commit()
    assert late.result(0) == w.Total(3)


def test_a_shard_that_cannot_close_its_frame_ends_with_those_that_it_has_told():
    town = Town()

    def broken(**_: Any) -> Any:
        raise ValueError("no frame")

    town.stage.give(town.house, Mail([INSTALL]))
    town.commit()
    assert town.house.core is not None
    town.house.core.close = broken  # type: ignore[method-assign]
    town.stage.give(town.house, Mail([SWITCH]))
    lost = town.lost()
    assert lost["house"] == "ValueError: no frame" and "was lost with" in lost["city"]
    assert town.stage.works() == []


def test_a_shard_that_breaks_after_its_commit_ends_alone():
    town = Town()
    works = town.light()

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("no views")

    assert town.house.core is not None
    town.house.core.committed = broken  # type: ignore[method-assign]
    town.answer(**{group: Committed() for group in works})
    assert town.lost() == {"house": "ValueError: no views"}
    assert not town.stage.round.has(town.city)


def test_shards_beyond_the_size_of_a_round_commit_apart_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(round_, "ROUND_SHARDS_MAX", 1)
    town = Town()
    stage = town.stage
    works = town.light()
    assert [*works] == ["house"], "nothing is handed to the city"
    town.answer(house=stage.journal.commit([*works.values()])[0])
    town.commit()
    stage.give(town.house, Drop((town.house.shard,)))
    stage.ask(town.city, w.Build(1), key("meter", 1))
    town.commit()
    house = stage.opened(town.house.shard)
    stage.give(house, Mail([Envelope(LAMPS, w.Switch(False))]))
    sizes = [len(each.works) for each in stage.committer.taken() if isinstance(each, Commit)]
    assert sizes == [1], "the city has the place now, and the house is apart"
    assert stage.round.has(house)


def test_a_work_without_a_frame_shares_the_fate_of_the_frames():
    known, told = ShardStub(), ShardStub()
    frame = Work(CITY, 1, Frame(1, b""))
    parts = Work(ShardId("house", 0), 1, None, ended=(EndedRow("note", NOTE, 1, b""),))
    shards = {known.ref: known, told.ref: told}
    flight = RoundAtStore(shards, {known.ref: frame, told.ref: parts}, told=())
    flight.answered({told.ref: Committed()})
    assert told.answers == [], "its memory may follow from the frame, which is undecided"
    flight.answered({known.ref: Fenced("epoch 9 has begun")})
    assert [type(each) for each in told.answers] == [RoundRefused]


def test_a_service_that_was_told_what_never_happened_begins_anew():
    town = Town()
    stage = town.stage
    placer = town.placer()

    def tell() -> None:
        stage.driver.paused = (stage.round,)
        stage.ask(town.house, w.Add(1), note_in(town.house))
        mail = [Envelope(key("placer", "any"), w.Add(1))]
        stamp = Stamp(town.house.shard, 1)
        assert stage.round.hand_over(town.house, mail, stamp=stamp, withheld={}) == []
        stage.driver.paused = ()

    tell()
    stage.driver.run()
    town.commit()
    assert [type(each) for each in placer.taken()] == [Mail], "it did happen"
    tell()
    stage.driver.run()
    town.answer(house=Fenced("epoch 9 has begun"))
    assert [type(each) for each in placer.taken()] == [Mail, RoundLost]
    town.house = stage.opened(town.house.shard)
    tell()
    town.house.failed(RuntimeError("broken"))
    stage.driver.run()
    assert [type(each) for each in placer.taken()] == [Mail, RoundLost]
    assert "city" not in town.lost(), "who told a service has told no shard"


def test_who_waits_for_frames_that_nobody_can_settle_is_given_up():
    town = Town(DaemonLimits(round_passes_max=1))
    town.stage.driver.paused = (town.city,)
    assert [*town.light()] == ["house"]
    town.answer(house=Unclear("no answer"))
    town.stage.give(town.house, Drop((town.house.shard,)))
    assert "settled" in town.lost()["city"]


def test_a_round_is_closed_though_there_is_always_mail():
    town = Town(DaemonLimits(round_passes_max=1))
    works = town.light()
    assert [*works] == ["house"], "the city had its message, and no turn yet"
    town.commit()
    assert town.lost() == {}
    assert len(town.stage.claim(CITY).frames) > 0, "it had its turn in a later round"


def test_who_was_told_something_waits_for_its_round_and_is_lost_with_it():
    town = Town(DaemonLimits(round_passes_max=1))
    assert [*town.light()] == ["house"]
    town.answer(house=Fenced("epoch 9 has begun"))
    lost = town.lost()
    assert {*lost} == {"house", "city"}, "it holds a message that follows from nothing"


def test_a_drain_in_two_rounds_is_one_release():
    town = Town()
    stage = town.stage
    stage.ask(town.house, w.Add(1), note_in(town.house))
    first = stage.works()
    stage.ask(town.house, w.Add(2), note_in(town.house))
    stage.give(town.house, Drain())
    town.write(first)
    second = stage.works()
    assert len(second) == 1, "its open frame is still committed"
    town.write(second)
    assert [type(each) for each in stage.committer.taken()] == [Release]


def test_a_drain_waits_for_the_round():
    town = Town()
    stage = town.stage
    works = town.light()
    stage.give(town.house, Drain())
    assert stage.committer.taken() == []
    town.answer(**{group: Committed() for group in works})
    letters = stage.committer.taken()
    assert [type(each) for each in letters if isinstance(each, Release)] == [Release]


def test_an_unclear_round_is_settled_once_for_all_and_blocks_the_next():
    town = Town()
    stage = town.stage
    works = town.light()
    town.answer(**{group: Unclear("no answer") for group in works})
    later = stage.ask(town.house, w.Add(1))
    stage.driver.after(SETTLE.first_s)
    [settle] = stage.committer.taken()
    assert isinstance(settle, Settle) and {*settle.shards.values()} == {
        town.house.shard,
        town.city.shard,
    }
    stage.driver.after(10 * SETTLE.first_s)
    assert stage.committer.taken() == [], "once per answer"
    town.answer(**{group: Committed() for group in works})
    assert not later.done()
    assert town.round(), "what came meanwhile is the next round"


def test_a_round_that_stays_unclear_is_given_up_by_all():
    town = Town()
    stage = town.stage
    works = town.light()
    town.answer(**{group: Unclear("no answer") for group in works})
    stage.driver.after(UNCLEAR_S_MAX)
    assert [type(each) for each in stage.committer.taken()] == [Settle]
    town.answer(**{group: Unclear("no answer") for group in works})
    lost = [each for each in stage.root.taken() if isinstance(each, ShardLost)]
    assert {each.shard.group for each in lost} == {"house", "city"}
    assert all(each.gave_up for each in lost)


def test_a_late_answer_reaches_no_successor():
    town = Town()
    stage = town.stage
    works = town.light()
    answers = stage.journal.commit([*works.values()])
    stage.give(town.city, Drop((CITY,)))
    old = town.city
    town.city = stage.opened(CITY)
    asked = stage.ask(town.city, w.Build(1), key("meter", 1))
    assert stage.works() == [], "the frame before it is undecided"
    told = dict(zip(works, answers, strict=True))
    stage.answer((old, told["city"]), (town.house, told["house"]))
    assert town.round()["city"].epoch == 2 and not asked.done(), "its own work is not written yet"
