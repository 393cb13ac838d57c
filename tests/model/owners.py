"""Owners of the model: the real talks of `core/journal/fencing.py` as values that can be kept.

A search must take the same owner two ways, and a running generator cannot be copied. But a talk is
a function of what it is told. So an owner between two talks is a frozen copy of its `OwnedShard` (a
`Rest`), and an owner within a talk is that rest, the name of the talk, and the replies heard so far
(a `Node`); to go on from a node is to tell a new generator the old replies again. `promises` judges
what an owner does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from peloton.runtime.core.journal import chain, fencing, register, rounds
from peloton.runtime.core.journal.fencing import FoundItems
from peloton.runtime.core.journal.register import OpNames, OwnedShard
from peloton.runtime.core.journal.segments import Segments
from peloton.runtime.core.journal.statements import RegisterRow, Statement, StatementReply
from peloton.runtime.ports import (
    CheckpointPart,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    Overtaken,
    ShardId,
    Unclear,
    Work,
)

SHARD = ShardId("g", 0)
WRITES_PER_SEGMENT = 1
"""Conditional writes that an owner names while it writes to one segment. 1: a frame a segment."""

Frozen = tuple[tuple[str, Any], ...]


class Rest(NamedTuple):
    """An owner between two talks."""

    process: int
    """Name of the process; a crash gives another."""
    named: int = 0
    """Conditional writes it has given a name."""
    owned: Frozen | None = None
    """What it believes of the register; None: it is not the owner."""
    history: tuple[bytes, ...] | None = None
    """Frames it knows committed; None: it has claimed, and not yet read."""
    ended_to: int = 0
    """Frames up to here have their ended rows in the store, as far as it knows."""


class Node(NamedTuple):
    """An owner: at rest (no talk), or in a talk after some replies."""

    rest: Rest
    talk: str = ""
    heard: tuple[tuple[StatementReply, ...] | None, ...] = ()
    """Per ask its replies, and None where it went on after a doubt."""


class Ended(NamedTuple):
    """A talk came to its end: the next rest, and what the owner now says to the outside."""

    rest: Rest
    news: tuple[tuple[str, Any], ...] = ()


Heard = tuple[Statement, ...] | Unclear | Ended
Life = Generator[tuple[Statement, ...] | Unclear, tuple[StatementReply, ...], Ended]


def resume(node: Node) -> Heard:
    """What the owner says after all it has heard: statements, a doubt, or the end of its talk."""
    if not node.talk:
        return Ended(node.rest)
    life = TALKS[node.talk](node.rest)
    try:
        said = next(life)
        for replies in node.heard:
            said = next(life) if replies is None else life.send(replies)
    except StopIteration as end:
        ended: Ended = end.value
        return ended
    return said


# ---- the talks -------------------------------------------------------------------------------


def claim(rest: Rest) -> Life:
    """Take the shard; what was held before is dropped first."""
    ops = Ops(rest.process, rest.named)
    out = Rest(rest.process, rest.named + 1)
    got = yield from fencing.claim(SHARD, op=ops.next(), owner=str(rest.process))
    if isinstance(got, Fenced):
        return Ended(out)
    return Ended(out._replace(owned=freeze(got)), (("claimed", got.epoch),))


def load(rest: Rest) -> Life:
    """Checkpoint, then tail. Overtaken is no trouble; Damaged and Broken go up to the search."""
    owned = thaw(rest.owned)
    pieces: list[bytes | Frame] = []
    try:
        for reading in (fencing.load_checkpoint(owned), fencing.load_tail(owned)):
            replies = None
            while True:
                try:
                    said = next(reading) if replies is None else reading.send(replies)
                except StopIteration:
                    break
                replies = None
                if isinstance(said, FoundItems):
                    pieces += said.items
                else:
                    replies = yield said
    except Overtaken:
        return Ended(Rest(rest.process, rest.named))
    parts = b"".join(one for one in pieces if isinstance(one, bytes))
    tail = tuple(one.body for one in pieces if isinstance(one, Frame))
    history = (*(body for body in parts.split(b",") if body), *tail)
    news = (("loaded", (owned.epoch, history)),)
    return Ended(rest._replace(owned=freeze(owned), history=history, ended_to=owned.floor[0]), news)


def frame(rest: Rest) -> Life:
    """Commit one more frame; its body is like no other."""
    owned, history = thaw(rest.owned), rest.history or ()
    body = b"%d.%d" % (rest.process, rest.named)
    work = Work(SHARD, owned.epoch, Frame(len(history) + 1, body))
    return (yield from _commit(rest, owned, work))


def checkpoint(rest: Rest) -> Life:
    """Final states of what ended since the last one, a checkpoint of all, and its floor.

    In the model each frame ends one key, named by the frame's position.
    """
    owned, history = thaw(rest.owned), rest.history or ()
    last = len(history)
    ended = tuple(
        EndedRow("k", str(at), at, history[at - 1]) for at in range(rest.ended_to + 1, last + 1)
    )
    part = CheckpointPart(last, 0, b",".join(history), last=True)
    work = Work(SHARD, owned.epoch, ended=ended, parts=(part,), floor=Floor(last))
    return (yield from _commit(rest, owned, work))


def cut(rest: Rest) -> Life:
    """Drop what lies under the previous checkpoint."""
    owned = thaw(rest.owned)
    return (yield from _commit(rest, owned, Work(SHARD, owned.epoch, cut=Cut())))


def sweep(rest: Rest) -> Life:
    """Drop a checkpoint that the last owner may have begun and left."""
    owned = thaw(rest.owned)
    left = ((len(rest.history or ()), owned.epoch - 1),)
    return (yield from _commit(rest, owned, Work(SHARD, owned.epoch, cut=Cut(left))))


def leave(rest: Rest) -> Life:
    """Give the shard back of its own will."""
    owned, ops = thaw(rest.owned), Ops(rest.process, rest.named)
    yield from fencing.release(owned, ops.next())
    return Ended(Rest(rest.process, ops.count))


def _commit(rest: Rest, owned: OwnedShard, work: Work) -> Life:
    ops = Ops(rest.process, rest.named)
    plan = register.plan(owned, work, ops=ops, names=Names(rest.process, rest.named))
    refused: rounds.Refusals = {}
    if work.frame is not None:
        refused = yield from rounds.commit_frames([(owned, plan)])
    answer = refused.get(SHARD) or (yield from fencing.finish(owned, plan))
    out = Rest(rest.process, ops.count)
    news: tuple[tuple[str, Any], ...] = ()
    if isinstance(answer, Fenced):
        if answer.definite and work.frame is not None:
            news = (("refused", work.frame.body),)
        return Ended(out, news)
    history, ended_to = rest.history or (), rest.ended_to
    if work.frame is not None:
        history, news = (*history, work.frame.body), (("acknowledged", work.frame.body),)
    if work.ended:
        ended_to = work.ended[-1].position
    return Ended(out._replace(owned=freeze(owned), history=history, ended_to=ended_to), news)


TALKS = {
    "claim": claim,
    "load": load,
    "frame": frame,
    "checkpoint": checkpoint,
    "cut": cut,
    "sweep": sweep,
    "leave": leave,
}


def may(rest: Rest) -> tuple[str, ...]:
    """Talks that make sense for an owner at rest, besides a claim."""
    if rest.owned is None:
        return ()
    held = dict(rest.owned)
    last, wants = held["last_position"], ["frame"]
    if last > max(held["begun"], held["floor"][0]):
        wants.append("checkpoint")
    if held["manifest"].previous[0]:
        wants.append("cut")
    if last and held["epoch"] > 1:
        wants.append("sweep")
    return (*wants, "leave")


# ---- an owned shard as a value ------------------------------------------------------------------

_TYPES = {
    name: type(value)
    for name, value in vars(OwnedShard(SHARD, RegisterRow(0, b"", "", 0, b"", 0, 0))).items()
}


def freeze(owned: OwnedShard) -> Frozen:
    """All that it holds; sets sorted, mappings as pairs."""
    return tuple((name, _frozen(value)) for name, value in vars(owned).items())


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, set):
        return tuple(sorted(value))
    return tuple(value) if isinstance(value, list) else value


def thaw(frozen: Frozen | None) -> OwnedShard:
    """An owned shard of its own, equal to the one that was frozen."""
    assert frozen is not None
    owned = object.__new__(OwnedShard)
    for name, value in frozen:
        kind = _TYPES[name]
        setattr(owned, name, kind(value) if kind in (set, list) or _maps(kind) else value)
    return owned


def _maps(kind: type) -> bool:
    return issubclass(kind, dict)


class Names(Segments):
    """Segments of an owner that was frozen: a new one with every so many names of writes, whether
    or not a frame was written to the last."""

    def __init__(self, process: int, named: int) -> None:
        super().__init__(process.to_bytes(16, "big"))
        self.number = 1 + named // WRITES_PER_SEGMENT

    def next(self, size: int) -> bytes:
        return chain.op_name(self.process, self.number)


class Ops(OpNames):
    """Names of an owner that was frozen: how many it has given can be read, and set."""

    def __init__(self, process: int, named: int) -> None:
        super().__init__(process.to_bytes(16, "big"))
        self.count = named

    def next(self) -> bytes:
        self.count += 1
        return chain.op_name(self.process, self.count)
