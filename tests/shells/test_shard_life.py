"""The life of a shard's shell: nothing leaves before its frame is safe, whatever ends it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import Answer, Committed, Fenced, Frame, ShardId, Unclear, Work
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.round import SETTLE, UNCLEAR_S_MAX
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    Closed,
    Drain,
    Drop,
    DropClaim,
    Mail,
    Opened,
    Release,
    Released,
    Settle,
    ShardLost,
)
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import ShardDamaged, Unavailable, key
from tests.shells.stage import NOTE, Desk, Stage
from tests.toy import messages as w
from tests.toy.daemon import panel
from tests.toy.hooked_rows import AnswerLost, StoreCall


def commit(stage: Stage, *some: Work) -> Answer:
    """What the real journal says to it."""
    [answer] = stage.journal.commit(some)
    return answer


def test_a_shard_from_its_claim_to_its_release():
    stage = Stage()
    shell = stage.shell()
    assert stage.reader.taken() == [Claim(stage.shard, shell.ref)]

    first = stage.ask(shell, w.Add(1))
    assert stage.works() == [], "nothing is decided before the state is known"
    stage.give(shell, stage.claim(stage.shard))
    assert stage.root.taken() == [Opened(stage.shard)]

    [work] = stage.works()
    assert work.frame is not None and work.frame.position == 1
    second, third = stage.ask(shell, w.Add(2)), stage.ask(shell, w.Add(3))
    assert stage.works() == [], "one frame is in flight, and the next gathers"
    assert not first.done() and not second.done()

    stage.answer((shell, commit(stage, work)))
    assert first.result(0) == w.Total(1)
    [work] = stage.works()
    assert work.frame is not None and work.frame.position == 2
    assert not second.done() and not third.done()

    stage.give(shell, Drain())
    late = stage.ask(shell, w.Add(4))
    assert isinstance(late.result(0), Unavailable), "from now on nothing is begun"
    assert stage.committer.taken() == [], "what is in flight is finished first"

    stage.answer((shell, commit(stage, work)))
    assert (second.result(0), third.result(0)) == (w.Total(3), w.Total(6))
    assert stage.committer.taken() == [Release(stage.shard, work.epoch, shell.ref)]
    assert stage.root.taken() == [], "the shard is ours until the store was told"

    stage.give(shell, Released())
    assert stage.root.taken() == [Closed(stage.shard)]
    assert shell.actor_stopped.is_set()
    assert isinstance(stage.region.ask(NOTE, w.Add(5)).result(0), Unavailable)


def test_a_shard_whose_claim_proves_too_low_is_lost_and_may_be_claimed_again():
    stage = Stage()
    shell = stage.opened()
    asked = stage.ask(shell, w.Add(1))
    [work] = stage.works()
    stage.give(shell, ClaimRefused("epoch 7 was obeyed before"))
    assert stage.root.taken() == [ShardLost(stage.shard, "epoch 7 was obeyed before")]
    assert isinstance(asked.result(0), Unavailable), "what is in flight is unclear"
    stage.answer((shell, commit(stage, work)))
    assert len(stage.claim(stage.shard).frames) == 1, "the next owner finds it"


def test_a_shard_whose_tail_was_scattered_makes_a_checkpoint_with_its_first_frame():
    stage = Stage()
    shell = stage.shell()
    taken = stage.claim(stage.shard)
    stage.ask(shell, w.Add(1))
    stage.give(shell, taken._replace(claimed=replace(taken.claimed, scattered=True)))
    [work] = stage.works()
    stage.answer((shell, commit(stage, work)))
    stage.driver.after(1.0)
    [work] = stage.works()
    assert work.frame is None and work.parts and work.parts[0].position == 1


def test_what_is_sent_to_another_shard_waits_until_its_frame_is_safe():
    stage = Stage()
    lamps = panel("a")
    shell = stage.opened(stage.context.sharding.shard_of(lamps))
    city = begun(Desk("city", stage.driver))
    stage.region.routes.set_shard(ShardId("city", 0), city.ref)

    stage.give(shell, Mail([Envelope(lamps, w.Install(2)), Envelope(lamps, w.Switch(True))]))
    [work] = stage.works()
    assert city.taken() == []
    stage.answer((shell, commit(stage, work)))
    [mail] = city.taken()
    assert [type(envelope.message) for envelope in mail.envelopes] == [w.Draw]
    assert mail.stamp == Stamp(shell.shard, work.epoch)


def test_a_drain_while_the_shard_recovers_gives_the_claim_back():
    stage = Stage()
    shell = stage.shell()
    waiting = stage.ask(shell, w.Add(1))
    stage.give(shell, Drain())
    taken = stage.claim(stage.shard)
    stage.give(shell, taken)
    assert stage.committer.taken() == [Release(stage.shard, taken.claimed.epoch, shell.ref)]
    stage.give(shell, Released())
    assert stage.root.taken() == [Closed(stage.shard)], "it never opened"
    assert isinstance(waiting.result(0), Unavailable)


def test_a_drain_of_an_idle_shard_releases_it_at_once():
    stage = Stage()
    shell = stage.opened()
    stage.give(shell, Drain())
    [release] = stage.committer.taken()
    assert isinstance(release, Release)


def test_an_unclear_commit_is_settled_and_only_then_answered():
    stage = Stage()
    lost = iter([True, True])

    def lose(call: StoreCall) -> None:
        if call.moves() and call.moment == "after" and next(lost, False):
            raise AnswerLost("no answer")

    stage.hooked.hook = lose
    shell = stage.opened()
    answer = stage.ask(shell, w.Add(1))
    [work] = stage.works()
    done = commit(stage, work)
    assert isinstance(done, Unclear), "it was written, and nobody here knows"
    stage.answer((shell, done))
    assert not answer.done() and stage.works() == []
    assert any("unclear" in reason for reason in stage.region.health()[1])

    stage.driver.after(0.05)
    assert stage.committer.taken() == [], "not at once"
    stage.driver.after(0.06)
    assert stage.committer.taken() == [Settle({shell.ref: stage.shard}, stage.round.ref)]
    [again] = stage.journal.settle([stage.shard])
    assert isinstance(again, Unclear)
    stage.answer((shell, again))
    stage.driver.after(0.1)
    assert stage.committer.taken() == [], "slower every time"
    stage.driver.after(0.11)
    assert stage.committer.taken() == [Settle({shell.ref: stage.shard}, stage.round.ref)]

    [settled] = stage.journal.settle([stage.shard])
    assert isinstance(settled, Committed)
    stage.answer((shell, settled))
    assert answer.result(0) == w.Total(1)
    assert not any("unclear" in reason for reason in stage.region.health()[1])
    assert len(stage.claim(stage.shard).frames) == 1, "the same frame, once"


def test_a_commit_that_stays_unclear_gives_the_shard_up_and_answers_nothing_as_done():
    stage = Stage()
    shell = stage.opened()
    answer = stage.ask(shell, w.Add(1))
    stage.answer((shell, Unclear("no answer")))
    began_s = stage.driver.clock.now()
    while not shell.actor_stopped.is_set():
        stage.driver.after(0.5)
        for letter in stage.committer.taken():
            if isinstance(letter, Settle):
                stage.answer((shell, Unclear("no answer")))
    took_s = stage.driver.clock.now() - began_s
    assert UNCLEAR_S_MAX <= took_s <= UNCLEAR_S_MAX + SETTLE.most_s
    [lost] = stage.root.taken()
    assert isinstance(lost, ShardLost) and lost.gave_up and not lost.damaged
    assert lost.text == f"unclear for {took_s:.0f} s: no answer"
    assert isinstance(answer.result(0), Unavailable), "it may have happened: ask again"


def test_a_fenced_shard_is_dropped_and_releases_nothing():
    stage = Stage()
    shell = stage.opened()
    rival = FencedRows(stage.store, process=b"r" * 16)
    first = stage.ask(shell, w.Add(1))
    second = stage.ask(shell, w.Add(2))
    [work] = stage.works()
    rival.claim(stage.shard, "")
    done = commit(stage, work)
    assert isinstance(done, Fenced)
    stage.answer((shell, done))
    [lost] = stage.root.taken()
    assert isinstance(lost, ShardLost) and lost.text.startswith("fenced: ")
    assert not lost.damaged and not lost.gave_up and not lost.broken
    assert isinstance(first.result(0), Unavailable) and isinstance(second.result(0), Unavailable)
    assert stage.works() == [] and shell.core is None
    assert stage.claim(stage.shard, rival).frames == [], "the younger owner finds nothing of it"


def test_a_shard_that_is_fenced_while_it_drains_is_reported_closed_once():
    stage = Stage()
    shell = stage.opened()
    stage.ask(shell, w.Add(1))
    stage.give(shell, Drain())
    stage.answer((shell, Fenced("overtaken")))
    assert stage.root.taken() == [Closed(stage.shard)]


def test_a_drop_ends_the_shard_at_once_and_a_late_answer_changes_nothing():
    stage = Stage()
    shell = stage.opened()
    answer = stage.ask(shell, w.Add(1))
    [work] = stage.works()
    stage.give(shell, Drop((stage.shard,)))
    assert stage.committer.taken() == [DropClaim(stage.shard, work.epoch)]
    assert stage.root.taken() == [Closed(stage.shard)]
    told = answer.result(0)
    assert isinstance(told, Unavailable)
    stage.answer((shell, commit(stage, work)))
    assert answer.result(0) is told and stage.root.taken() == []


def unfolding(stage: Stage) -> Any:
    """A claim whose only frame does not fold: 14 is added to a note."""
    codec = stage.context.codec
    taken = stage.claim(stage.shard)
    body = codec.encode_frame(1.0, [codec.encode_entry(Entry(NOTE, (w.Added(14),)))])
    return taken._replace(frames=[Frame(1, body)])


def test_a_recovery_that_does_not_fold_halts_the_shard_and_names_the_place():
    stage = Stage()
    shell = stage.shell()
    waiting = stage.ask(shell, w.Add(1))
    taken = unfolding(stage)
    stage.give(shell, taken)
    assert stage.committer.taken() == [DropClaim(stage.shard, taken.claimed.epoch)]
    [lost] = stage.root.taken()
    assert isinstance(lost, ShardLost) and lost.damaged and not lost.broken
    assert "14 does not fold" in lost.text and str(NOTE) in lost.text
    answer = waiting.result(0)
    assert isinstance(answer, ShardDamaged) and "14 does not fold" in answer.text
    assert any("14 does not fold" in reason for reason in stage.region.health()[1])


@pytest.mark.parametrize(
    ("refused", "damaged"),
    [
        (ClaimRefused("register: checksum", damaged=True), True),
        (ClaimRefused("no answer", unreachable=True), False),
        (ClaimRefused("epoch 2 is younger"), False),
    ],
    ids=["damaged", "unreachable", "overtaken"],
)
def test_a_refused_claim_is_reported_as_what_it_is(refused: ClaimRefused, damaged: bool):
    stage = Stage()
    shell = stage.shell()
    waiting = stage.ask(shell, w.Add(1))
    stage.give(shell, refused)
    [lost] = stage.root.taken()
    away = refused.unreachable
    assert lost == ShardLost(stage.shard, refused.text, damaged=damaged, away=away)
    assert isinstance(waiting.result(0), ShardDamaged if damaged else Unavailable)
    assert shell.actor_stopped.is_set()


def test_mail_that_waits_for_the_recovery_is_limited():
    stage = Stage(DaemonLimits(waiting_mail_max=2))
    shell = stage.shell()
    some = [stage.ask(shell, w.Add(1), key("note", "x")) for _ in range(3)]
    assert [answer.done() for answer in some] == [False, False, True]
    assert isinstance(some[2].result(0), Unavailable) and shell.refused == 1
    stage.give(shell, stage.claim(stage.shard))
    [work] = stage.works()
    stage.answer((shell, commit(stage, work)))
    assert [answer.result(0) for answer in some[:2]] == [w.Total(1), w.Total(2)]
