"""Turns of the next round run while one is at the store, and nothing of them leaves before."""

from __future__ import annotations

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.ports import EndedRow, Fenced
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import GATHERS_S_MAX, ROUND_S_MAX
from peloton.runtime.shells.shell_messages import Commit, Mail, RoundLost
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import Key
from tests.shells.stage import Desk
from tests.shells.test_round import CITY, Town, note_in
from tests.toy import messages as w
from tests.toy.kinds import panel


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
    stage.answer((town.house, stage.journal.commit([one])[0]))
    assert first.result(0) == w.Total(1) and not second.done()
    [two] = stage.works()
    assert one.frame is not None and two.frame is not None
    assert two.frame.position == one.frame.position + 1
    stage.answer((town.house, stage.journal.commit([two])[0]))
    assert second.result(0) == w.Total(3)


def test_what_two_frames_hold_back_leaves_with_each_and_in_order():
    town = installed()
    stage = town.stage
    far = city_elsewhere(town)
    switch(town, 0)
    first = stage.works()
    switch(town, 1)
    assert senders(far) == []
    stage.answer((town.house, stage.journal.commit(first)[0]))
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
    stage.answer((town.house, stage.journal.commit(first)[0]))
    assert senders(far) == panels_of(town)[:1]
    second = stage.works()
    stage.region.routes.set_shard(CITY, town.city.ref)
    switch(town, 1)
    stage.answer((town.house, stage.journal.commit(second)[0]))
    works = town.round()
    assert {*works} == {"house", "city"}, "handed over: nothing for the city waits any more"


def test_a_shard_whose_ended_rows_are_being_written_takes_no_turns():
    town = Town()
    stage = town.stage
    note = note_in(town.house)
    stage.ask(town.house, w.Add(1), note)
    town.commit()
    stage.ask(town.house, w.Close(), note)
    while not (works := stage.works())[0].ended:
        stage.answer((town.house, stage.journal.commit(works)[0]))
    assert isinstance(works[0].ended[0], EndedRow)
    late = stage.ask(town.house, w.Add(2), note)
    assert town.house.core is not None and not town.house.core.is_open, "the row would be wrong"
    stage.answer((town.house, stage.journal.commit(works)[0]))
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
    stage.answer((town.house, stage.journal.commit([one])[0]))
    town.commit()
    assert late.result(0) == w.Total(3)


def test_with_a_lost_round_all_is_lost_that_followed_from_it():
    town = installed()
    stage = town.stage
    placer = begun(Desk("placer", stage.driver))
    stage.region.routes.services["placer"] = placer.ref
    stage.round.enter_service(placer.ref)
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
    stage.answer((town.house, stage.journal.commit(first)[0]))
    town.commit()
    assert town.house.core.delivered == before + 2
