"""A short workload of the toy kinds, by a client that repeats commands without an answer.

Only the checks at the end look into the daemon.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import Claimed, ShardId
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.vocabulary import Absent, Key, Message, Query, Unavailable, key
from tests.toy import messages as w
from tests.toy.daemon import panel
from tests.toy.hooked_rows import StoreCall
from tests.toy.kinds import KINDS, SIZES
from tests.toy.mortal import Fate, Mortal

COMMANDS: tuple[tuple[Key, Message], ...] = (
    (key("meter", 0), w.Build(100)),
    (panel("a"), w.Install(3)),
    (panel("b"), w.Install(2, (40, 60))),
    (panel("a"), w.Switch(True)),
    (panel("b"), w.Switch(True)),
    (key("note", "x"), w.Add(5)),
    (key("note", "x"), w.Close()),
    (panel("b"), w.Retire()),
    (key("note", "y"), w.Add(1)),
    (key("note", "x"), w.Add(3)),
    (key("note", "y"), w.Forget()),
    (panel("a"), w.Switch(False)),
    (panel("a"), w.Switch(True)),
)


class Story:
    """The workload against one mortal daemon."""

    def __init__(self, seed: int = 1, *, die_at: int = 0, bytes_min: int = 600) -> None:
        def dies(call: StoreCall, number: int) -> Fate | None:
            return Fate.DEATH if number == die_at else None

        self.mortal = Mortal(
            KINDS,
            Stepper(seed),
            sizes=SIZES,
            limits=DaemonLimits(checkpoint_bytes_min=bytes_min),
            on_call=dies,
        )
        self.answers: list[Any] = []

    def ask(self, to: Key, message: Message | Query, request: str = "") -> Any:
        """Ask, and ask again with the same key, until there is an answer."""
        mortal = self.mortal
        name = (request, request.encode()) if request else None
        for _ in range(20):
            mortal.run(lambda: mortal.root.opened.done() and mortal.root.health()[0])
            life = mortal.lives
            future = mortal.region.ask(to, message, request=name)
            mortal.run(lambda: future.done() or mortal.lives > life)  # noqa: B023
            if future.done() and not isinstance(future.result(), Unavailable):
                return future.result()
        raise AssertionError(f"{message} was never answered")

    def tell_all(self) -> None:
        """Every command, in order; then until every goal is reached."""
        for number, (to, message) in enumerate(COMMANDS):
            self.answers.append(self.ask(to, message, f"r{number}"))
        self.mortal.run(self.calm)

    def again(self) -> list[Any]:
        """The answers to the same commands, sent once more with the same keys."""
        return [self.ask(to, message, f"r{at}") for at, (to, message) in enumerate(COMMANDS)]

    def calm(self) -> bool:
        """Whether all goals are reached and nobody owes anything."""
        shards = self.mortal.shards()
        if len(shards) < sum(SIZES.values()):
            return False
        cells = {at: state for shard in shards.values() for at, state in _cells(shard)}
        heard, grid = cells.get(key("note", "a")), cells.get(key("note", "grid"))
        if panel("b") in cells or heard is None or grid is None:
            return False
        quiet = not any(shard.busy or shard.turns.resolver.owed_sends for shard in shards.values())
        return quiet and heard.heard == 3 and grid.heard == 3

    def check(self) -> None:
        """What must hold at the end, whatever happened before."""
        assert self.ask(panel("a"), w.Show()) == 3
        assert self.ask(key("grid", 0), w.Show()) == 3
        assert self.ask(key("note", "x"), w.Show()) == w.Total(8)
        assert self.ask(key("note", "y"), w.Show()) == Absent(key("note", "y"))
        assert self.mortal.root.health() == (True, [])
        assert not self.mortal.root.exited.done()
        self.mortal.run(self.calm)
        for name, shard in self.mortal.shards().items():
            same_indexes(shard)
            assert digest(self.replay(name)) == digest(shard), name

    def replay(self, name: ShardId) -> Shard:
        """What the next owner would recover; the shard that lives is fenced by this."""
        codec, sharding = Codec(KINDS), Sharding(KINDS, SIZES)
        shard = Shard(name, KINDS, sharding=sharding, codec=codec)
        journal = FencedRows(self.mortal.store, process=b"replay".rjust(16))
        claimed = journal.claim(name, "")
        assert isinstance(claimed, Claimed)
        parts = list(journal.read_checkpoint(name))
        restore(shard, parts, frames=list(journal.read_tail(name)), floor=claimed.floor)
        return shard

    def trace(self) -> str:
        """A hash of every step, and of every byte that was journaled."""
        stepper = self.mortal.stepper
        for (name, _), rows in sorted(self.mortal.store.journal.items()):
            for position, row in sorted(rows.items()):
                stepper.note(f"{name} {position} {row.body.hex()}")
        return stepper.trace()


def same_indexes(shard: Shard) -> None:
    """Every index is what its children say."""
    twin = Population(KINDS)
    twin.cells, twin.crowds = shard.population.cells, shard.population.crowds
    twin.rebuild()
    for name, index in shard.population.indexes.items():
        assert twin.indexes.get(name) == index, name
    assert twin.indexes.keys() <= shard.population.indexes.keys()


def _cells(shard: Shard) -> list[tuple[Key, Any]]:
    return list(shard.population.cells.items())
