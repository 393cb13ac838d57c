"""Queries: what they show is safe, all that was acknowledged is in it, and none costs a frame."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from peloton.runtime.core.entities.passivation import COLD_AFTER_S, COLD_CHECK_S
from peloton.runtime.core.reading.inspection import shard_key
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.core.reading.views import Views
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import Fenced
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell_messages import Drain, Mail
from peloton.runtime.vocabulary import Key, Unavailable
from tests.shells.stage import NOTE, Stage
from tests.toy import messages as w
from tests.toy.daemon import panel

PANEL = panel("x")


def commit(stage: Stage, shell: ShardShell) -> None:
    """What the shard wants written is written."""
    [answer] = stage.journal.commit(stage.works())
    stage.answer((shell, answer))


def done(stage: Stage, shell: ShardShell, message: Any, to: Key = NOTE) -> Any:
    """A command and its frame; the acknowledgement."""
    answer = stage.ask(shell, message, to)
    commit(stage, shell)
    return answer.result(0)


def total(stage: Stage) -> Any:
    """What a reader gets at once: no shell runs meanwhile."""
    return stage.region.ask(NOTE, w.Show()).result(0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def shell(stage: Stage) -> ShardShell:
    """A shard with a note of total 1."""
    shell = stage.opened()
    done(stage, shell, w.Add(1))
    return shell


def test_a_read_shows_what_is_safe_and_all_that_was_acknowledged(stage: Stage, shell: ShardShell):
    answer = stage.ask(shell, w.Add(2))
    assert total(stage) == w.Total(1), "the frame is in flight"
    read: list[Any] = []
    answer.add_done_callback(lambda _: read.append(total(stage)))
    commit(stage, shell)
    assert answer.result(0) == w.Total(3)
    assert read == [w.Total(3)], "whoever hears the acknowledgement reads what it says"
    assert stage.committer.taken() == [], "a read costs no frame"


def test_a_frame_that_is_fenced_is_never_read(stage: Stage, shell: ShardShell):
    answer = stage.ask(shell, w.Add(2))
    stage.answer((shell, Fenced("a younger owner")))
    assert isinstance(answer.result(0), Unavailable)
    assert isinstance(total(stage), Unavailable)
    assert stage.region.read(NOTE, w.Show()) is None


def test_a_shard_that_drains_is_read_no_more(stage: Stage, shell: ShardShell):
    stage.give(shell, Drain())
    assert stage.region.read(NOTE, w.Show()) is None, "the next owner may change it"


def test_a_shard_is_read_again_where_it_recovered(stage: Stage, shell: ShardShell):
    stage.answer((shell, Fenced("")))  # of no work: nothing
    stage.give(shell, Drain())
    stage.committer.taken()
    stage.opened()
    assert total(stage) == w.Total(1)


def test_nothing_is_read_while_the_session_is_in_doubt(stage: Stage, shell: ShardShell):
    routes = stage.region.routes
    routes.membership_status = MembershipStatus("m1", True, None, "")
    assert total(stage) == w.Total(1)
    routes.sure_for_s = lambda: 0.0
    assert stage.region.read(NOTE, w.Show()) is None
    assert isinstance(total(stage), Unavailable)


def test_what_was_deleted_is_not_read(stage: Stage, shell: ShardShell):
    stage.ask(shell, w.Forget())
    assert total(stage) == w.Total(1)
    commit(stage, shell)
    assert stage.region.read(NOTE, w.Show()) is None


def test_a_cold_state_is_kept_once_it_was_read_and_until_it_changes(
    stage: Stage, shell: ShardShell
):
    stage.driver.after(COLD_AFTER_S + COLD_CHECK_S)
    assert NOTE in shell.core.population.cells.cold
    assert stage.region.read(NOTE, w.Show()) is None, "it would hold all states in memory"
    answer = stage.region.ask(NOTE, w.Show())
    stage.driver.run()
    assert answer.result(0) == total(stage) == w.Total(1)
    assert NOTE in shell.core.population.cells.cold
    done(stage, shell, w.Add(2))
    assert total(stage) == w.Total(3)


# ---- queries that only the shard can answer ----


def ask(stage: Stage, to: Key) -> Future[Any]:
    answer = stage.region.ask(to, w.Show())
    stage.driver.run()
    return answer


@pytest.fixture
def lamps(stage: Stage) -> ShardShell:
    """A shard with two panels, whose queries show their bulbs."""
    shell = stage.opened(stage.context.sharding.shard_of(PANEL))
    stage.give(shell, Mail([Envelope(PANEL, w.Install(2))]))
    commit(stage, shell)
    return shell


def test_a_query_of_what_is_in_flight_waits_for_that_frame_and_for_the_next_that_changes_it(
    stage: Stage, lamps: ShardShell
):
    stage.give(lamps, Mail([Envelope(PANEL, w.Switch(True))]))
    shown = ask(stage, PANEL)
    assert not shown.done(), "it would show what is not safe"
    commit(stage, lamps)
    assert shown.result(0) == 0, "no bulb has power yet"
    stage.give(lamps, Mail([Envelope(PANEL, w.Switch(False))]))
    shown = ask(stage, PANEL)
    stage.give(lamps, Mail([Envelope(PANEL, w.Switch(True))]))
    commit(stage, lamps)
    assert not shown.done(), "the turns of the next frame have changed it again"
    commit(stage, lamps)
    assert shown.result(0) == 0


def test_a_query_of_anything_else_does_not_wait(stage: Stage, lamps: ShardShell):
    other = next(
        name
        for name in (panel(f"y{number}") for number in range(100))
        if stage.context.sharding.shard_of(name) == lamps.shard
    )
    stage.give(lamps, Mail([Envelope(other, w.Install(1))]))
    assert ask(stage, PANEL).result(0) == 0
    commit(stage, lamps)
    assert ask(stage, other).result(0) == 0
    assert stage.committer.taken() == [], "neither cost a frame"


def test_a_query_that_waits_for_a_frame_is_answered_when_the_shard_is_lost(
    stage: Stage, lamps: ShardShell
):
    stage.give(lamps, Mail([Envelope(PANEL, w.Switch(True))]))
    shown = ask(stage, PANEL)
    stage.answer((lamps, Fenced("a younger owner")))
    assert isinstance(shown.result(0), Unavailable)


# ---- listings ----


def listed(stage: Stage) -> Any:
    found = stage.region.ask(shard_key(stage.shard), ListViews("note")).result(0)
    assert isinstance(found, Listed)
    return found.items


def test_a_listing_shows_what_is_safe(stage: Stage, shell: ShardShell):
    stage.ask(shell, w.Add(2))
    assert listed(stage) == ((NOTE, 1),)
    commit(stage, shell)
    assert listed(stage) == ((NOTE, 3),)


class Racing:
    """A summary during whose reading a frame is committed."""

    def __init__(self, views: Views) -> None:
        self.views = views

    @property
    def name(self) -> str:
        views = self.views
        views._next = {Key("note/b"): (Key("note/b"), 1)}
        views.commit()
        return ""


def test_a_listing_of_two_frames_is_left_to_the_shard():
    views = Views()
    views._next = {Key("note/a"): Racing(views)}
    views.commit()
    query = ListViews("note", tests=(), order=(), limit=0)
    assert views.read(query) is not None, "nothing changed"
    racing = ListViews("note", tally=("name",), limit=0)
    assert views.read(racing) is None
