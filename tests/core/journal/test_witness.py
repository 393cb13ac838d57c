"""The witness as values: what is packed comes back, and every difference to a register is named."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from peloton.runtime.core.journal.statements import RegisterRow
from peloton.runtime.core.offline import witness
from peloton.runtime.core.offline.witness import Header, Known, Witness, WitnessDamaged
from peloton.runtime.ports import ShardId

SHARDS = [ShardId("a", 0), ShardId("a", 1), ShardId("b", 0)]
HEADER = Header(b"cluster", 2, False, tuple((one.group, one.number) for one in SHARDS))
KNOWN = {shard: Known(3, 40 + at, bytes([at]) * 32) for at, shard in enumerate(SHARDS)}
SAMPLE = Witness(HEADER, KNOWN)


def registers() -> dict[ShardId, RegisterRow]:
    return {
        shard: RegisterRow(one.epoch, b"op", "", one.position, one.chain, 0, 0)
        for shard, one in KNOWN.items()
    }


def nothing_cut(shard: ShardId, position: int) -> bytes | None:
    return KNOWN[shard].chain if position == KNOWN[shard].position else None


def test_what_is_packed_comes_back() -> None:
    assert witness.unpack(witness.pack(SAMPLE)) == SAMPLE


def test_no_flipped_bit_changes_what_is_read() -> None:
    data, chance = witness.pack(SAMPLE), random.Random(11)
    refused = 0
    for _ in range(2000):
        torn = bytearray(data)
        torn[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            assert witness.unpack(bytes(torn)) == SAMPLE
        except WitnessDamaged:
            refused += 1
    assert 0 < refused < 100, "only the header is there once"


def test_a_torn_record_leaves_the_one_before_it() -> None:
    data = bytearray(witness.pack(SAMPLE))
    start = len(witness.pack_header(HEADER))
    newer = witness.record(
        witness.name_of(HEADER, SHARDS[1]), sequence=2, known=Known(3, 50, bytes(32))
    )
    place = witness.offset(start, len(SHARDS), at=1, sequence=2)
    data[place : place + 20] = newer[:20]
    assert witness.unpack(bytes(data)) == SAMPLE
    data[place : place + len(newer)] = newer
    assert witness.unpack(bytes(data)).known[SHARDS[1]].position == 50


def test_both_records_damaged_is_said() -> None:
    data = bytearray(witness.pack(SAMPLE))
    start = len(witness.pack_header(HEADER))
    for sequence in (0, 1):
        data[witness.offset(start, len(SHARDS), at=2, sequence=sequence)] ^= 1
    with pytest.raises(WitnessDamaged, match="b-0"):
        witness.unpack(bytes(data))


def test_a_record_of_another_shard_or_cluster_is_none_of_ours() -> None:
    one = witness.record(witness.name_of(HEADER, SHARDS[0]), sequence=5, known=KNOWN[SHARDS[0]])
    assert witness.read_record(one, witness.name_of(HEADER, SHARDS[0])) is not None
    assert witness.read_record(one, witness.name_of(HEADER, SHARDS[1])) is None
    other = replace(HEADER, cluster_id=b"another")
    assert witness.read_record(one, witness.name_of(other, SHARDS[0])) is None


def test_a_journal_with_all_of_it_lacks_nothing() -> None:
    rows = registers()
    assert witness.missing(SAMPLE, rows, chain_at=nothing_cut) == []
    for shard, row in rows.items():  # commits that nobody was told of
        rows[shard] = replace(row, last_position=row.last_position + 3, last_chain=b"later")
    assert witness.missing(SAMPLE, rows, chain_at=nothing_cut) == []
    assert witness.missing(SAMPLE, rows, chain_at=lambda shard, position: None) == [], "cut by now"


def test_every_difference_is_named_and_counted() -> None:
    rows = registers()
    rows[SHARDS[0]] = replace(rows[SHARDS[0]], last_position=29)
    rows[SHARDS[1]] = replace(rows[SHARDS[1]], last_chain=b"another")
    del rows[SHARDS[2]]
    found = witness.missing(SAMPLE, rows, chain_at=nothing_cut)
    assert [(one.shard, one.frames) for one in found] == [
        (SHARDS[0], 11), (SHARDS[1], 0), (SHARDS[2], 42),
    ]  # fmt: skip
    assert witness.counted(found) == (
        "53 acknowledged frames are missing (b-0 42, a-0 11, a-1 has another history)"
    )


def test_a_history_that_went_another_way_is_noticed_although_it_is_longer() -> None:
    rows = registers()
    rows[SHARDS[0]] = replace(rows[SHARDS[0]], last_position=99, last_chain=b"other")
    (found,) = witness.missing(SAMPLE, rows, chain_at=lambda shard, position: b"another")
    assert found.shard == SHARDS[0] and "another frame" in found.text


def test_a_claim_of_who_wrote_nothing_takes_nothing_along() -> None:
    rows = registers()
    assert witness.later_claims(SAMPLE, rows) == {}
    rows[SHARDS[1]] = replace(rows[SHARDS[1]], epoch=2)
    assert witness.missing(SAMPLE, rows, chain_at=nothing_cut) == []
    assert witness.later_claims(SAMPLE, rows) == {SHARDS[1]: replace(rows[SHARDS[1]], epoch=3)}
