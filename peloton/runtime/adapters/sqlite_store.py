"""Journal in one SQLite file: a round is one transaction over all shards that have work.

The one fsync of a round's COMMIT serves every shard in it. Where a shard is fenced, everything is
rolled back and written again without it, and without the other frames if it has one. Nothing may
block between BEGIN and COMMIT. A connection that failed is not used again:

 1. COMMIT fails (disk full, I/O error); it is unknown whether the frame is in the file.
 2. The same connection is read; it answers from its page cache, which shows the frame.
 3. The frame is acknowledged; the process crashes; the file never had it.
So after a failure: close, open again, and decide by `op` in the register.
No connection may cross a fork.
"""

from __future__ import annotations

import copy
import errno
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from peloton.runtime.adapters import sqlite_bootstrap, sqlite_round
from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters.fenced_rows import read_final_state, read_items, read_level
from peloton.runtime.adapters.sqlite_reading import OwnRows
from peloton.runtime.adapters.sqlite_round import RoundAnswers, WritesTogether
from peloton.runtime.adapters.sqlite_wal import WalMover
from peloton.runtime.adapters.sqlite_witness import JournalWitness, WitnessOptions
from peloton.runtime.core.journal import fencing, register, rounds
from peloton.runtime.core.journal.register import OpNames, OwnedShard, RoundPlan
from peloton.runtime.core.journal.statements import ReadEnded, RegisterRow
from peloton.runtime.ports import (
    Answer,
    Claimed,
    ClusterRecord,
    EndedRow,
    Fenced,
    Frame,
    JournalBroken,
    JournalRefused,
    NoRoom,
    RoundRefused,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)


class SqliteJournal:
    """A Journal in a SQLite file; `process` is 16 bytes, drawn at start and never reused."""

    def __init__(
        self,
        path: Path,
        *,
        process: bytes | None = None,
        page_count_max: int | None = None,
        witness: WitnessOptions | None = None,
    ) -> None:
        self.path = path
        self.page_count_max = page_count_max
        """Limit of the file in pages, applied at each open; reaching it counts as a full disk."""
        self._ops = OpNames(process or uuid.uuid4().bytes)
        self._lock = threading.Lock()  # the writer
        self._rows = OwnRows(path)
        self._owned: dict[ShardId, OwnedShard] = {}
        self._pending: dict[ShardId, WritesTogether] = {}
        self._writer: sqlite3.Connection | None = None
        # Before the file is opened for writing. Raises RolledBack.
        self._witness = JournalWitness(path, witness) if witness is not None else None
        self._mover = WalMover(path, self._lock)
        try:
            self._connection()
        except sqlite3.Error as error:
            self._mover.close()
            raise Unreachable(self._failed(error)) from error

    # ---- life of a shard ----

    def bootstrap(
        self, groups: Mapping[str, int], *, name: str = "", level: int = 0
    ) -> ClusterRecord:
        ours = sqlite_bootstrap.NewCluster(self._ops, groups, name, level)
        with self._lock:
            try:
                cluster = sqlite_bootstrap.bootstrap(self._begin(), ours, witness=self._witness)
            except JournalRefused:
                self._discard()
                raise
            except sqlite3.Error as error:
                raise Unreachable(self._failed(error)) from error
        return cluster

    def level(self) -> int:
        return read_level(self._rows)

    def raise_level(self, level: int) -> int:
        with self._lock:
            try:
                db = self._begin()
                now = sqlite_bootstrap.raise_level(db, level, ops=self._ops)
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise Unreachable(self._failed(error)) from error
        return now

    def probe(self) -> None:
        self.raise_level(0)

    def claim(self, shard: ShardId, owner: str, *, above: int = 0) -> Claimed | Fenced | Unclear:
        with self._lock:
            self._forget(shard)
            try:
                db = self._begin()
                db.execute(sql.BUMP, (above, self._ops.next(), owner, *shard))
                found = db.execute(sql.READ_REGISTER, shard).fetchone()
                db.execute("COMMIT")
            except sqlite3.Error as error:
                return self._unclear(error)
            if found is None:
                raise JournalRefused(f"{shard} was never bootstrapped")
            owned = OwnedShard(shard, RegisterRow(*found))
            if (doubt := self._note([(owned, None)])) is not None:
                return doubt
            self._owned[shard] = owned
            return owned.claimed()

    def release(self, shard: ShardId, epoch: int = 0) -> None:
        with self._lock:
            owned = self._owned.get(shard)
            if owned is not None and owned.is_younger(epoch):
                return
            in_doubt = shard in self._pending
            self._forget(shard)
            if owned is None or in_doubt:
                return
            try:
                db = self._begin()
                db.execute(sql.FREE, (self._ops.next(), *shard, owned.epoch, owned.op))
                db.execute("COMMIT")
            except sqlite3.Error as error:
                self._failed(error)  # a hint only: the next owner bumps the epoch anyway

    def drop(self, shard: ShardId, epoch: int = 0) -> None:
        with self._lock:
            owned = self._owned.get(shard)
            if owned is None or not owned.is_younger(epoch):
                self._forget(shard)

    def close(self) -> None:
        self._mover.close()
        self._rows.close()  # before the writer: the last one removes the log
        with self._lock:
            if self._witness is not None:
                self._witness.close(self._writer)
            self._discard()
            self._owned.clear()
            self._pending.clear()

    # ---- writing ----

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        with self._lock:
            planned = rounds.plan(
                works, owned_shards=self._owned, pending=self._pending, ops=self._ops
            )
            plans = planned.plans
            frames = WritesTogether(planned.frames)
            if planned.refusals is not None:
                frames.answers = {**planned.refusals}
            others = [WritesTogether({one: plans[one]}) for one in plans if one not in frames.plans]
            doubt = self._transaction([frames, *others], repeated=False)
            answers: dict[ShardId, Answer] = {**planned.fenced}
            for together in (frames, *others):
                answers |= {one: self._answer(one, together, doubt=doubt) for one in together.plans}
            return [answers[work.shard] for work in works]

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        with self._lock:
            pending = {shard: self._pending[shard] for shard in shards if shard in self._pending}
            doubts = {one: self._settle(one) for one in dict.fromkeys(pending.values())}
            none = Fenced("nothing is pending, the shard is not ours")
            return [
                self._answer(shard, pending[shard], doubt=doubts[pending[shard]])
                if shard in pending
                else none
                for shard in shards
            ]

    def _settle(self, together: WritesTogether) -> Unclear | None:
        """Open the file again and compare ops: our previous one shows that nothing was written."""
        if together.answers is not None:
            return None
        try:
            found = sqlite_round.found_committed(self._connection(), together)
        except sqlite3.Error as error:
            return self._unclear(error)
        if found is None:
            return self._transaction([together], repeated=True)
        return self._decided(together, found)

    def _transaction(self, several: list[WritesTogether], *, repeated: bool) -> Unclear | None:
        """Run one transaction of all that is undecided; if it fails, all of that is unclear."""
        several = [one for one in several if one.answers is None and one.plans]
        if not several:
            return None
        try:
            db, found = self._written(several, repeated=repeated)
            if any(plan.work.cut is not None for one in several for _, plan in one.plans.values()):
                sqlite_round.vacuum(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            return self._unclear(error)
        except BaseException:
            self._discard()  # with the transaction it is in
            raise
        doubts = [self._decided(together, answers) for together, answers in found.items()]
        return next((doubt for doubt in doubts if doubt is not None), None)

    def _decided(self, together: WritesTogether, answers: RoundAnswers) -> Unclear | None:
        """Record in the witness what is in the file, before anybody is told."""
        doubt = self._note(together.committed(answers))
        if doubt is None:
            self._mover.wrote(together.decided(answers))
        return doubt

    def _note(self, done: Iterable[tuple[OwnedShard, RoundPlan | None]]) -> Unclear | None:
        if self._witness is not None:
            try:
                self._witness.note(done)
            except OSError as error:
                kind = NoRoom if error.errno == errno.ENOSPC else Unclear
                return kind(f"{self.path}: the witness: {error.strerror or error}")
        return None

    def _written(
        self, several: list[WritesTogether], *, repeated: bool
    ) -> tuple[sqlite3.Connection, dict[WritesTogether, RoundAnswers]]:
        """Begin a transaction and write all that is not fenced.

        Without savepoints: with one for each shard, or a large one, SQLite keeps a copy of every
        page, which costs a tenth to a fifth of a commit's CPU. To be fenced is rare.
        """
        fenced: list[WritesTogether] = []
        while True:
            db = self._begin()
            found = {one: sqlite_round.refusals(db, one, repeated=repeated) for one in fenced}
            for together in several:
                if together not in found:
                    answers = sqlite_round.write_together(db, together)
                    if answers is None:
                        fenced.append(together)
                        db.execute("ROLLBACK")
                        break
                    found[together] = answers
            else:
                return db, found

    def _answer(self, shard: ShardId, together: WritesTogether, *, doubt: Unclear | None) -> Answer:
        """Return the answer for a shard that is owned; it is owned under the claim of its plan."""
        if together.answers is None:
            assert doubt is not None
            self._pending[shard] = together
            return doubt
        self._pending.pop(shard, None)
        answer = together.answers[shard]
        if isinstance(answer, Fenced | RoundRefused):
            self._forget(shard)
        return answer

    # ---- reading ----

    def read_checkpoint(self, shard: ShardId) -> Iterator[bytes]:
        owned = register.owned_shard(self._owned, shard)
        return read_items(self._rows.run, fencing.load_checkpoint(owned), kind=bytes)

    def read_tail(self, shard: ShardId) -> Iterator[Frame]:
        owned = copy.copy(register.owned_shard(self._owned, shard))
        first, last = owned.floor[0] + 1, owned.last_position
        owned.segments = self._rows.segments_of(shard, first, last=last)
        return read_items(self._rows.run, fencing.load_tail(owned), kind=Frame)

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        return read_final_state(self._rows, ReadEnded(shard, kind, key))

    # ---- connections ----

    def _connection(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = sql.open_writer(self.path, page_count_max=self.page_count_max)
        return self._writer

    def _begin(self) -> sqlite3.Connection:
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        return db

    def _unclear(self, error: sqlite3.Error) -> Unclear:
        text = self._failed(error)
        return NoRoom(text) if sql.is_full(error) else Unclear(text)

    def _failed(self, error: sqlite3.Error) -> str:
        """Close the connection for good; return the text. Raises JournalBroken."""
        self._discard()
        code = sql.error_code(error)
        text = f"{self.path}: {error}"
        if sql.is_full(error):
            self._mover.full()
            return text
        if isinstance(error, sqlite3.IntegrityError):
            raise JournalBroken(f"{text}: a position was written twice") from error
        if code in (sql.IO_ERROR, sql.CORRUPT, sql.NOT_A_DATABASE):
            raise JournalBroken(text) from error
        return text

    def _discard(self) -> None:
        db, self._writer = self._writer, None
        if db is not None:
            db.close()

    def _forget(self, shard: ShardId) -> None:
        self._owned.pop(shard, None)
        self._pending.pop(shard, None)
