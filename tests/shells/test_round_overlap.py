"""Turns of the next round run while one is at the store, and nothing of them leaves before."""

from __future__ import annotations

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import Fenced, Unclear, Work
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import GATHERS_S_MAX, ROUND_S_MAX, UNCLEAR_S_MAX
from peloton.runtime.shells.shell_messages import (
    Commit,
    Drain,
    Mail,
    Release,
    RoundLost,
)
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import Key, key
from tests.shells.stage import Desk
from tests.shells.test_round import CITY, Town, note_in
from tests.toy import messages as w
from tests.toy.daemon import panel


def senders(desk: Desk) -> list[Key]:
    """Of the messages that another daemon has got since the last call: whose bulbs they are of."""
    mails = [each for each in desk.taken() if isinstance(each, Mail)]
    return [panel(str(e.sender).split("/")[1]) for mail in mails for e in mail.envelopes]


def city_elsewhere(town: Town) -> Desk:
    """The city's shard moves to another daemon, whose mail the desk keeps."""
    far = begun(Desk("far", town.stage.driver))
    town.stage.region.routes.set_shard(CITY, far.ref)
    return far


def panels_of(town: Town) -> list[Key]:
    """Three panels of the house."""
    shard_of = town.stage.context.sharding.shard_of
    names = (panel(f"p{at}") for at in range(99))
    return [name for name in names if shard_of(name) == town.house.shard][:3]


def switch(town: Town, number: int) -> None:
    """One of the panels asks the city for power."""
    town.stage.give(town.house, Mail([Envelope(panels_of(town)[number], w.Switch(True))]))


def installed() -> Town:
    """A town whose panels have their bulbs, in the dark."""
    town = Town()
    install = [Envelope(each, w.Install(2)) for each in panels_of(town)]
    town.stage.give(town.house, Mail(install))
    town.commit()
    return town


def test_turns_run_while_a_frame_is_at_the_store_and_are_acknowledged_by_their_own():
    town = Town()
    stage = town.stage
    first = stage.ask(town.house, w.Add(1), note_in(town.house))
    [one] = stage.works()
    second = stage.ask(town.house, w.Add(2), note_in(town.house))
    assert town.house.core is not None and town.house.core.is_open
    assert stage.works() == [], "one frame at a time"
    town.write([one])
    assert first.result(0) == w.Total(1) and not second.done()
    [two] = stage.works()
    assert one.frame is not None and two.frame is not None
    assert two.frame.position == one.frame.position + 1
    town.write([two])
    assert second.result(0) == w.Total(3)


def test_what_two_frames_hold_back_leaves_with_each_and_in_order():
    town = installed()
    stage = town.stage
    far = city_elsewhere(town)
    switch(town, 0)
    first = stage.works()
    switch(town, 1)
    assert senders(far) == []
    town.write(first)
    assert senders(far) == panels_of(town)[:1]
    town.commit()
    assert senders(far) == panels_of(town)[1:2]


def test_a_shard_that_is_never_idle_holds_nothing_back_for_good():
    town = installed()
    stage = town.stage
    far = city_elsewhere(town)
    switch(town, 0)
    first = stage.works()
    stage.ask(town.house, w.Add(1), note_in(town.house))  # its next frame is open from now on
    town.write(first)
    assert senders(far) == panels_of(town)[:1]
    second = stage.works()
    stage.region.routes.set_shard(CITY, town.city.ref)
    switch(town, 1)
    town.write(second)
    works = town.round()
    assert {*works} == {"house", "city"}, "handed over: nothing for the city waits any more"


def test_a_shard_whose_ended_rows_are_being_written_takes_no_turns():
    town = Town()
    stage = town.stage
    works = ended_row_in_flight(town)
    late = stage.ask(town.house, w.Add(2), note_in(town.house))
    assert town.house.core is not None and not town.house.core.is_open, "the row would be wrong"
    town.write(works)
    town.commit()
    assert late.done()


def test_more_mail_than_a_frame_takes_goes_on_during_the_commit():
    town = Town(DaemonLimits(round_passes_max=1))
    stage = town.stage
    stage.driver.paused = (stage.round,)
    stage.ask(town.house, w.Add(1), note_in(town.house))
    assert town.house.core is not None
    town.house.core.is_full = True  # as after a frame with all the bytes that it takes
    late = stage.ask(town.house, w.Add(2), note_in(town.house))
    stage.driver.paused = ()
    stage.driver.run()
    [one] = stage.works()
    assert town.house.core.is_open, "nobody has to be told again"
    town.write([one])
    town.commit()
    assert late.result(0) == w.Total(3)


def test_with_a_lost_round_all_is_lost_that_followed_from_it():
    town = installed()
    stage = town.stage
    placer = town.placer()
    stage.ask(town.house, w.Add(1), note_in(town.house))
    stage.works()
    switch(town, 0)  # the open round: the city has its message already
    assert town.city.core is not None and town.city.core.is_open
    stage.answer((town.house, Fenced("epoch 9 has begun")))
    assert {*town.lost()} == {"house", "city"}
    assert [each for each in stage.committer.taken() if isinstance(each, Commit)] == []
    assert not any(isinstance(each, RoundLost) for each in placer.taken()), "it was told nothing"


def test_a_round_that_waits_for_the_store_gathers_for_a_while_and_no_longer():
    town = Town()
    stage = town.stage
    stage.ask(town.house, w.Add(1), note_in(town.house))
    first = stage.works()
    stage.ask(town.house, w.Add(2), note_in(town.house))
    stage.driver.after(2 * ROUND_S_MAX)
    assert town.house.core is not None
    before = town.house.core.delivered
    stage.ask(town.house, w.Add(3), note_in(town.house))
    assert town.house.core.delivered == before + 1, "the store is slower than a round is long"
    stage.driver.after(GATHERS_S_MAX)
    stage.ask(town.house, w.Add(4), note_in(town.house))
    assert town.house.core.delivered == before + 1, "its time is that of its first turn"
    town.write(first)
    town.commit()
    assert town.house.core.delivered == before + 2


def ended_row_in_flight(town: Town) -> list[Work]:
    """A note of the house has ended, and its row is at the store."""
    stage, note = town.stage, note_in(town.house)
    stage.ask(town.house, w.Add(1), note)
    town.commit()
    stage.ask(town.house, w.Close(), note)
    while not (works := stage.works())[0].ended:
        town.write(works)
    return works


def test_a_shard_whose_rows_are_unclear_holds_up_nobody_though_it_is_told_something():
    town = Town()
    stage = town.stage
    works = ended_row_in_flight(town)
    stage.driver.paused = (stage.round,)
    asked = stage.ask(town.city, w.Build(1), key("meter", 1))
    told, stamp = [Envelope(note_in(town.house), w.Add(1))], Stamp(CITY, 1)
    assert stage.round.hand_over(town.city, told, stamp=stamp, withheld={}) == []
    stage.driver.paused = ()
    stage.answer((town.house, Unclear("no answer")))
    town.commit()
    assert asked.result(0) == w.Done(1)
    assert stage.round.has(town.house) and town.house.core is not None
    before = town.house.core.delivered
    town.write(works)
    town.commit()
    assert town.house.core.delivered > before, "what it was told meanwhile"


def test_a_drain_that_waits_for_rows_and_for_a_round_that_told_it_something_is_one_release():
    town = Town()
    stage = town.stage
    works = ended_row_in_flight(town)
    stage.driver.paused = (stage.round,)
    stage.ask(town.city, w.Build(1), key("meter", 1))
    told, stamp = [Envelope(note_in(town.house), w.Add(1))], Stamp(CITY, 1)
    stage.round.hand_over(town.city, told, stamp=stamp, withheld={})
    stage.driver.paused = ()
    stage.answer((town.house, Unclear("no answer")))
    stage.give(town.house, Drain())
    [other] = stage.works()
    town.write(works)
    assert stage.committer.taken() == [], "it holds a message of a round that is undecided"
    town.write([other])
    assert [type(each) for each in stage.committer.taken()] == [Release]


def test_what_was_held_back_in_doubt_does_not_hold_back_the_frames_after_it():
    town = installed()
    stage = town.stage
    routes = stage.region.routes
    routes.membership_status = MembershipStatus("m1", True, None, "")
    routes.sure_for_s = lambda: 0.0
    switch(town, 0)
    routes.sure_for_s = lambda: 1.0
    first = stage.works()
    switch(town, 1)  # this frame has something for the city, too, as each after it has
    assert town.city.core is not None
    before = town.city.core.delivered
    town.write(first)
    assert {*town.round()} == {"house", "city"}
    assert town.city.core.delivered == before + 3, "what waited is told, and the other handed over"


def both_in_flight(town: Town) -> dict[str, Work]:
    """A round of the house and the city is at the store; in the next the house tells the city."""
    stage = town.stage
    stage.driver.paused = (stage.round,)
    stage.ask(town.house, w.Add(1), note_in(town.house))
    stage.ask(town.city, w.Build(1), key("meter", 1))
    stage.driver.paused = ()
    stage.driver.run()
    works = town.round()
    switch(town, 0)
    assert {*works} == {"house", "city"} and town.city.core is not None and town.city.core.is_open
    return works


def test_shards_that_are_unclear_for_long_are_all_given_up_for_that():
    town = installed()
    stage = town.stage
    works = both_in_flight(town)
    town.answer(**{group: Unclear("no answer") for group in works})
    while not (gone := town.losses()):
        stage.driver.after(UNCLEAR_S_MAX / 4)
        if stage.committer.taken():
            town.answer(**{group: Unclear("no answer") for group in works})
    assert {group: each.gave_up for group, each in gone.items()} == {"house": True, "city": True}
    outages = stage.region.status._outages.values()
    assert not any(any(outage.shards.values()) for outage in outages), "nobody is left to mend it"


def test_of_two_shards_that_are_fenced_each_is_told_so():
    town = installed()
    works = both_in_flight(town)
    town.answer(**{group: Fenced("epoch 9 has begun") for group in works})
    assert {group: each.by_another for group, each in town.losses().items()} == {
        "house": False,
        "city": False,
    }


def test_a_service_is_told_of_a_lost_round_whoever_of_it_has_told_it_something():
    town = installed()
    stage = town.stage
    placer = town.placer()
    stage.ask(town.house, w.Add(1), note_in(town.house))
    stage.works()
    switch(town, 0)
    mail = [Envelope(key("placer", "any"), w.Add(1))]
    assert stage.round.hand_over(town.city, mail, stamp=Stamp(CITY, 1), withheld={}) == []
    stage.driver.run()
    stage.answer((town.house, Fenced("epoch 9 has begun")))
    assert {*town.lost()} == {"house", "city"}
    assert [type(each) for each in placer.taken()] == [Mail, RoundLost]


def test_a_shard_with_rows_in_each_frame_has_turns_in_each_round_of_a_slow_store():
    town = Town()
    stage = town.stage
    shard_of = stage.context.sharding.shard_of
    every = (key("note", f"n{at}") for at in range(999))
    notes = [name for name in every if shard_of(name) == town.house.shard][:20]
    stage.give(town.house, Mail([Envelope(each, w.Add(1)) for each in notes]))
    town.commit()
    stage.ask(town.house, w.Close(), notes[0])
    works, frames = stage.works(), 0
    for at, note in enumerate(notes[1:]):
        stage.ask(town.city, w.Build(1), key("meter", at + 1))
        stage.ask(town.house, w.Close(), note)
        stage.driver.after(3 * ROUND_S_MAX)
        town.write(works)
        works = stage.works()
        frames += any(work.shard.group == "house" and work.frame is not None for work in works)
    assert frames == len(notes) - 1
