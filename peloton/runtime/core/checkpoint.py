"""Checkpoints: a shard's whole state, written in parts while the shard goes on.

When the tail has outgrown the last checkpoint, or the journal has scattered it over many segments:
parts, then the floor, then cuts of older frames. The checkpoint is cut at the end of a frame:
states are immutable values, so a shallow copy of the tables is enough, and a crowd is copied at its
first change after. Writing begins when that frame is durable. It holds cells, crowds, remembered
replies and dead letters; never mailboxes, timers, owed sends or indexes, which are derived.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.entities.records import SHARD_KEY, CheckpointCut
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.ports import CheckpointPart, Cut, Floor
from peloton.runtime.vocabulary import Key

CHECKPOINT_BYTES_MIN = 1024 * 1024
PART_BYTES = 512 * 1024

PIECE_BYTES_MAX = 256 * 1024
"""Larger items are split: a part has up to PART_BYTES, and the piece that passed it, no more."""

ENTITY, RECORD, MORE = 0, 1, 2


class CheckpointItem(NamedTuple):
    """An item of a checkpoint: an entity, or facts of the runtime about one.

    A `MORE` is a first piece of an item that the next one continues.
    """

    form: int
    body: bytes


class Checkpointer:
    """Writes the checkpoints of one shard, one at a time."""

    def __init__(
        self,
        codec: Codec,
        bytes_min: int = CHECKPOINT_BYTES_MIN,
        *,
        part_bytes: int = PART_BYTES,
        piece_bytes_max: int = PIECE_BYTES_MAX,
    ) -> None:
        self._codec = codec
        self._bytes_min = bytes_min
        self._part_bytes = part_bytes
        self._piece_bytes_max = piece_bytes_max
        self._pieces: Iterator[CheckpointItem] | None = None
        self._position = 0
        self._number = 0
        self._written = 0
        self._safe = False
        self._floor_due = False
        self._floor_moves = False  # with the round that is under way
        self._cutting = False
        self._crowds: dict[Key, Crowd] = {}
        self.tail_bytes = 0
        self.last_bytes = 0
        self.scattered = False  # the tail, says the journal: it costs more to read than to replace
        self.counts = dict.fromkeys(("parts", "pieces"), 0)  # beyond the first, for metrics

    def note(self, turns: Turns) -> bool:
        """Return whether a checkpoint is cut at the end of this frame; if so, add the fact."""
        if self._pieces is not None or self._floor_due or self._cutting or not turns.rows:
            return False
        small = self.tail_bytes + turns.bytes <= max(self._bytes_min, self.last_bytes)
        if small and not self.scattered:
            return False
        turns.write(Entry(SHARD_KEY, (CheckpointCut(0, turns.now),)))
        return True

    def framed(self, size: int) -> None:
        """Count the bytes of a complete frame."""
        self.tail_bytes += size

    def cut(self, position: int, population: Population, *, records: list[Entry]) -> None:
        """Keep the whole state as of the frame just completed, before the next turn.

        `records` are the runtime's own facts: remembered replies, dead letters, epochs.
        """
        self._position, self._number, self._written = position, 0, 0
        self._safe = False
        self.tail_bytes = 0
        self._crowds = population.cut_crowds = dict(population.crowds.warm)
        cells = list(population.cells.warm.items())
        cold = [*population.cells.cold.values(), *population.crowds.cold.values()]
        since = dict(population.since)
        bodies = itertools.chain(
            (
                CheckpointItem(ENTITY, self._codec.encode_cell(k, s, since=since.get(k, 0.0)))
                for k, s in cells
            ),
            self._encoded_crowds(),
            (CheckpointItem(ENTITY, body) for body in cold),
            (CheckpointItem(RECORD, self._codec.encode_entry(entry)) for entry in records),
        )
        self._pieces = fitting(bodies, self._piece_bytes_max)

    def pieces(
        self, floor_may_move: bool = True
    ) -> tuple[tuple[CheckpointPart, ...], Floor | None, Cut | None]:
        """Return what the next round writes: a part, or the floor, or a cut."""
        if self._pieces is not None and self._safe:
            return (self._part(),), None, None
        if self._floor_due:
            self._floor_moves = floor_may_move
            return (), Floor(self._position) if floor_may_move else None, None
        if self._cutting:
            return (), None, Cut()
        return (), None, None

    def committed(self, more_to_cut: bool, *, scattered: bool = False) -> None:
        """Continue after the last round has become durable."""
        # A round that writes nothing tells nothing, and only a floor makes the tail shorter.
        floored = self._floor_due and self._floor_moves
        self.scattered = scattered or (self.scattered and not floored)
        if self._floor_due and self._floor_moves:
            self._floor_due = self._floor_moves = False
            self._cutting = True
        elif self._cutting:
            self._cutting = more_to_cut
        if self._pieces is not None:
            self._safe = True
        elif self._position and self._number and not self._cutting:
            self._floor_due = True
            self._number = 0

    @property
    def busy(self) -> bool:
        """Whether the next round has something to write."""
        return (self._pieces is not None and self._safe) or self._floor_due or self._cutting

    def _part(self) -> CheckpointPart:
        assert self._pieces is not None
        batch: list[CheckpointItem] = []
        size = 0
        last = True
        for piece in self._pieces:
            batch.append(piece)
            self.counts["pieces"] += piece.form == MORE
            size += len(piece.body)
            if size >= self._part_bytes:
                last = False
                break
        body = encode(batch)
        part = CheckpointPart(self._position, self._number, body, last=last)
        self.counts["parts"] += self._number > 0
        self._number += 1
        self._written += len(body)
        if last:
            self._pieces = None
            self.last_bytes = self._written
        return part

    def _encoded_crowds(self) -> Iterator[CheckpointItem]:
        for key in [*self._crowds]:
            yield CheckpointItem(ENTITY, self._codec.encode_crowd(self._crowds.pop(key)))


def fitting(
    pieces: Iterator[CheckpointItem], most: int = PIECE_BYTES_MAX
) -> Iterator[CheckpointItem]:
    """Yield the items, with those that are too large split into pieces that fit a part."""
    for form, body in pieces:
        for start in range(0, len(body) - most, most):
            yield CheckpointItem(MORE, body[start : start + most])
        rest = max(len(body) - 1, 0) // most * most
        yield CheckpointItem(form, body[rest:])


def read_parts(parts: Iterable[bytes]) -> Iterator[CheckpointItem]:
    """Yield the items of the parts of a checkpoint, with split ones joined."""
    begun: list[bytes] = []
    for part in parts:
        for form, body in msgspec.msgpack.decode(part, type=list[CheckpointItem]):
            begun.append(body)
            if form != MORE:
                yield CheckpointItem(form, b"".join(begun))
                begun = []
