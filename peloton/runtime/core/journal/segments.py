"""Segments: the partitions that frames are written to, and the list of those a shard's lie in.

A segment belongs to one process, and holds frames of all shards that the process owns: so the
frames of a round are one write of one partition. Its name is drawn by the process, unique for ever,
and its first frame makes it. Each register lists the segments of its shard's frames, and the write
that commits the first frame in a segment adds it: so the list is always that of the committed
frames.

What may lie in a segment of rows that no list covers, and why that does no harm: a frame that was
never committed, at a position that is another frame's. Recovery reads the listed positions only,
and of two frames at one position takes that of the higher epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from peloton.runtime.core.journal import chain
from peloton.runtime.core.journal.statements import SegmentStart

SEGMENT_FRAMES = 8192
"""Frames of all shards in one segment."""
SEGMENT_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of rows in one segment, the last frame not counted. It is a partition of the store, which
should stay far below 100 MB, and a recovery reads one shard's part of it at once."""
ROW_BYTES = 256
"""What a row takes beside its body, about."""
SWEEP_SEGMENTS = 4
"""Segments that are listed although they were cut, and cut once more with each floor: a late write
of a row makes a deleted one visible again."""
TAIL_SEGMENTS_MAX = 32
"""With a tail in more segments, a shard is told to make a checkpoint: each is a read of recovery.
A busy shard never gets there, and a quiet one beside busy ones would have a segment per frame."""

SegmentList = tuple[SegmentStart, ...]


class Segments:
    """Names of one process's segments, each unique; drawn and used by the thread that commits."""

    def __init__(self, process: bytes) -> None:
        self.process = process
        self._number = 0
        self._frames = 0
        self._bytes = 0

    def next(self, size: int) -> bytes:
        """Return the segment of the next frame, of so many bytes."""
        full = self._frames >= SEGMENT_FRAMES or self._bytes >= SEGMENT_BYTES_MAX
        if not self._number or full:
            self._number += 1
            self._frames = self._bytes = 0
        self._frames += 1
        self._bytes += size + ROW_BYTES
        return chain.op_name(self.process, self._number)


def extended(listed: SegmentList, start: SegmentStart, *, cut_to: int) -> SegmentList:
    """Return the list with a segment that begins at this position, without the oldest that are cut.

    Positions up to `cut_to` are cut.
    """
    cut = sum(1 for one in listed[1:] if one.first <= cut_to + 1)
    return (*listed[max(0, cut - SWEEP_SEGMENTS) :], start)


class SegmentPart(NamedTuple):
    """Positions of one shard in one segment."""

    segment: bytes
    first: int
    last: int


def parts(listed: SegmentList, tail: range) -> Iterator[SegmentPart]:
    """Yield the segments that hold these positions, in order."""
    ends = [*(one.first for one in listed[1:]), tail.stop]
    for start, end in zip(listed, ends, strict=False):
        first, last = max(start.first, tail.start), min(end, tail.stop) - 1
        if first <= last:
            yield SegmentPart(start.segment, first, last)


def ended(listed: SegmentList, *, after: int, upto: int) -> list[SegmentPart]:
    """Return the segments whose last position is above `after` and at most `upto`: what to delete.

    Each part covers one position more than was committed there, which is that of the next segment's
    first frame: an owner that was overtaken may have written a frame to it. A whole segment is
    never deleted: this process may own the shard again, and write to the same segment; and what a
    delete covers stays deleted if the next writer's clock is behind.
    """
    pairs = zip(listed, listed[1:], strict=False)
    return [
        SegmentPart(start.segment, start.first, end.first)
        for start, end in pairs
        if after < end.first - 1 <= upto
    ]


class Undecodable(Exception):
    """A stored list of segments that cannot be decoded; the text says why."""


class _Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Segments of one process that follow each other in a list."""

    process: Annotated[bytes, Meta(min_length=16, max_length=16)]
    starts: list[tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=0, le=2**63 - 1)]]]
    """First position and number, of each."""


def pack(listed: SegmentList) -> bytes:
    """Encode the list: the name of a process is stored once for all its segments in a row."""
    runs: list[_Run] = []
    for first, name in listed:
        process, number = name[:16], int.from_bytes(name[16:], "big")
        if not runs or runs[-1].process != process:
            runs.append(_Run(process, []))
        runs[-1].starts.append((first, number))
    return msgspec.msgpack.encode(runs)


def unpack(stored: bytes | None) -> SegmentList:
    """Decode the list of a register; an empty one stands for no frames. Raises Undecodable."""
    try:
        runs = msgspec.msgpack.decode(stored, type=list[_Run]) if stored else []
    except msgspec.MsgspecError as error:
        raise Undecodable(f"the list of segments does not decode: {error}") from error
    return tuple(
        SegmentStart(first, chain.op_name(run.process, number))
        for run in runs
        for first, number in run.starts
    )
