"""Checks whether a shard's part of the journal can be recovered, by recovering it in memory.

Turns what was read of a shard into findings: entries that do not decode, facts that do not fold,
entities that belong to another shard, `ended` rows that do not decode. The check goes on after a
finding, and changes nothing: the shard it makes is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from peloton.runtime.core.ended.ended_rows import open_row
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.offline.journal_reading import Contents, Finding
from peloton.runtime.core.recovery import CHECKPOINT, DERIVED, TAIL, Unrecoverable, restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import EndedRow, ShardId
from peloton.runtime.vocabulary import Key

_STAGES = {
    CHECKPOINT: "the checkpoint does not load",
    TAIL: "the facts do not fold",
    DERIVED: "the recovered state does not hold",
}


class Rehearsal:
    """Recovers shards of these kinds, of a cluster with groups of these sizes."""

    def __init__(self, kinds: Mapping[str, Kind], sizes: Mapping[str, int]) -> None:
        self.codec = Codec(kinds)
        self._kinds = kinds
        self._sharding = Sharding(kinds, sizes)
        self.groups = {kind.group for kind in kinds.values()}
        """The groups of which something can be recovered."""

    def check(self, contents: Contents) -> list[Finding]:
        """Return all findings about a shard, those of its reading included."""
        found = [*contents.findings, *self._undecoded(contents)]
        if any(each.position == 0 or each.position > contents.register.floor for each in found):
            return found  # what recovery would stop at is among the findings already
        return [*found, *self._recovery(contents)]

    def home(self, key: Key) -> ShardId | None:
        """Return the shard of a key; None for an unknown kind, or a group that has no shards."""
        home = attempt(self._sharding.shard_of, key)
        return None if isinstance(home, Failure) else home

    def recovered(self, contents: Contents) -> Shard:
        """Return the shard as its next owner would recover it. Raises `Unrecoverable`."""
        core = self._empty(contents)
        restore(core, contents.parts, frames=contents.tail, floor=contents.register.floor)
        return core

    def ended(self, shard: ShardId, rows: Iterable[EndedRow]) -> Iterator[Finding]:
        """Yield a finding for each final state that cannot be read."""
        for row in rows:
            if row.deleted:
                if row.body:
                    text = "its final state is marked as deleted"
                    yield Finding(shard, text, position=row.position, key=row.key)
                continue
            opened = attempt(open_row, self.codec, row.body, key=Key(row.key))
            if isinstance(opened, Failure):
                text = f"its final state cannot be read: {opened.error}"
                yield Finding(shard, text, position=row.position, key=row.key)

    # ---- decoding ----

    def _undecoded(self, contents: Contents) -> Iterator[Finding]:
        for frame in contents.frames:
            raw = attempt(self.codec.raw_frame, frame.body)
            if isinstance(raw, Failure):
                text = f"the frame does not decode: {raw.error}"
                yield Finding(contents.shard, text, position=frame.position)
                continue
            for row in raw[1]:
                entry = attempt(self.codec.entry, row)
                if isinstance(entry, Failure):
                    text = f"the entry does not decode: {entry.error}"
                    yield Finding(contents.shard, text, position=frame.position, key=row[0])

    # ---- folding ----

    def _recovery(self, contents: Contents) -> Iterator[Finding]:
        shard, core = contents.shard, self._empty(contents)
        try:
            restore(core, contents.parts, frames=contents.tail, floor=contents.register.floor)
        except Unrecoverable as error:
            text = f"{_STAGES[error.stage]}: {error.reason}"
            yield Finding(shard, text, position=error.position, key=error.key)
            return
        for key in [*core.population.cells, *core.population.crowds]:
            home = self._sharding.shard_of(key)
            if home != shard:
                yield Finding(shard, f"it belongs to {home.group}-{home.number}", key=key)

    def _empty(self, contents: Contents) -> Shard:
        core = Shard(contents.shard, self._kinds, sharding=self._sharding, codec=self.codec)
        core.epoch = contents.register.epoch
        return core
