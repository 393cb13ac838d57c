"""The journal of a running cluster, read beside its owners: committed frames and their state.

Turns a Cassandra into committed frames, kept from the first one on, and into shards as a next owner
would recover them. It uses the scan of the simulated world over rows that are really read, so each
rule of the journal is written only once. It claims and writes nothing, because the journal has
owners.
"""

from __future__ import annotations

import threading
import time
from typing import Any, cast

from peloton.assembly.kinds import kinds
from peloton.chaos.cluster.world.machines import Machines
from peloton.chaos.nemesis.fleet import SHARDS
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.journal.statements import (
    ReadRegister,
    RegisterRow,
    Rows,
    RowsFound,
    Statement,
)
from peloton.runtime.core.offline.digest import alike
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId, Unreachable
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction, Maker, Scan
from peloton.runtime.simulation.store import SimulatedStore
from peloton.runtime.vocabulary import Key, kind_of

POLL_S = 1.0
UNORDERED_S = 0.25
UNORDERED_POLLS = 1.5
FAR_S = 1800.0
SHARD_IDS = tuple(ShardId(group, at) for group, count in SHARDS.items() for at in range(count))


def again(codec: Codec, body: bytes) -> bytes:
    """Return the body of a frame as this program would have written it."""
    at, entries = codec.decode_frame(body)
    return codec.encode_frame(at, [codec.encode_entry(entry) for entry in entries])


class Registers:
    """All registers, as of the last poll."""

    def __init__(self) -> None:
        self.registers: dict[ShardId, RegisterRow] = {}


class Store:
    """A real store with the methods of a simulated one that a scan uses."""

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

    def read(self, statement: Statement) -> tuple[object, ...]:
        """Return rows as they are now. Raises Unreachable."""
        (reply,) = self._rows.run([statement])
        if not isinstance(reply, RowsFound):
            raise Unreachable(str(reply))
        return reply.rows


class JournalWatch:
    """Polls all journals once a second, from a thread of its own."""

    def __init__(self, rows: Rows, timeline: Timeline) -> None:
        self._timeline = timeline
        self._store = Store(rows)
        store = cast(SimulatedStore, self._store)
        self.kinds = kinds(SHARDS)
        self.sharding = Sharding(self.kinds, SHARDS)
        self.scan = Scan(store)
        self._maker = Maker(store, self.kinds, sharding=self.sharding)
        self.clocks_differ = False
        """Whether the daemons' clocks tell no order of their frames."""
        self._polled_s: list[float] = []  # the machine's time at each poll
        self._seen: dict[ShardId, list[int]] = {}  # of each frame the poll that found it
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._over.set()
        self._thread.join()

    def poll(self) -> None:
        """Read all that was committed since the last poll. Raises Unreachable."""
        now_s, number = time.time(), len(self._polled_s)
        self._store.refresh()
        try:
            self.scan.poll()
        except Contradiction as wrong:
            self._timeline.find(str(wrong))
        finally:
            for shard, frames in self.scan.frames.items():
                seen = self._seen.setdefault(shard, [])
                seen.extend([number] * (len(frames) - len(seen)))
        # Not after half a poll: the cause of a frame is found by the next whole poll at the latest.
        self._polled_s.append(now_s)

    def epochs(self) -> dict[ShardId, int]:
        """Return the epoch of every shard right now. Raises Unreachable."""
        found = {}
        for shard in SHARD_IDS:
            rows = self._store.read(ReadRegister(shard))
            if rows and isinstance(rows[0], RegisterRow):
                found[shard] = rows[0].epoch
        return found

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                self.poll()
            except Unreachable:
                pass  # paused or killed just now; the next poll reads what was missed

    # ---- what follows from the frames ----

    def frames(self) -> list[DecodedFrame]:
        """Return the frames of all shards, in about the order in which they were made.

        All daemons of one machine have one clock. A frame has the time at which its first turn was
        taken, and takes more for `GATHERS_S_MAX` at most: so of two of which one was caused by the
        other the later one may come first, but not by more (`unordered`).

        If clocks were moved, `at` is the number of the poll that found the frame.
        """
        codec = Codec(self.kinds)
        found = []
        for shard in SHARD_IDS:
            for index, frame in enumerate(self.scan.frames.get(shard, [])):
                at, entries = codec.decode_frame(frame.body)
                at = float(self._seen[shard][index]) if self.clocks_differ else at
                found.append(DecodedFrame(shard, frame.position, at, entries))
        return sorted(found, key=lambda frame: (frame.at, frame.shard, frame.position))

    @property
    def unordered(self) -> float:
        """The distance of times below which frames may be in a wrong order."""
        return UNORDERED_POLLS if self.clocks_differ else UNORDERED_S

    def of_moved_clocks(self) -> int:
        """Return how many frames have a time far from the machine's at their discovery."""
        codec, count = Codec(self.kinds), 0
        for shard, polls in self._seen.items():
            for frame, poll in zip(self.scan.frames[shard], polls, strict=True):
                at, _ = codec.decode_frame(frame.body)
                found_s = self._polled_s[min(poll, len(self._polled_s) - 1)]
                count += abs(at - found_s) > FAR_S
        return count

    def foreign(self) -> int:
        """Return how many frames have more in them than this program understands."""
        codec = Codec(self.kinds)
        bodies = [frame.body for shard in SHARD_IDS for frame in self.scan.frames.get(shard, [])]
        return sum(again(codec, body) != body for body in bodies)

    def recovered(self) -> dict[ShardId, Shard]:
        """Return every shard as its next owner would recover it.

        Each is recovered twice, and replayed from its first frame; a difference is a finding.
        """
        made = {}
        for shard in SHARD_IDS:
            core = self._maker.recovered(shard)
            again = self._maker.recovered(shard)
            whole = self._maker.replayed(shard, self.scan.frames.get(shard, []))
            if not alike(core, again):
                self._timeline.find(f"R5 {shard}: two recoveries differ")
            if not alike(core, whole):
                text = "a replay of all frames differs from its checkpoint and tail"
                self._timeline.find(f"R5 {shard}: {text}")
            self.scan.reread(shard)
            made[shard] = core
        return made


class Recovered:
    """The recovered shards, as a `ClusterView` for the checks of a quiet cluster."""

    def __init__(self, shards: dict[ShardId, Shard], machines: Machines) -> None:
        self.machines = machines
        self._shards = shards

    def cells(self, kind: str) -> dict[Key, Any]:
        """Return every state of one kind."""
        return {
            key: state
            for core in self._shards.values()
            for key, state in core.population.cells.items()
            if kind_of(key) == kind
        }

    def crowds(self) -> dict[Key, Any]:
        """Return every crowd of tasks."""
        return {
            key: crowd
            for core in self._shards.values()
            for key, crowd in core.population.crowds.items()
        }
