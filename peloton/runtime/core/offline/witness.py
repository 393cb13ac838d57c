"""The witness of a journal: what it had committed, as records that are kept outside of it.

The register of a SQLite journal lies in the journal itself: whatever takes away the newest frames
(a log that is cut, damaged or missing, an older copy put back) takes the register back with them,
and nothing in the file shows it. The witness has the epoch, the newest position and the chain of
every shard, and is written after each commit and before anything of it is acknowledged. So:

  journal ahead of its witness   a commit that was not acknowledged
  journal behind its witness     what was acknowledged is missing: refused

Turns these values into records and back, and compares them with registers;
`adapters/witness_file.py` has the file.

Each shard has two records, written in turn: one that is torn leaves the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from peloton.runtime.core.journal.chain import shard_bytes
from peloton.runtime.core.journal.statements import RegisterRow
from peloton.runtime.core.offline import journal_dump
from peloton.runtime.ports import ShardId

MAGIC = b"PELOTON1"
RECORD_BYTES = 128
SECTOR_BYTES = 4096
"""The two records of a shard never share one of these: a torn write harms one of them."""
_DIGEST_BYTES = 16
_VALUES = struct.Struct(">QQQ32s")  # sequence, epoch, position, chain
_HEAD = struct.Struct(f">8sI{_DIGEST_BYTES}s")
SHOWN_MAX = 8


class Known(NamedTuple):
    """The last committed state of a shard."""

    epoch: int
    position: int
    chain: bytes


class Header(Struct, frozen=True, array_like=True, gc=False):
    """The head of a witness. `clean`: the journal was closed, and its log moved into its file."""

    cluster_id: bytes
    generation: int
    clean: bool
    shards: tuple[tuple[str, int], ...]
    """In the order of their records."""


class Witness(NamedTuple):
    """The whole content of a witness."""

    header: Header
    known: dict[ShardId, Known]


class WitnessDamaged(Exception):
    """A witness that is not what was written."""


class Missing(NamedTuple):
    """What a journal lacks of one shard; 0 frames if its frames differ and are not fewer."""

    shard: ShardId
    frames: int
    text: str

    def __str__(self) -> str:
        return f"{journal_dump.name_of(self.shard)}: {self.text}"


# ---- records ----


def name_of(header: Header, shard: ShardId) -> bytes:
    """Return the name of a shard's record, which its digest covers."""
    return header.cluster_id + shard_bytes(shard)


def record(name: bytes, *, sequence: int, known: Known) -> bytes:
    """Encode one record."""
    values = _VALUES.pack(sequence, *known)
    return _digest(name, values) + values


def read_record(data: bytes, name: bytes) -> tuple[int, Known] | None:
    """Return sequence and values of a record; None if it is not what was written."""
    digest, values = data[:_DIGEST_BYTES], data[_DIGEST_BYTES : _DIGEST_BYTES + _VALUES.size]
    if len(values) < _VALUES.size or _digest(name, values) != digest:
        return None
    sequence, epoch, position, value = _VALUES.unpack(values)
    return sequence, Known(epoch, position, value)


def offset(header_bytes: int, count: int, *, at: int, sequence: int) -> int:
    """Return the offset in the file of the record of the shard numbered `at` of `count`."""
    area = _whole(count * RECORD_BYTES)
    return header_bytes + (sequence % 2) * area + at * RECORD_BYTES


def _digest(name: bytes, values: bytes) -> bytes:
    return blake2b(name + values, digest_size=_DIGEST_BYTES).digest()


def _whole(size: int) -> int:
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


# ---- the whole file ----


def pack_header(header: Header) -> bytes:
    """Encode the first sectors of the file."""
    body = msgspec.msgpack.encode(header)
    head = _HEAD.pack(MAGIC, len(body), _digest(MAGIC, body)) + body
    return head.ljust(_whole(len(head)), b"\0")


def pack(witness: Witness) -> bytes:
    """Encode the whole file, with both records of each shard."""
    header, known = witness
    head = pack_header(header)
    count = len(header.shards)
    data = bytearray(head.ljust(offset(len(head), count, at=0, sequence=1), b"\0"))
    data = data.ljust(len(data) + _whole(count * RECORD_BYTES), b"\0")
    for at, name in enumerate(header.shards):
        shard = ShardId(*name)
        for sequence in (0, 1):
            one = record(name_of(header, shard), sequence=sequence, known=known[shard])
            start = offset(len(head), count, at=at, sequence=sequence)
            data[start : start + len(one)] = one
    return bytes(data)


def unpack(data: bytes) -> Witness:
    """Decode a file. Raises WitnessDamaged."""
    if len(data) < _HEAD.size:
        raise WitnessDamaged("it is too short")
    magic, size, digest = _HEAD.unpack(data[: _HEAD.size])
    body = data[_HEAD.size : _HEAD.size + size]
    if magic != MAGIC or _digest(MAGIC, body) != digest:
        raise WitnessDamaged("its header is not what was written")
    header = msgspec.msgpack.decode(body, type=Header)
    start = _whole(_HEAD.size + size)
    known: dict[ShardId, Known] = {}
    for at, name in enumerate(header.shards):
        shard = ShardId(*name)
        places = [offset(start, len(header.shards), at=at, sequence=each) for each in (0, 1)]
        pieces = [data[place : place + RECORD_BYTES] for place in places]
        read = [read_record(piece, name_of(header, shard)) for piece in pieces]
        found = [one for one in read if one is not None]
        if not found:
            raise WitnessDamaged(f"both records of {journal_dump.name_of(shard)} are damaged")
        known[shard] = max(found)[1]
    return Witness(header, known)


# ---- comparing ----


def known_of(row: RegisterRow) -> Known:
    """Return the witnessed values of a register."""
    return Known(row.epoch, row.last_position, row.last_chain)


def missing(
    witness: Witness,
    registers: Mapping[ShardId, RegisterRow],
    *,
    chain_at: Callable[[ShardId, int], bytes | None],
) -> list[Missing]:
    """Return what the journal lacks; empty if all that was acknowledged is there.

    `chain_at` reads the chain value of a frame, None if that frame was cut.
    """
    found = []
    for shard, known in witness.known.items():
        row = registers.get(shard)
        text, frames = _difference(shard, known, row=row, chain_at=chain_at)
        if text:
            found.append(Missing(shard, frames, text))
    return found


def _difference(
    shard: ShardId,
    known: Known,
    *,
    row: RegisterRow | None,
    chain_at: Callable[[ShardId, int], bytes | None],
) -> tuple[str, int]:
    if row is None:
        return f"its register is missing, position {known.position} was committed", known.position
    less = known.position - row.last_position
    if less > 0:
        text = f"it ends at position {row.last_position}, {known.position} was committed"
        return text, less
    value = row.last_chain if not less else chain_at(shard, known.position)
    if value is not None and value != known.chain:
        return f"position {known.position} is another frame than the one committed", 0
    return "", 0


def later_claims(
    witness: Witness, registers: Mapping[ShardId, RegisterRow]
) -> dict[ShardId, RegisterRow]:
    """Return the registers of shards that were claimed after the copy, and wrote nothing.

    If `missing` finds nothing, all that was acknowledged is there, and a start that failed has
    claimed these shards. Their epochs are returned as they were claimed, and must not be used
    again.
    """
    return {
        shard: replace(row, epoch=witness.known[shard].epoch)
        for shard, row in registers.items()
        if shard in witness.known and row.epoch < witness.known[shard].epoch
    }


def differences(
    witness: Witness | None, row: RegisterRow, *, of: tuple[ShardId, Mapping[int, bytes]]
) -> list[Missing]:
    """Return what one shard lacks; `of` names it, with the chain values of its frames."""
    shard, chains = of
    if witness is None or shard not in witness.known:
        return []
    one = Witness(witness.header, {shard: witness.known[shard]})
    return missing(one, {shard: row}, chain_at=lambda _, position: chains.get(position))


def counted(found: Iterable[Missing]) -> str:
    """Return how much is missing, for people: a sum, and the shards with most of it."""
    all_of_it = sorted(found, key=lambda one: -one.frames)
    frames = sum(one.frames for one in all_of_it)
    shown = [
        f"{journal_dump.name_of(one.shard)} "
        + (f"{one.frames}" if one.frames else "has another history")
        for one in all_of_it[:SHOWN_MAX]
    ]
    rest = len(all_of_it) - len(shown)
    shown += [f"and {rest} more shards"] if rest else []
    return f"{frames} acknowledged frames are missing ({', '.join(shown)})"
