"""A shard's part of the journal, read without owning it.

Turns rows into checkpoint parts and committed frames, and reports everything that does not fit
together, where the owner would stop at the first. Nothing is claimed or written, because the shard
may have a running owner. What the owner changed during the reading is read again, and is no
finding.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from peloton.runtime.core.journal import chain, fencing, segments
from peloton.runtime.core.journal.fencing import ProtocolCoroutine
from peloton.runtime.core.journal.statements import (
    FrameRow,
    PartRow,
    ReadBucket,
    ReadRegister,
    ReadSegment,
    ReadStatement,
    RegisterRow,
    RowsFound,
)
from peloton.runtime.ports import BUCKET_PARTS, Frame, ShardId, Unreachable

READS_MAX = 5
"""How often a shard is read at most, if its owner moves the floor each time."""


class Finding(Struct, frozen=True, gc=False):
    """A finding in the journal; without position or key it concerns no single frame or key."""

    shard: ShardId
    text: str
    position: int = 0
    key: str = ""

    def __str__(self) -> str:
        where = f"{self.shard.group}-{self.shard.number}"
        where += f" position {self.position}" if self.position else ""
        where += f" {self.key}" if self.key else ""
        return f"{where}: {self.text}"


class StoredFrame(Struct, frozen=True, gc=False):
    """A committed frame as it is stored."""

    position: int
    epoch: int
    op: bytes
    prev_chain: bytes
    chain: bytes
    body: bytes


class Contents(Struct, frozen=True, gc=False):
    """All that is stored of a shard. `frames` includes frames below the floor that are not cut."""

    shard: ShardId
    register: RegisterRow
    manifest: chain.Manifest | None
    parts: tuple[bytes, ...]
    frames: tuple[StoredFrame, ...]
    findings: tuple[Finding, ...]

    @property
    def tail(self) -> list[Frame]:
        """The frames that recovery folds."""
        floor = self.register.floor
        return [Frame(each.position, each.body) for each in self.frames if each.position > floor]


def read_shard(shard: ShardId) -> ProtocolCoroutine[Contents | None]:
    """Read everything about a shard; return None if there is no such shard. Raises Unreachable."""
    for _ in range(READS_MAX):
        row = yield from _register(shard)
        if row is None:
            return None
        contents = yield from _contents(shard, row)
        if not contents.findings:
            return contents
        after = yield from _register(shard)
        if after is not None and _is_unchanged(row, after):
            return contents
    raise Unreachable(f"{shard}: its owner moved the floor {READS_MAX} times while it was read")


def _is_unchanged(row: RegisterRow, after: RegisterRow) -> bool:
    return (row.epoch, row.floor, row.floor_epoch) == (after.epoch, after.floor, after.floor_epoch)


def _ask(statement: ReadStatement) -> ProtocolCoroutine[tuple[object, ...]]:
    (reply,) = yield (statement,)
    if not isinstance(reply, RowsFound):
        raise Unreachable(getattr(reply, "text", repr(reply)))
    return reply.rows


def _register(shard: ShardId) -> ProtocolCoroutine[RegisterRow | None]:
    rows = yield from _ask(ReadRegister(shard))
    return rows[0] if rows and isinstance(rows[0], RegisterRow) else None


def _contents(shard: ShardId, row: RegisterRow) -> ProtocolCoroutine[Contents]:
    findings = [Finding(shard, text) for text in wrong_with(row)]
    manifest: chain.Manifest | None = None
    parts: tuple[bytes, ...] = ()
    if row.floor > 0:
        manifest, parts = yield from _checkpoint(shard, row, findings=findings)
    frames = yield from _frames(shard, row, findings=findings)
    if row.floor == 0:
        note: bytes | None = chain.GENESIS
    else:
        note = manifest.chain if manifest is not None else None
    findings += _follow(shard, row, frames=frames, note=note)
    return Contents(shard, row, manifest, parts, tuple(frames), tuple(findings))


def wrong_with(row: RegisterRow) -> list[str]:
    """Return the values of a register that no owner could have written."""
    wrong = []
    if row.epoch < 0 or row.last_position < 0 or row.floor < 0:
        wrong.append(f"register: epoch {row.epoch}, position {row.last_position}, below 0")
    if row.floor > row.last_position:
        wrong.append(f"register: floor {row.floor} is beyond position {row.last_position}")
    if row.floor_epoch > row.epoch or (row.floor > 0) != (row.floor_epoch > 0):
        wrong.append(f"register: floor {row.floor} of epoch {row.floor_epoch}, epoch {row.epoch}")
    if row.last_position and not row.epoch:
        wrong.append(f"register: position {row.last_position} without any claim")
    starts = [start.first for start in row.segments]
    if row.damage:
        wrong.append(f"register: {row.damage}")
    elif starts != sorted(set(starts)) or starts[-1:] > [row.last_position]:
        wrong.append(f"register: segments begin at {starts}, position {row.last_position}")
    elif row.last_position > row.floor and (not starts or starts[0] > row.floor + 1):
        wrong.append(f"register: no segment is listed for position {row.floor + 1}")
    if len(row.op) != chain.OP_BYTES:
        wrong.append(f"register: the last write has a name of {len(row.op)} bytes")
    if (row.last_chain == chain.GENESIS) != (row.last_position == 0):
        wrong.append(f"register: the chain does not fit position {row.last_position}")
    return wrong


# ---- the checkpoint ----


def _checkpoint(
    shard: ShardId, row: RegisterRow, *, findings: list[Finding]
) -> ProtocolCoroutine[tuple[chain.Manifest | None, tuple[bytes, ...]]]:
    """Read the parts at the floor; missing or damaged ones become findings."""
    bodies: dict[int, bytes] = {}
    number = total = 0

    def wrong(text: str) -> None:
        findings.append(Finding(shard, f"checkpoint {row.floor}: {text}"))

    while not total:
        bucket = number // BUCKET_PARTS
        rows = yield from _ask(ReadBucket(shard, row.floor, row.floor_epoch, bucket))
        for part in rows:
            if not isinstance(part, PartRow):
                continue
            if part.number != number:
                wrong(f"parts {number} to {part.number - 1} are missing")
            number = part.number + 1
            if not chain.intact(part):
                wrong(f"part {part.number} is not what was written")
                continue
            bodies[part.number] = part.body
            total = part.parts or total
        if not total and (not rows or number % BUCKET_PARTS):
            wrong(f"the parts from {number} on are missing")
            break
    if total not in (0, number):
        wrong(f"{number} parts, not {total}")
    first = bodies.pop(0, None)
    manifest = chain.unpack_manifest(first) if first is not None else None
    return manifest, tuple(bodies[at] for at in sorted(bodies))


# ---- frames ----


def _frames(
    shard: ShardId, row: RegisterRow, *, findings: list[Finding]
) -> ProtocolCoroutine[list[StoredFrame]]:
    """Return committed frames, ascending: the tail, and those below it without a gap."""
    rows = []
    for part in reversed([*segments.parts(row.segments, range(1, row.last_position + 1))]):
        some = yield from _ask(ReadSegment(shard, *part))
        if not some and part.last <= row.floor:
            break  # segments that are listed may be cut all the same
        rows.append(some)
    flat = tuple(each for some in reversed(rows) for each in some)
    picked = fencing.pick_frames(flat, epoch=row.epoch, tail=range(1, row.last_position + 1))
    by_position = {parts[0].position: parts for parts in picked}
    found, missing = [], []
    for position in range(row.last_position, 0, -1):
        frame = _whole(by_position.get(position, []))
        if frame is not None:
            found.append(frame)
        elif position > row.floor:
            missing.append(position)
        else:
            break
    findings += [
        Finding(shard, "no whole frame is there" + _upto(run), position=run[0])
        for run in _runs(reversed(missing))
    ]
    return found[::-1]


def _whole(parts: list[FrameRow]) -> StoredFrame | None:
    if not parts or [part.part for part in parts] != [*range(parts[0].parts)]:
        return None
    first = parts[0]
    body = b"".join(part.body for part in parts)
    return StoredFrame(first.position, first.epoch, first.op, first.prev_chain, first.chain, body)


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending positions as pairs of first and last."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs


def _upto(run: tuple[int, int]) -> str:
    return f", nor any up to {run[1]}" if run[1] > run[0] else ""


def _follow(
    shard: ShardId, row: RegisterRow, *, frames: list[StoredFrame], note: bytes | None
) -> list[Finding]:
    """Verify the hash chain over all frames; `note` is its value at the floor, if known."""
    found: list[Finding] = []
    value, at = (chain.GENESIS, 0) if frames and frames[0].position == 1 else (None, -1)
    if value is None and frames and frames[0].position == row.floor + 1:
        value, at = note, row.floor
    epoch = 0
    for frame in frames:
        where = (shard, frame.position)
        before = value if at == frame.position - 1 and value is not None else frame.prev_chain
        if frame.prev_chain != before:
            text = "it does not continue the chain of the frame before"
            found.append(Finding(shard, text, position=frame.position))
        if chain.link(frame.prev_chain, where, op=frame.op, body=frame.body) != frame.chain:
            found.append(Finding(shard, "it is not what was written", position=frame.position))
        if frame.epoch < epoch:
            text = f"it is of epoch {frame.epoch}, after one of {epoch}"
            found.append(Finding(shard, text, position=frame.position))
        value, at, epoch = frame.chain, frame.position, frame.epoch
        if at == row.floor and note is not None and value != note:
            found.append(Finding(shard, "the checkpoint was made of another frame", position=at))
    if at == row.last_position and value is not None and value != row.last_chain:
        found.append(Finding(shard, "the register knows another frame", position=at))
    return found
