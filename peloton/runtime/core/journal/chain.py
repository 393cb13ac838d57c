"""The hash chain over a shard's frames, and digests of checkpoints: detection, not protection.

Every frame's chain value covers the one before it, so two histories that differ anywhere differ at
the end, and the register, which has the last value, decides which of them is real. If a store lost
or mixed up rows, the shard stops instead of diverging. What a mismatch means is decided by
`fencing`, because the epoch has to be read first.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec import Struct

from peloton.runtime.core.journal.statements import FrameRow, PartRow
from peloton.runtime.ports import ShardId

GENESIS = bytes(32)
OP_BYTES = 24


def op_name(process: bytes, count: int) -> bytes:
    """Return the name of a conditional write, never reused.

    The name contains the process: else two claimers would each take the other's bump for their own.
    """
    if len(process) != OP_BYTES - 8:
        raise ValueError(f"the name of a process has 16 bytes, got {len(process)}")
    return process + count.to_bytes(8, "big")


def shard_bytes(shard: ShardId) -> bytes:
    """Return a shard's name behind its length, so that no two shards have equal inputs."""
    name = f"{shard.group}-{shard.number}".encode()
    return len(name).to_bytes(2, "big") + name


def link(previous: bytes, where: tuple[ShardId, int], *, op: bytes, body: bytes) -> bytes:
    """Return the chain value of the frame at `where` (shard, position), committed by `op`."""
    shard, position = where
    head = previous + shard_bytes(shard) + position.to_bytes(8, "big")
    return sha256(head + len(op).to_bytes(2, "big") + op + sha256(body).digest()).digest()


class Manifest(Struct, frozen=True, array_like=True, gc=False):
    """The first part of every checkpoint, written by the journal itself.

    `chain` is the chain value at the checkpoint's position, from which the tail continues. A cut
    keeps the previous checkpoint and drops those before it.
    """

    chain: bytes
    previous: tuple[int, int, int]
    """Position, epoch and number of parts; (0, 0, 0) if there is none."""


def pack_manifest(manifest: Manifest) -> bytes:
    return msgspec.msgpack.encode(manifest)


def unpack_manifest(body: bytes) -> Manifest:
    return msgspec.msgpack.decode(body, type=Manifest)


def part_row(key: tuple[int, int, int], *, parts: int, body: bytes) -> PartRow:
    """Return a row of a checkpoint; the key is (position, epoch, number)."""
    position, epoch, number = key
    return PartRow(position, epoch, number, parts, body, part_digest(key, parts=parts, body=body))


def part_digest(key: tuple[int, int, int], *, parts: int, body: bytes) -> bytes:
    """Return the digest of a part and its key, so that a row under a wrong key is detected."""
    head = b"".join(number.to_bytes(8, "big") for number in (*key, parts))
    return sha256(head + body).digest()


def intact(row: PartRow) -> bool:
    key = (row.position, row.epoch, row.number)
    return row.digest == part_digest(key, parts=row.parts, body=row.body)


class Mismatch(Exception):
    """Rows do not fit together; whether that is damage depends on who owns the shard now."""


class Walk:
    """Verifies the chain over a tail, from the value `note` at the floor to the register's."""

    def __init__(self, shard: ShardId, *, floor: int, note: bytes) -> None:
        self.shard = shard
        self.position = floor
        self.value = note

    def step(self, row: FrameRow, body: bytes) -> None:
        """Verify the next frame; `row` is any of its parts, `body` the whole. Raises Mismatch."""
        position = self.position + 1
        if row.position != position:
            raise Mismatch(f"{self.shard}: no frame at position {position}")
        if row.prev_chain != self.value:
            raise Mismatch(f"{self.shard}: frame {position} does not continue the chain")
        if link(self.value, (self.shard, position), op=row.op, body=body) != row.chain:
            raise Mismatch(f"{self.shard}: frame {position} differs from what was written")
        self.position, self.value = position, row.chain

    def finish(self, last_position: int, last_chain: bytes) -> None:
        """Compare the end of the walk with the register. Raises Mismatch."""
        if self.position != last_position:
            raise Mismatch(f"{self.shard}: the tail ends at {self.position}, not {last_position}")
        if self.value != last_chain:
            raise Mismatch(f"{self.shard}: the register names another frame {last_position}")
