"""The rounds of a daemon: what follows from an open frame is committed with it, or not at all."""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.ports import (
    Answer,
    Committed,
    Fenced,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import SETTLE_FIRST_S, UNCLEAR_S_MAX
from peloton.runtime.shells.shell_messages import (
    Commit,
    Drain,
    Drop,
    Mail,
    Release,
    Settle,
    ShardLost,
    WorkDone,
)
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import key
from tests.shells.stage import NOTE, Desk, Stage
from tests.toy import messages as w
from tests.toy.kinds import panel

LAMPS, METER, CITY = panel("a"), key("meter", 0), ShardId("city", 0)
INSTALL, SWITCH = Envelope(LAMPS, w.Install(2)), Envelope(LAMPS, w.Switch(True))
"""Together they make the bulbs of the panel draw power from the meter."""


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
            for commit in letters:
                answers = self.stage.journal.commit([*commit.works.values()])
                done = WorkDone(dict(zip(commit.works, answers, strict=True)))
                self.stage.give(self.stage.round, done)

    def lost(self) -> dict[str, str]:
        """Which shards were lost since the last call, and why."""
        letters = self.stage.root.taken()
        return {each.shard.group: each.text for each in letters if isinstance(each, ShardLost)}


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
    region = town.stage.region
    held: dict[Any, None] = {}
    some = [Envelope(METER, w.Draw(1)), Envelope(NOTE, w.Add(1)), Envelope(METER, w.Draw(2))]
    first, others, _ = region.part(some[:1], company=(), held=held)
    assert (first, others) == ([], some[:1])
    company = (town.city.ref, town.house.ref)
    first, others, receivers = region.part(some[1:], company=company, held=held)
    assert (first, others) == ([some[1]], [some[2]]), "nothing overtakes on the same route"
    assert [*receivers] == [town.house.ref]


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
    town.house.failed(RuntimeError("broken"))
    town.stage.driver.run()
    assert [*town.lost()] == ["house"]


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
    stage.driver.after(SETTLE_FIRST_S)
    [settle] = stage.committer.taken()
    assert isinstance(settle, Settle) and {*settle.shards.values()} == {
        town.house.shard,
        town.city.shard,
    }
    stage.driver.after(10 * SETTLE_FIRST_S)
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
