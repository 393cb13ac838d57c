"""The journal of a running cluster, read beside its owners: what was committed, and what follows.

Turns a Cassandra into committed frames, kept from the first one on, and into shards as a next
owner would recover them. It uses the scan of the simulated world over rows that are really read,
so each rule of the journal stands written once. It must not claim, nor write anything.
"""

from __future__ import annotations

import threading
from typing import Any, cast

from peloton.chaos.cluster.machines import Machines
from peloton.chaos.nemesis.fleet import SHARDS
from peloton.chaos.nemesis.timeline import Timeline
from peloton.kinds import kinds
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.digest import digest
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.statements import ReadRegister, RegisterRow, Rows, RowsFound, Statement
from peloton.runtime.ports import ShardId, Unreachable
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction, Maker, Scan
from peloton.runtime.simulation.store import SimulatedStore
from peloton.runtime.vocabulary import Key, kind_of

LOOK_S = 1.0
SHARD_IDS = tuple(ShardId(group, at) for group, count in SHARDS.items() for at in range(count))


def again(codec: Codec, body: bytes) -> bytes:
    """The body of a frame as this program would have written it."""
    at, entries = codec.decode_frame(body)
    return codec.encode_frame(at, [codec.encode_entry(entry) for entry in entries])


class Registers:
    """All registers, as of the last look."""

    def __init__(self) -> None:
        self.registers: dict[ShardId, RegisterRow] = {}


class Store:
    """What a scan asks of a simulated store, answered by a real one."""

    def __init__(self, rows: Rows) -> None:
        self.registers = Registers()
        self.cells = self
        self._rows = rows

    def refresh(self) -> None:
        """Read all registers. Raises Unreachable."""
        for shard in SHARD_IDS:
            rows = self.read(ReadRegister(shard))
            if rows and isinstance(rows[0], RegisterRow):
                self.registers.registers[shard] = rows[0]

    def read(self, ask: Statement) -> tuple[object, ...]:
        """Rows as they are now. Raises Unreachable."""
        (reply,) = self._rows.run([ask])
        if not isinstance(reply, RowsFound):
            raise Unreachable(str(reply))
        return reply.rows


class JournalWatch:
    """Looks at all journals once a second, from a thread of its own."""

    def __init__(self, rows: Rows, timeline: Timeline) -> None:
        self._timeline = timeline
        self._store = Store(rows)
        store = cast(SimulatedStore, self._store)
        self.kinds = kinds(SHARDS)
        self.sharding = Sharding(self.kinds, SHARDS)
        self.scan = Scan(store)
        self._maker = Maker(store, self.kinds, sharding=self.sharding)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """All that was committed since the last look. Raises Unreachable."""
        self._store.refresh()
        try:
            self.scan.look()
        except Contradiction as wrong:
            self._timeline.find(str(wrong))

    def epochs(self) -> dict[ShardId, int]:
        """The epoch of every shard right now. Raises Unreachable."""
        found = {}
        for shard in SHARD_IDS:
            rows = self._store.read(ReadRegister(shard))
            if rows and isinstance(rows[0], RegisterRow):
                found[shard] = rows[0].epoch
        return found

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self.look()
            except Unreachable:
                pass  # paused or killed just now; what is missed is read at the next look

    # ---- what follows from it ----

    def frames(self) -> list[DecodedFrame]:
        """All of all shards, in the order in which they were made.

        All daemons of one machine have one clock, and what a frame says leaves only when it is
        committed: so whoever heard of it made its own frame later.
        """
        codec = Codec(self.kinds)
        found = []
        for shard in SHARD_IDS:
            for frame in self.scan.frames.get(shard, []):
                at, entries = codec.decode_frame(frame.body)
                found.append(DecodedFrame(shard, frame.position, at, entries))
        return sorted(found, key=lambda frame: (frame.at, frame.shard, frame.position))

    def foreign(self) -> int:
        """How many frames say more than this program understands: they are of a later version."""
        codec = Codec(self.kinds)
        bodies = [frame.body for shard in SHARD_IDS for frame in self.scan.frames.get(shard, [])]
        return sum(again(codec, body) != body for body in bodies)

    def recovered(self) -> dict[ShardId, Shard]:
        """Every shard as its next owner would find it; read twice, and made from nothing as well.

        Finds where the three differ.
        """
        made = {}
        for shard in SHARD_IDS:
            core = self._maker.recovered(shard)
            again = self._maker.recovered(shard)
            whole = self._maker.replayed(shard, self.scan.frames.get(shard, []))
            if digest(core) != digest(again):
                self._timeline.find(f"R5 {shard}: two recoveries differ")
            if digest(core) != digest(whole):
                text = "a replay from nothing is not what its checkpoint and tail say"
                self._timeline.find(f"R5 {shard}: {text}")
            self.scan.reread(shard)
            made[shard] = core
        return made


class Recovered:
    """The recovered shards, as checks of a quiet cluster look at them."""

    def __init__(self, shards: dict[ShardId, Shard], machines: Machines) -> None:
        self.machines = machines
        self._shards = shards

    def cells(self, kind: str) -> dict[Key, Any]:
        """Every state of one kind."""
        return {
            key: state
            for core in self._shards.values()
            for key, state in core.population.cells.items()
            if kind_of(key) == kind
        }

    def crowds(self) -> dict[Key, Any]:
        """Every crowd of tasks."""
        return {
            key: crowd
            for core in self._shards.values()
            for key, crowd in core.population.crowds.items()
        }
