"""R16: a reader of a change feed gets each position once, in order, or is told of a gap.

Turns the pages that readers got and the committed frames into a `Contradiction` or nothing. A page
has to show what was journaled between its mark and the one before; after a gap, from the first
change that it shows on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from peloton.chaos.cluster.world.feed_readers import FeedReader, Read, wanted
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.records import RECORDS
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Fact, Key

RUNTIME = frozenset(RECORDS.values())
"""Facts of the runtime itself, which no feed shows."""


class Journaled(NamedTuple):
    """A change, as its frame has it."""

    at: tuple[int, int]
    key: Key
    facts: tuple[Fact, ...]
    members: int


class FeedCheck:
    """The expected feeds of all shards, and what readers got of them."""

    def __init__(self, readers: list[FeedReader], codec: Codec) -> None:
        self.pages = 0
        self.gaps = 0
        self._readers = readers
        self._codec = codec
        self._changes: dict[ShardId, list[Journaled]] = {}

    def apply(self, frame: DecodedFrame) -> None:
        """Take a committed frame."""
        changes = self._changes.setdefault(frame.shard, [])
        k = 0
        for entry in frame.entries:
            facts = tuple(fact for fact in entry.facts if type(fact) not in RUNTIME)
            if facts:
                changes.append(Journaled((frame.position, k), entry.key, facts, entry.members))
                k += 1

    def step(self) -> None:
        """Judge the pages since the last step. Raises `Contradiction`."""
        for reader in self._readers:
            for read in reader.pages:
                self._judge(reader, read)
            reader.pages.clear()

    def _judge(self, reader: FeedReader, read: Read) -> None:
        page, after = read.page, read.after
        name = f"R16 {reader.shard} after {after}"
        self.pages += 1
        if page.mark < after:
            raise Contradiction(f"{name}: the next page is to begin at {page.mark}")
        shown = [(position, k) for position, k, _, _ in page.rows]
        if page.gap:
            self.gaps += 1
            if not shown:
                return
            after = max(after, (shown[0][0], -1))  # all of that frame, and all behind it
        expected = self._between(reader, after, upto=page.mark)
        due = [each.at for each in expected]
        if shown != due:
            at = next(i for i in range(len(due) + 1) if shown[i : i + 1] != due[i : i + 1])
            text = f"expected {due[at : at + 3]}, got {shown[at : at + 3]}"
            raise Contradiction(f"{name}: change {at} of {len(due)} is wrong: {text}")
        for change, (_, _, _, row) in zip(expected, page.rows, strict=True):
            entry = self._codec.decode_entry(row)
            if (entry.key, entry.facts, entry.members) != change[1:]:
                raise Contradiction(f"{name}: {change.at} is {change}, shown as {entry}")

    def _between(
        self, reader: FeedReader, after: tuple[int, int], *, upto: tuple[int, int]
    ) -> Sequence[Journaled]:
        changes = self._changes.get(reader.shard, [])
        begin = bisect_right(changes, after, key=lambda each: each.at)
        end = bisect_right(changes, upto, key=lambda each: each.at)
        return [each for each in changes[begin:end] if wanted(each.key, reader.kinds)]

    def caught_up(self) -> bool:
        """Return whether every reader has seen all that was journaled for it."""
        return not any(map(self._left, self._readers))

    def _left(self, reader: FeedReader) -> bool:
        mine = [each for each in self._changes.get(reader.shard, []) if
                wanted(each.key, reader.kinds)]  # fmt: skip
        return reader.mark is None or bool(mine and reader.mark < mine[-1].at)
