"""Rounds of three shards over the simulated store: whole, whatever the store does wrong.

All that happens is drawn from a seed: who claims, commits, settles for whom, gives up or stands
still while others go on. A mistake planted in what makes a round whole must be found by the very
same seeds. `test_simulated_store.py` tests what one shard alone is promised.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.ports import (
    Answer,
    Claimed,
    Committed,
    Fenced,
    Frame,
    JournalBroken,
    JournalRefused,
    Overtaken,
    RoundRefused,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.simulation.stepper import VirtualClock
from peloton.runtime.simulation.store import CALM_STORE, SimulatedStore
from tests.core.journal.outside import Wrong
from tests.model.faults import Fault, planted
from tests.model.round_faults import ROUND_FAULTS
from tests.worlds.daemons.journals import Haltable, drawn

SEEDS = 500
PLANTED_SEEDS_MAX = 2000
STEPS = 60
SHARDS = [ShardId("g", number) for number in range(3)]
MEMBERS = ("a", "b")
WANTS = "commit commit commit commit settle settle settle claim claim give-up crash sleep".split()


class Owner:
    """One process: what it holds, and what it has in doubt."""

    def __init__(self, name: int, journal: FencedRows, sea: Sea) -> None:
        self.name = name
        self.journal = journal
        self.sea = sea
        self.count = 0
        self.last: dict[ShardId, tuple[int, int]] = {}
        """Epoch and last position of what is held."""
        self.doubts: dict[ShardId, bytes] = {}

    def step(self, want: str) -> None:
        chance = self.sea.chance
        if want == "claim":
            self.claim(chance.choice(SHARDS))
        elif want == "give-up" and self.last:
            self.lose(chance.choice(list(self.last)))
        elif want == "commit":
            free = [shard for shard in self.last if shard not in self.doubts]
            self.commit(free[: chance.choice((2, 3, 3))])
        elif want == "settle" and self.doubts:
            some = chance.sample(list(self.doubts), chance.randint(1, len(self.doubts)))
            self.heard({shard: self.doubts[shard] for shard in some}, self.journal.settle(some))

    def claim(self, shard: ShardId) -> list[bytes] | None:
        """What the shard's journal holds, if it could be claimed and read."""
        self.lose(shard)
        claimed = self.journal.claim(shard, str(self.name))
        if not isinstance(claimed, Claimed):
            return None
        try:
            bodies = [frame.body for frame in self.journal.read_tail(shard)]
        except (Unreachable, Overtaken):
            return None
        self.last[shard] = claimed.epoch, claimed.last_position
        return bodies

    def lose(self, shard: ShardId) -> None:
        self.journal.drop(shard)
        self.last.pop(shard, None)
        self.doubts.pop(shard, None)

    def commit(self, shards: list[ShardId]) -> None:
        self.count += 1
        head = f"{self.name}.{self.count}/{len(shards)}"
        works, bodies = [], {}
        for shard in shards:
            bodies[shard] = f"{head}.{shard.number}".encode()
            epoch, position = self.last[shard]
            works.append(Work(shard, epoch, Frame(position + 1, bodies[shard])))
        self.heard(bodies, self.journal.commit(works))

    def heard(self, bodies: dict[ShardId, bytes], answers: list[Answer]) -> None:
        for (shard, body), answer in zip(bodies.items(), answers, strict=True):
            self.sea.answers[type(answer)] += 1
            if isinstance(answer, Unclear):
                self.doubts[shard] = body
                continue
            self.doubts.pop(shard, None)
            if isinstance(answer, Committed):
                self.sea.acknowledged[body] = None
                epoch, position = self.last[shard]
                self.last[shard] = epoch, position + 1
                continue
            self.last.pop(shard, None)
            if isinstance(answer, RoundRefused) or (isinstance(answer, Fenced) and answer.definite):
                self.sea.refused[body] = None


class Sea:
    """A store, its clock, one owner per member, and what the outside was told."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.store = SimulatedStore(random.Random(seed + 1_000_000), self.clock)
        self.pause = self.chance.choice((0.0, 0.05, 0.2))
        self.lives = 0
        self.acknowledged: dict[bytes, None] = {}
        self.refused: dict[bytes, None] = {}
        self.answers: Counter[type] = Counter()
        self._running: str | None = None
        self.owners = {member: self.begin(member) for member in MEMBERS}
        self.owners["a"].journal.bootstrap({"g": len(SHARDS)})

    def begin(self, member: str) -> Owner:
        self.lives += 1
        rows = Haltable(self.store.rows(member), self)  # type: ignore[arg-type]
        journal = FencedRows(rows, process=self.lives.to_bytes(16, "big"))
        return Owner(self.lives, journal, self)

    def meanwhile(self) -> None:
        """Whoever runs stands still, perhaps, and the other goes on, and does not stand still."""
        running, self._running = self._running, None
        if running is not None and self.chance.random() < self.pause:
            (other,) = (member for member in MEMBERS if member != running)
            for _ in range(self.chance.choice((1, 4))):
                self.owners[other].step(self.chance.choice(("claim", "commit", "settle")))
        self._running = running

    def run(self) -> None:
        self.store.faults = drawn(self.chance)
        for _ in range(STEPS):
            self.clock.now_s += self.chance.random()
            member, want = self.chance.choice(MEMBERS), self.chance.choice(WANTS)
            if want == "crash" and self.chance.random() < 0.2:
                self.owners[member] = self.begin(member)
            elif want == "sleep":
                self.clock.now_s += self.chance.random() * 30
            else:
                self._running = member
                self.owners[member].step(want)
                self._running = None
        self.store.faults = CALM_STORE
        self.clock.now_s += 1000
        self.store.advance()
        self.check()

    def check(self) -> None:
        """What the next owner of all shards reads."""
        last, found = self.begin("a"), []
        for shard in SHARDS:
            bodies = last.claim(shard)
            if bodies is None:
                raise Wrong("no claim after the storm")
            found += bodies
        if len(found) != len(set(found)):
            raise Wrong("a frame is there twice")
        if not self.acknowledged.keys() <= set(found):
            raise Wrong("an acknowledged frame is lost")
        if self.refused.keys() & set(found):
            raise Wrong("a frame was reported as failed, and is there")
        heads = Counter(body.rpartition(b".")[0] for body in found)
        for head, count in heads.items():
            if count != int(head.rpartition(b"/")[2]):
                raise Wrong(f"of round {head!r} only {count} frames are there")


def storms(seeds: int) -> Iterator[Sea]:
    for seed in range(seeds):
        sea = Sea(seed)
        sea.run()
        yield sea


def test_no_fault_of_the_store_tears_a_round() -> None:
    answers: Counter[type] = Counter()
    for sea in storms(SEEDS):
        answers += sea.answers
    assert all(answers[one] > SEEDS / 2 for one in (Committed, Unclear, RoundRefused, Fenced)), (
        answers
    )


# A process knows what it holds here, so no round has a stray in it.
FOUND = [one for one in ROUND_FAULTS if one.broken.__name__ != "GoesWithoutTheStray"]


@pytest.mark.parametrize("fault", FOUND, ids=[fault.broken.__name__ for fault in FOUND])
def test_a_planted_mistake_is_found(fault: Fault) -> None:
    with planted(fault), pytest.raises((Wrong, JournalBroken, JournalRefused)):
        for _ in storms(PLANTED_SEEDS_MAX):
            pass
