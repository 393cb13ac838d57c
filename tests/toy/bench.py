"""One shard driven by hand, with the journal it wrote, without shells.

It does not wait and uses no threads: the test decides when a frame is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from peloton.runtime.core.checkpoint import Checkpointer
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import CheckpointPart, Cut, EndedRow, Floor, Frame, ShardId
from peloton.runtime.vocabulary import Key, Message
from tests.toy.kinds import KINDS, SIZES

START_S = 1_700_000_000.0


class Round(NamedTuple):
    """What a shard made of one run and the close of its frame, as a `Ready` and more."""

    load: tuple[Key, ...]
    release: list[Envelope]
    frame: bytes | None
    position: int
    replies: list[Reply]
    ended: tuple[EndedRow, ...]
    parts: tuple[CheckpointPart, ...]
    floor: Floor | None
    cut: Cut | None
    wake_at: float | None


def a_round(shard: Shard, now: float, *, may_withhold: bool = True) -> Round:
    """Turns on all mail, and the end of their frame."""
    turned = shard.run(now)
    return Round(turned.load, turned.mail, *shard.close(may_withhold=may_withhold))


class Bench:
    """A shard, all frames it ever wrote, its checkpoint, and what it released."""

    def __init__(
        self,
        group: str = "house",
        number: int = 0,
        *,
        sizes: dict[str, int] | None = None,
        checkpoint_bytes_min: int | None = None,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        self.id = ShardId(group, number)
        self.sizes = sizes or {**SIZES, group: 1}
        self.kinds = kinds
        self.codec = Codec(kinds)
        self.bytes_min = checkpoint_bytes_min
        self.now = START_S
        self.frames: list[Frame] = []
        self.ended: dict[Key, EndedRow] = {}
        self.parts: list[bytes] = []
        self.checkpoint: tuple[int, list[bytes]] = (0, [])
        self.sent: list[Envelope] = []
        self.replies: list[Reply] = []
        self.shard = self.fresh()

    def fresh(self) -> Shard:
        """An empty shard of this name."""
        shard = Shard(
            self.id, self.kinds, sharding=Sharding(self.kinds, self.sizes), codec=self.codec
        )
        if self.bytes_min is not None:
            shard.checkpointer = Checkpointer(self.codec, self.bytes_min)
        return shard

    def send(self, to: Key, message: Message, members: int = 0, **more: object) -> None:
        """Queue one message; it is not decided yet."""
        self.shard.take([Envelope(to, message, members, **more)])  # type: ignore[arg-type]

    def ready(self, *, may_withhold: bool = True) -> Round:
        """One round, which is in flight from now on."""
        return a_round(self.shard, self.now, may_withhold=may_withhold)

    def once(self) -> Round:
        """One round, durable at once."""
        ready = self.ready()
        self.write(ready)
        self.replies += self.shard.committed()
        for key in ready.load:
            self.shard.loaded(key, self.ended.get(key))
        return ready

    def write(self, ready: Round) -> None:
        """What a journal does with a round."""
        if ready.frame is not None:
            self.frames.append(Frame(ready.position, ready.frame))
        for row in ready.ended:
            self.ended[Key(row.key)] = row
            if row.deleted:
                del self.ended[Key(row.key)]
        for part in ready.parts:
            self.parts = [*self.parts, part.body] if part.number else [part.body]
        if ready.floor is not None:
            self.checkpoint = ready.floor.position, self.parts
        self.sent += ready.release
        self.replies += ready.replies

    def rest(self) -> None:
        """Rounds until nothing is left to do now."""
        self.once()
        for _ in range(1000):
            if not self.shard.busy:
                return
            self.once()
        raise AssertionError("the shard does not settle")

    def after(self, seconds: float) -> None:
        """Time passes, in steps of a tick."""
        until = self.now + seconds
        while self.now < until:
            self.now = round(self.now + 0.1, 3)
            self.rest()

    def taken(self) -> list[Envelope]:
        """What was released since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def answers(self) -> list[object]:
        """Values of the replies since the last call."""
        replies, self.replies = self.replies, []
        return [reply.value for reply in replies]

    def reopened(self, kinds: Mapping[str, Kind]) -> Bench:
        """A bench that recovers from this journal with these kinds, and continues."""
        other = Bench(self.id.group, self.id.number, sizes=self.sizes, kinds=kinds)
        other.now, other.bytes_min = self.now, self.bytes_min
        other.frames, other.ended = [*self.frames], {**self.ended}
        other.parts, other.checkpoint = self.parts, self.checkpoint
        other.shard = other.replay()
        return other

    def replay(self, *, checkpoint: bool = True) -> Shard:
        """A shard recovered from what is in the journal."""
        floor, parts = self.checkpoint if checkpoint else (0, [])
        shard = self.fresh()
        restore(shard, parts, frames=frames_after(self.frames, floor), floor=floor)
        return shard


def frames_after(frames: Iterable[Frame], floor: int) -> list[Frame]:
    return [frame for frame in frames if frame.position > floor]
