"""Port `Rows`: what the fencing protocol needs of a store with conditional writes.

One class per statement of the protocol, so that a store prepares each once, and one class per
answer. The register has conditional writes only, the other tables have plain ones only: the two
must not be mixed on one row, because a store orders them by different clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, overload

from msgspec import Struct

from peloton.runtime.ports import ClusterRecord, EndedRow, ShardId

FEATURES = ShardId("features", 0)
"""Not a shard: the register of this name has the feature level as its epoch, which only rises.
Journals of the first version have none, and need no new table for it."""


class SegmentStart(NamedTuple):
    """The start of a segment, which has a shard's frames from this position to the next start."""

    first: int
    segment: bytes


class RegisterRow(Struct, frozen=True, gc=False):
    """The one conditional row of a shard; empty bytes and zeros after bootstrap."""

    epoch: int
    op: bytes
    owner: str
    last_position: int
    last_chain: bytes
    floor: int
    floor_epoch: int
    segments: tuple[SegmentStart, ...] = ()
    """Where the committed frames are that were not cut, ascending."""
    damage: str = ""
    """Why `segments` is not what is stored: that does not decode. Nobody can read the tail."""


class FrameRow(Struct, frozen=True, gc=False):
    """A part of a frame. Keyed by position, epoch and part, and never changed.

    `segment` is empty in journals without segments.
    """

    position: int
    epoch: int
    part: int
    parts: int
    op: bytes
    prev_chain: bytes
    chain: bytes
    body: bytes
    segment: bytes = b""


class PartRow(Struct, frozen=True, gc=False):
    """A part of a checkpoint; `parts` is the total in the last one and 0 in the others."""

    position: int
    epoch: int
    number: int
    parts: int
    body: bytes
    digest: bytes


class CreateCluster(Struct, frozen=True, gc=False):
    """Insert the cluster record if there is none."""

    record: ClusterRecord


class GrowCluster(Struct, frozen=True, gc=False):
    """Replace the record's shards by `after`, if they are `before`."""

    before: dict[str, int]
    after: dict[str, int]


class ReadCluster(Struct, frozen=True, gc=False):
    """Read the cluster record. Found: a Cluster, or nothing."""


class NameCluster(Struct, frozen=True, gc=False):
    """Write the cluster's name if none is written.

    The name has a row of its own: the record is only ever inserted.
    """

    name: str


class ReadName(Struct, frozen=True, gc=False):
    """Read the cluster's name. Found: its text, or nothing."""


class CreateRegister(Struct, frozen=True, gc=False):
    """Insert an empty register if there is none; that of the feature level begins at one."""

    shard: ShardId
    op: bytes
    epoch: int = 0


class ReadRegister(Struct, frozen=True, gc=False):
    """Read a register, linearizably. Found: a RegisterRow, or nothing."""

    shard: ShardId


class Bump(Struct, frozen=True, gc=False):
    """Write the next epoch, owner and op, if the epoch is `epoch` and the op is not `op`."""

    shard: ShardId
    epoch: int
    op: bytes
    owner: str
    above: int = 0

    @property
    def next_epoch(self) -> int:
        """The first epoch that is above both."""
        return max(self.epoch, self.above) + 1


class Advance(Struct, frozen=True, gc=False):
    """Write last_position, last_chain and op, if the epoch is `epoch` and the op is `expected`.

    With the first frame in a segment it also writes `segments`.
    """

    shard: ShardId
    epoch: int
    expected: bytes
    op: bytes
    position: int
    chain: bytes
    segments: tuple[SegmentStart, ...] | None = None


class MoveFloor(Struct, frozen=True, gc=False):
    """Write floor, floor_epoch (= epoch) and op, under the condition of Advance."""

    shard: ShardId
    epoch: int
    expected: bytes
    op: bytes
    floor: int


class Free(Struct, frozen=True, gc=False):
    """Clear the owner and write op, under the condition of Advance."""

    shard: ShardId
    epoch: int
    expected: bytes
    op: bytes


OwnerWrite = Advance | MoveFloor | Free
"""What the owner of a shard writes into its register."""


class WriteTogether(Struct, frozen=True, gc=False):
    """Writes of at least two registers as one conditional write: all of them apply, or none."""

    writes: tuple[OwnerWrite, ...]


class InsertRow(Struct, frozen=True, gc=False):
    """Plain insert; idempotent, since a key always has the same bytes."""

    shard: ShardId
    row: FrameRow | PartRow | EndedRow


class ReadSegment(Struct, frozen=True, gc=False):
    """Read a shard's frames in a segment, at positions from `first` to `last`.

    Found: FrameRows by position, then epoch (falling), then part.
    """

    shard: ShardId
    segment: bytes
    first: int
    last: int


class ReadBucket(Struct, frozen=True, gc=False):
    """Read one bucket of one checkpoint. Found: its PartRows by number."""

    shard: ShardId
    position: int
    epoch: int
    bucket: int


class ReadEnded(Struct, frozen=True, gc=False):
    """Read a final state. Found: the EndedRow of the highest position, or nothing."""

    shard: ShardId
    kind: str
    key: str


class DeleteSegment(Struct, frozen=True, gc=False):
    """Delete the shard's frames in a segment, up to this position."""

    shard: ShardId
    segment: bytes
    upto: int


class DeleteBucket(Struct, frozen=True, gc=False):
    """Delete a whole bucket of one checkpoint."""

    shard: ShardId
    position: int
    epoch: int
    bucket: int


RegisterWrite = CreateRegister | Bump | OwnerWrite
PlainWrite = InsertRow | DeleteSegment | DeleteBucket
ConditionalWrite = CreateCluster | GrowCluster | NameCluster | RegisterWrite | WriteTogether
ReadStatement = ReadCluster | ReadName | ReadRegister | ReadSegment | ReadBucket | ReadEnded
Statement = ConditionalWrite | PlainWrite | ReadStatement


@overload
def single_writes(statement: RegisterWrite | WriteTogether) -> tuple[RegisterWrite, ...]: ...
@overload
def single_writes(statement: Statement) -> tuple[Statement, ...]: ...


def single_writes(statement: Statement) -> tuple[Statement, ...]:
    """Return the statement itself, or the statements that travel in it."""
    return statement.writes if isinstance(statement, WriteTogether) else (statement,)


class Applied(Struct, frozen=True, gc=False):
    """A conditional statement found its condition true."""


class NotApplied(Struct, frozen=True, gc=False):
    """The condition of a statement was false. A store returns the condition's columns only.

    Both are None if there is no row.
    """

    epoch: int | None = None
    op: bytes | None = None


class OtherRefused(Struct, frozen=True, gc=False):
    """A floor that was moved together with others was not, though its own condition was true.

    This copy of the write has done nothing, and will not: a condition of another is false for good.
    """


class NoneApplied(Struct, frozen=True, gc=False):
    """A condition of a `WriteTogether` was false; `registers` has each write's register."""

    registers: tuple[NotApplied, ...]


class WriteStored(Struct, frozen=True, gc=False):
    """A plain statement is durable."""


class RowsFound(Struct, frozen=True, gc=False):
    """The rows that a read found, in order."""

    rows: tuple[object, ...] = ()


class StatementFailed(Struct, frozen=True, gc=False):
    """A statement failed or timed out; it may take effect, now or later."""

    text: str


StatementReply = (
    Applied | NotApplied | OtherRefused | NoneApplied | WriteStored | RowsFound | StatementFailed
)


class Rows(Protocol):
    """A store with linearizable conditional writes of one row, and plain rows beside them.

    A store must not retry by itself: a hidden second copy makes our own success look like a
    refusal.
    """

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """Run statements in any order, perhaps concurrently; replies in the order given."""

    def close(self) -> None: ...
