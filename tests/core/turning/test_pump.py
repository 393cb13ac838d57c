"""A sender without end has a share of each frame, and so has everybody else."""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.pump import FRAME_BYTES_SOFT, LEFT_TURNS_MAX, OTHERS_TURNS_MAX
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import SELF, Decision, Key, Message, Send, key
from tests.core.test_dead_letters import DOTS, DotBench, Put
from tests.toy.bench import a_round

MAD, CALM = key("mad", 1), key("box", 7)


class Ping(Message, frozen=True, gc=False, array_like=True):
    pass


class Chatter(DotBench):
    """A bench with one more kind: who hears a ping says it to itself, and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = False

        def ping(message: Message, at: Any) -> Decision:
            return Decision(sends=(Send(SELF, Ping()),))

        self.kinds["mad"] = Kind(
            **{
                **{name: getattr(self.kinds["box"], name) for name in Kind.__struct_fields__},
                "name": "mad",
                "decide": {Ping: lambda state, message, at: ping(message, at)},
                "absent": {Ping: ping},
                "messages": {1: Ping},
            }
        )
        self.shard = self.fresh()
        self.send(MAD, Ping())
        self.once()

    def turns(self) -> int:
        before = self.shard.delivered
        self.once()
        return self.shard.delivered - before


def test_mail_for_others_is_taken_in_the_next_frame_and_each_frame_is_short():
    bench = Chatter()
    bench.send(CALM, Put(), reply_to=1)
    assert bench.turns() <= 2 * (LEFT_TURNS_MAX + 2 * OTHERS_TURNS_MAX)
    assert len(bench.replies) == 1
    assert bench.shard.busy, "it chatters on"


def test_a_long_queue_of_others_is_worked_off():
    bench = Chatter()
    for at in range(4 * OTHERS_TURNS_MAX):
        bench.send(key("box", at), Put(), reply_to=at)
    for _ in range(4):
        bench.once()
    assert len(bench.replies) == 4 * OTHERS_TURNS_MAX


def test_parents_look_although_one_chatters():
    bench = Chatter()
    bench.send(Key("box/1"), Put())
    bench.once()
    bench.send(DOTS, Put(), 0b1)  # its parent is box/1
    bench.once()
    bench.once()
    assert not bench.shard.population.dirty


def test_a_frame_fits_the_journal_though_mail_comes_first():
    bench = Chatter()
    for at in range(12):
        bench.send(key("box", at), Put(), values=(), who="x" * 1_000_000)
    before = len(bench.frames)
    for _ in range(12):
        bench.once()
    sizes = [len(frame.body) for frame in bench.frames[before:]]
    assert sum(sizes) > 12_000_000 and max(sizes) < FRAME_BYTES_SOFT + 1_100_000


def test_local_messages_stay_in_their_order():
    """Left over or not: words of one to another come in the order they were said."""
    bench = DotBench()
    bench.bad = False
    local = bench.shard._local
    for at in range(9000):
        local.append(Envelope(CALM, Put(), who=str(at)))
    heard: list[str] = []
    bench.shard.pump._deliver = lambda envelope: heard.append(envelope.who)
    for _ in range(20):
        _frame(bench.shard)
    assert heard == [str(at) for at in range(9000)]


def _frame(shard: Shard) -> None:
    a_round(shard, 0.0)
    shard.committed()
