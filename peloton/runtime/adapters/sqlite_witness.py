"""The witness of a SQLite journal: compared with it at the start, written after each commit.

Turns a journal that lacks what it had acknowledged into `RolledBack`, before anything is written.
With `accept` it begins a new generation of the cluster instead: the epochs of all shards are raised
above every one that was ever used, so that what an earlier owner sent can never apply.

A log that is missing (`journal.sqlite-wal`) is noticed although nothing may be lost: SQLite moves
pages in any order, so a file without its log may be half of something. Then the file is verified.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters import witness_file
from peloton.runtime.adapters.witness_file import WitnessFile, read_witness
from peloton.runtime.core import witness as records
from peloton.runtime.core.register import Hold, OpNames, RoundPlan
from peloton.runtime.core.statements import FEATURES, RegisterRow
from peloton.runtime.core.witness import Header, Known, Missing, Witness, WitnessDamaged
from peloton.runtime.ports import ClusterRecord, JournalBroken, RolledBack, ShardId


class WitnessOptions(NamedTuple):
    """Where the witness is, and how a start behaves.

    `epochs`: the highest that the keeper of the cluster `keeper_of` (hex) has obeyed. `accept`: a
    person's order to go on with a journal that was rolled back.
    """

    folder: Path
    accept: bool = False
    keeper_of: str = ""
    epochs: Mapping[ShardId, int] = {}  # noqa: RUF012
    report: Callable[[str], object] = lambda line: None


class JournalWitness:
    """Made before the journal is opened, because SQLite makes files that are missing."""

    def __init__(self, path: Path, options: WitnessOptions) -> None:
        self._path, self._options = path, options
        there = path.is_file() and path.stat().st_size > 0
        self._log = path.with_name(f"{path.name}-wal")
        self._log_missing = there and not self._log.exists()
        self._file: WitnessFile | None = None
        self._found: Witness | None = None
        self._damage = ""
        try:
            self._found = read_witness(options.folder)
        except WitnessDamaged as error:
            self._damage = f"its witness is damaged: {error}"
        except OSError as error:
            raise RolledBack(f"{path}: its witness: {error.strerror}", acceptable=False) from error
        if not there and (self._found is not None or self._damage):
            text = f"{path} is missing, and its witness {self._witness_path} is there"
            raise RolledBack(text, acceptable=False)

    @property
    def _witness_path(self) -> Path:
        return self._options.folder / witness_file.FOLDER / witness_file.NAME

    # ---- at the start ----

    def check(self, db: sqlite3.Connection, ops: OpNames) -> int:
        """The generation of the cluster. Raises RolledBack; with `accept` the epochs are raised."""
        marked = db.execute(sql.READ_GENERATION).fetchone()
        registers = _registers(db)
        generation = marked[0] if marked is not None else 0
        problems = self._problems(db, registers=registers, marked=marked)
        if not problems:
            return int(generation)
        text = "; ".join(problems)
        if not self._options.accept:
            raise RolledBack(f"{self._path} was rolled back: {text}")
        if self._found is not None:
            generation = max(generation, self._found.header.generation)
        generation, seen = generation + 1, self._keeper_epochs(db)
        for shard in registers:
            known = self._found.known.get(shard) if self._found is not None else None
            floor = max(known.epoch if known is not None else 0, seen.get(shard, 0))
            epoch = max(registers[shard].epoch, floor) + 1
            db.execute(sql.RAISE_EPOCH, (epoch, ops.next(), *shard))
        db.execute(sql.WRITE_GENERATION, (generation, generation))
        self._options.report(
            f"warning: the rollback of {self._path} is accepted: {text}. Generation {generation} "
            "of the cluster begins: what is missing is given up, and runs that the journal does "
            "not know are killed"
        )
        return int(generation)

    def _problems(
        self,
        db: sqlite3.Connection,
        *,
        registers: Mapping[ShardId, RegisterRow],
        marked: tuple[int] | None,
    ) -> list[str]:
        """Why the journal cannot be the newest."""
        problems = [self._damage] if self._damage else []
        lost: list[Missing] = []
        if self._found is not None:
            lost = self._missing(db, registers)
            problems += [records.counted(lost)] if lost else []
            behind = (marked[0] if marked is not None else 0) < self._found.header.generation
            problems += ["it is from before a rollback that was accepted"] if behind else []
        elif marked is not None and not self._damage:
            problems.append(f"its witness {self._witness_path} is missing")
        for shard, epoch in self._keeper_epochs(db).items():
            row = registers.get(shard)
            if row is not None and row.epoch < epoch:
                name = f"{shard.group}-{shard.number}"
                problems.append(f"the keeper obeyed epoch {epoch} of {name}, it has {row.epoch}")
        if self._log_missing and (self._found is None or not self._found.header.clean):
            problems += self._without_log(db, bool(problems))
        return problems

    def _keeper_epochs(self, db: sqlite3.Connection) -> Mapping[ShardId, int]:
        """Empty if the keeper serves another cluster, which is refused by itself."""
        cluster = db.execute(sql.READ_CLUSTER).fetchone()
        ours = cluster is not None and cluster[0].hex() == self._options.keeper_of
        return self._options.epochs if ours else {}

    def _missing(
        self, db: sqlite3.Connection, registers: Mapping[ShardId, RegisterRow]
    ) -> list[Missing]:
        assert self._found is not None
        cluster = db.execute(sql.READ_CLUSTER).fetchone()
        known = self._found.header.cluster_id
        if cluster is None or cluster[0] != known:
            found = f"of cluster {cluster[0].hex()}" if cluster is not None else "empty"
            raise RolledBack(
                f"{self._path} is {found}, its witness is of cluster {known.hex()}",
                acceptable=False,
            )

        def chain_at(shard: ShardId, position: int) -> bytes | None:
            row = db.execute(sql.CHAIN_AT, (*shard, position)).fetchone()
            return row[0] if row is not None else None

        return records.missing(self._found, registers, chain_at)

    def _without_log(self, db: sqlite3.Connection, behind: bool) -> list[str]:
        """The journal was not closed, and its log is gone: perhaps with a part of its pages."""
        text = f"{self._log.name} is missing"
        if behind:
            return [text]
        if self._found is None:
            return []  # an earlier version may have closed it
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            return [f"{text}, and the file is not whole: {verdict}"]
        self._options.report(
            f"warning: {self._log} is missing; all that was acknowledged is in the journal"
        )
        return []

    def begin(self, db: sqlite3.Connection, cluster: ClusterRecord) -> None:
        """What the journal has now is what it must have from now on."""
        known = {shard: records.known_of(row) for shard, row in _registers(db).items()}
        names = tuple((shard.group, shard.number) for shard in known)
        header = Header(cluster.cluster_id, cluster.generation, False, names)
        if self._file is not None:
            self._file.close(clean=False)  # bootstrapped again
        try:
            self._file = WitnessFile(self._options.folder, Witness(header, known))
        except OSError as error:
            text = f"{self._witness_path}: {error.strerror or error}"
            raise JournalBroken(f"the witness cannot be written: {text}") from error
        if self._found is None and not self._damage:
            self._options.report(f"witness of the journal created: {self._witness_path}")
        # Only now: a journal with this mark is refused without its witness.
        values = (cluster.generation, cluster.generation)
        if db.execute(sql.READ_GENERATION).fetchone() != values[:1]:
            db.execute(sql.WRITE_GENERATION, values)

    # ---- after each commit ----

    def note(self, done: Iterable[tuple[Hold, RoundPlan | None]]) -> None:
        """These are committed: a claim has no plan. Raises OSError, JournalBroken."""
        known = {}
        for hold, plan in done:
            if plan is None:
                known[hold.shard] = Known(hold.epoch, hold.last_position, hold.chain)
            elif plan.work.frame is not None:
                known[hold.shard] = Known(hold.epoch, plan.work.frame.position, plan.chain)
        if known and self._file is not None:
            try:
                self._file.note(known)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise JournalBroken(f"{self._witness_path}: {error.strerror}") from error

    def close(self, db: sqlite3.Connection | None) -> None:
        """Move the log into the file; once all of it is there, the log is not needed."""
        if self._file is None:
            return
        moved = False
        if db is not None:
            try:
                (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                moved = not busy
            except sqlite3.Error as error:
                self._options.report(f"warning: {self._log} was not moved into its file: {error}")
        try:
            self._file.close(clean=moved)
        except OSError as error:
            self._options.report(f"warning: {self._witness_path}: {error.strerror or error}")
        self._file = None


def _registers(db: sqlite3.Connection) -> dict[ShardId, RegisterRow]:
    found = db.execute(sql.READ_REGISTERS).fetchall()
    rows = {ShardId(row[0], row[1]): RegisterRow(*row[2:]) for row in found}
    rows.pop(FEATURES, None)
    return rows
