"""A process that journals until it is killed: says each acknowledged position, then goes on.

Usage: sqlite_writer.py PATH [witness]. It must say a position only after the commit was answered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Floor,
    Frame,
    ShardId,
    Work,
)

SHARDS = [ShardId("a", 0), ShardId("a", 1), ShardId("b", 0)]


def body(shard: ShardId, position: int) -> bytes:
    return f"{shard.group}{shard.number}:{position}:".encode() * (1 + position % 400)


def main(path: Path, *, witness: bool) -> None:
    journal = SqliteJournal(path, witness=WitnessOptions(path.parent) if witness else None)
    if witness:
        journal.bootstrap({"a": 2, "b": 1})
    last, epoch = {}, {}
    for shard in SHARDS:
        claimed = journal.claim(shard, "writer")
        assert isinstance(claimed, Claimed)
        list(journal.read_checkpoint(shard))
        last[shard], epoch[shard] = claimed.last_position, claimed.epoch
    while True:
        works = []
        for shard in SHARDS:
            at = last[shard] = last[shard] + 1
            work = Work(shard, epoch[shard], Frame(at, body(shard, at)))
            if at % 5 == 0:
                row = EndedRow("k", str(at), at, body(shard, at))
                part = CheckpointPart(at, 0, str(at).encode(), True)
                work = Work(shard, epoch[shard], work.frame, (row,), (part,), Floor(at), Cut())
            works.append(work)
        assert all(isinstance(answer, Committed) for answer in journal.commit(works))
        print(last[SHARDS[0]], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), witness=len(sys.argv) > 2)
