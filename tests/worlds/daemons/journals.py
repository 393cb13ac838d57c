"""Owners of one shard over the simulated store, and what the outside saw of them.

Turns a seed into one history: which faults the store has and how strong, who does what, when time
passes, and where one owner stands still while the others go on. It raises `Wrong` as soon as a
promise of the journal is broken. It knows only what a shard's shell would know.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import Rows, Statement, StatementReply
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    Journal,
    Overtaken,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.simulation.stepper import VirtualClock
from peloton.runtime.simulation.store import CALM_STORE, SimulatedStore, StoreFaults
from tests.core.journal import outside
from tests.core.journal.outside import Wrong

SHARD = ShardId("g", 0)
MEMBERS = ("a", "b", "c")
STEPS = 120
PARTS = 3
STRENGTHS = (0.02, 0.1, 0.3)
WANTS = "frame frame frame frame frame ended part floor floor cut all mend mend sleep".split()
KINDS = (
    "lose_reply hold either_order complete_by_read unavailable reorder_plain plain_after_delete "
    "power_cut flicker"
).split()
UNREST = "crash give-up release sever".split()


class Story(outside.Story):
    """Of final states, checkpoints and epochs as well."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, int] = {}
        self.begun: dict[tuple[int, int], None] = {}
        self.epoch = 0

    def found(self, row: EndedRow | None, key: str, least: int) -> None:
        """The final state of a key that must stand in the store, as of a position at least."""
        if row is None or row.position < least:
            raise Wrong(f"final state of {key} at {least} is lost, found {row}")
        if self.history[row.position - 1 : row.position] not in ([], [row.body]):
            raise Wrong(f"{row} is not what was committed")


class Haltable:
    """Rows of a daemon that may stand still before any of its calls."""

    def __init__(self, rows: Rows, sea: Sea) -> None:
        self.rows = rows
        self.sea = sea

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.sea.meanwhile()
        return self.rows.run(statements)

    def close(self) -> None:
        self.rows.close()


class Owner:
    """One process. Does one thing at a time: claim and load, settle, or commit new work."""

    def __init__(self, member: str, journal: Journal, sea: Sea) -> None:
        self.member = member
        self.name = str(sea.lives)
        self.journal = journal
        self.sea = sea
        self.story = sea.story
        self.epoch = 0
        self.floor = 0
        self.count = 0
        self.history: list[bytes] = []
        self.owed: list[EndedRow] = []
        self.parts: tuple[CheckpointPart, ...] = ()  # the rest of a checkpoint that is begun
        self.sent = Work(SHARD, 0)
        self.unclear = False

    def step(self, want: str) -> None:
        if want == "give-up":
            self.journal.drop(SHARD)
            self.epoch = 0
        elif want == "release":
            self.journal.release(SHARD)
            self.epoch = 0
        elif self.epoch == 0:
            if self.sea.wants_owner():
                self.claim()
        elif self.unclear:
            self.commit()
        else:
            self.sent = self.work(want)
            self.commit()

    def commit(self) -> None:
        """Settle what is pending, or send what is new."""
        settles = self.unclear
        answer = self.journal.settle([SHARD])[0] if settles else self.journal.commit([self.sent])[0]
        self.heard(answer)

    def claim(self) -> None:
        claimed = self.journal.claim(SHARD, self.name)
        if not isinstance(claimed, Claimed):
            return
        self.story.epoch = max(self.story.epoch, claimed.epoch)
        try:
            state = b"".join(self.journal.read_checkpoint(SHARD))
            tail = [frame.body for frame in self.journal.read_tail(SHARD)]
        except (Unreachable, Overtaken):
            return
        self.history = [body for body in state.split(b",") if body] + tail
        self.epoch, self.floor = claimed.epoch, claimed.floor
        self.unclear, self.parts = False, ()
        self.story.loaded(list(self.history), claimed.epoch)
        rows = [row for at, body in enumerate(self.history, 1) for row in ends(at, body)]
        self.owed = [row for row in rows if row.position > self.floor]
        self.look({row.key: row.position for row in rows if row.position <= self.floor})
        self.look(self.story.ended)

    def look(self, ended: dict[str, int]) -> None:
        """Every final state below the floor, or acknowledged, is found."""
        for key, least in list(ended.items()):
            try:
                row = self.journal.read_ended(SHARD, kind="k", key=key)
            except Unreachable:
                continue
            self.story.found(row, key, least)

    def work(self, want: str) -> Work:
        frame = self.frame() if want in ("frame", "all") else None
        owed = [*self.owed, *(ends(frame.position, frame.body) if frame is not None else ())]
        if want == "ended":
            return Work(SHARD, self.epoch, ended=tuple(owed))
        if want == "part" and not self.parts and self.may_begin():
            first, *rest = self.checkpoint()
            self.parts = tuple(rest)
            return Work(SHARD, self.epoch, parts=(first,))
        if want in ("floor", "all") and (self.parts or self.may_begin()):
            parts, self.parts = self.parts or self.checkpoint(), ()
            self.floor = parts[0].position
            return Work(SHARD, self.epoch, frame, tuple(owed), parts, Floor(self.floor))
        if want == "cut" or frame is None:
            older = tuple(key for key in self.story.begun if key[1] < self.epoch)
            return Work(SHARD, self.epoch, cut=Cut(older))
        at_once = self.sea.chance.random() < 0.5
        return Work(SHARD, self.epoch, frame, tuple(owed) if at_once else ())

    def frame(self) -> Frame:
        """Some frames say that one of three keys has ended."""
        self.count += 1
        end = self.sea.chance.choice(("", ":x", ":y", ":z"))
        body = f"{self.name}:{self.count}{end}".encode()
        return Frame(len(self.history) + 1, body)

    def may_begin(self) -> bool:
        begun = [at for at, epoch in self.story.begun if epoch == self.epoch]
        return len(self.history) > max([self.floor, *begun])

    def checkpoint(self) -> tuple[CheckpointPart, ...]:
        at = len(self.history)
        self.story.begun[at, self.epoch] = None
        state = b",".join(self.history) + b","
        size = -(-len(state) // PARTS)
        return tuple(
            CheckpointPart(at, n, state[n * size : (n + 1) * size], n == PARTS - 1)
            for n in range(PARTS)
        )

    def heard(self, answer: object) -> None:
        frame = self.sent.frame
        self.unclear = isinstance(answer, Unclear)
        if isinstance(answer, Committed):
            if frame is not None:
                self.story.committed(frame, self.epoch)
                self.history.append(frame.body)
                self.owed += ends(frame.position, frame.body)
            for row in self.sent.ended:
                self.story.ended[row.key] = max(row.position, self.story.ended.get(row.key, 0))
            self.owed = [row for row in self.owed if row not in self.sent.ended]
        elif isinstance(answer, Fenced):
            self.epoch = 0
            if answer.definite and frame is not None:
                self.story.refuse(frame.body)


def ends(position: int, body: bytes) -> list[EndedRow]:
    """What a frame says to have ended."""
    words = body.decode().split(":")
    return [EndedRow("k", words[2], position, body)] if len(words) > 2 else []


class Sea:
    """A store, its clock, one owner per member; all that happens is drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.store = SimulatedStore(random.Random(seed + 1_000_000), self.clock)
        self.story = Story()
        self.lives = 0
        self.pause = self.chance.choice((0.0, 0.02, 0.2))
        self.unrest = self.chance.choice((0.02, 0.1, 0.3))
        self.eager = self.chance.choice((0.0, 0.01, 0.2))
        self._running: str | None = None
        self._paused = False
        self.owners = {member: self.begin(member) for member in MEMBERS}
        self.owners["a"].journal.bootstrap({"g": 1})

    def begin(self, member: str) -> Owner:
        """The next process of a member."""
        self.lives += 1
        rows = Haltable(self.store.rows(member), self)
        journal = FencedRows(rows, process=self.lives.to_bytes(16, "big"))
        return Owner(member, journal, self)

    def storm(self, faults: StoreFaults) -> None:
        self.store.faults = faults
        for _ in range(STEPS):
            wants = UNREST if self.chance.random() < self.unrest else WANTS
            self.step(self.chance.choice(MEMBERS), self.chance.choice(wants))

    def step(self, member: str, want: str) -> None:
        self.clock.now_s += self.chance.random()
        if want == "crash":
            self.owners[member] = self.begin(member)
        elif want == "sever":
            self.store.cut(member)
        elif want == "mend":
            for one in MEMBERS:
                self.store.mend(one)
        elif want == "sleep":
            self.clock.now_s += self.chance.random() * 30
        else:
            outer, self._running = self._running, member
            self.owners[member].step(want)
            self._running = outer

    def wants_owner(self) -> bool:
        """Whether to claim: where one believes to own, seldom, or no owner would come far."""
        owned = any(owner.epoch for owner in self.owners.values())
        return not owned or self._paused or self.chance.random() < self.eager

    def meanwhile(self) -> None:
        """Whoever runs stands still, perhaps, and the others go on; these do not stand still."""
        if self._paused or self._running is None or self.chance.random() >= self.pause:
            return
        self._paused = True
        others = [member for member in MEMBERS if member != self._running]
        for _ in range(self.chance.choice((1, 2, 4, 20))):
            want = self.chance.choice(("frame", "frame", "all", "all", "floor", "cut", "cut"))
            self.step(self.chance.choice(others), want)
        self._paused = False

    def calm(self) -> None:
        """What is on its way arrives; then a claim succeeds, and all that was promised is there."""
        self.store.faults = CALM_STORE
        self.pause = 0.0
        for member in MEMBERS:
            self.store.mend(member)
        self.clock.now_s += 1000
        self.store.advance()
        last = self.begin("a")
        last.claim()
        if not last.epoch:
            raise Wrong("no claim after the storm")
        last.step("frame")
        if last.unclear or not last.epoch:
            raise Wrong("no frame after the storm")


def drawn(chance: random.Random) -> StoreFaults:
    """Which faults are on, and how strong. Often only one or two: all at once would let no owner
    come far enough for what any one of them could do."""
    on = chance.sample(KINDS, chance.choice((1, 2, 3, len(KINDS))))
    cut = chance.choice((0.002, 0.02)) if "power_cut" in on else 0.0
    return StoreFaults(
        **{kind: chance.choice(STRENGTHS) for kind in on if kind != "power_cut"},
        power_cut=cut,
        late_s=chance.choice((2.0, 10.0, 50.0)),
        skew_s=chance.choice((0.0, 5.0, 3600.0)),
    )
