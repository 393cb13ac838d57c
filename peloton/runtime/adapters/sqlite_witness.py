"""The witness of a SQLite journal: compared with it at the start, written after each commit.

Turns a journal that lacks what it had acknowledged into `RolledBack`, before anything is written.
With `accept` it begins a new generation of the cluster instead.

A log that is missing (`journal.sqlite-wal`) is noticed although nothing may be lost: SQLite moves
pages in any order, so a file without its log may be half of something. Then the file is verified.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters import witness_file
from peloton.runtime.adapters.sqlite_reading import SqliteRows
from peloton.runtime.adapters.witness_file import WitnessFile, read_witness
from peloton.runtime.core.journal.register import OpNames, OwnedShard, RoundPlan
from peloton.runtime.core.journal.statements import FEATURES, RegisterRow
from peloton.runtime.core.offline import journal_dump
from peloton.runtime.core.offline import witness as records
from peloton.runtime.core.offline.witness import Header, Known, Witness, WitnessDamaged
from peloton.runtime.ports import ClusterRecord, JournalBroken, RolledBack, ShardId


class WitnessOptions(NamedTuple):
    """The place of the witness, and the behaviour of a start.

    `epochs`: the highest that the keeper of the cluster `keeper_of` (hex) has obeyed. `accept`: a
    person's order to go on with a journal that was rolled back. `anew`: why a new generation begins
    in any case, such as that the journal was restored.
    """

    folder: Path
    accept: bool = False
    keeper_of: str = ""
    epochs: Mapping[ShardId, int] = {}  # noqa: RUF012
    report: Callable[[str], object] = lambda line: None
    anew: str = ""


class JournalWitness:
    """The check of a witness, made before the journal is opened for writing.

    SQLite makes files that are missing, and begins a log anew that does not fit: a start that is
    refused must leave all of them as they are, for whoever repairs them.
    """

    def __init__(self, path: Path, options: WitnessOptions) -> None:
        self._path, self._options = path, options
        self._log = sql.log_of(path)
        self._file: WitnessFile | None = None
        self._found: Witness | None = None
        self._damage = ""
        self._generation = 0
        self._epochs: dict[ShardId, int] = {}
        """The highest that anybody knows of."""
        self._claimed: dict[ShardId, RegisterRow] = {}
        """Shards that were claimed after the journal was copied, and wrote nothing since."""
        try:
            self._found = read_witness(options.folder)
        except WitnessDamaged as error:
            self._damage = f"its witness is damaged: {error}"
        except OSError as error:
            raise RolledBack(f"{path}: its witness: {error.strerror}", acceptable=False) from error
        there = path.is_file() and path.stat().st_size > 0
        if not there and (self._found is not None or self._damage):
            text = f"{path} is missing, and its witness {self._witness_path} is there"
            raise RolledBack(text, acceptable=False)
        self._without = there and self._found is None and not self._damage
        """Whether the journal was made without one."""
        self._problems = self._compare() if there else []
        if options.anew:
            self._problems.append(options.anew)
        elif self._problems and not options.accept:
            raise RolledBack(f"{path} was rolled back: {'; '.join(self._problems)}")

    @property
    def _witness_path(self) -> Path:
        return self._options.folder / witness_file.FOLDER / witness_file.NAME

    # ---- before the journal is opened ----

    def _compare(self) -> list[str]:
        """Return the reasons why the journal cannot be the newest."""
        log_missing = not self._log.exists()
        rows = SqliteRows(self._path.parent, self._path.name)
        try:
            marked = rows.query("witness", sql.READ_GENERATION)
            self._generation = marked[0][0] if marked else 0
            registers = _registers(rows.query("register", sql.READ_REGISTERS))
            cluster_id = next((row[0] for row in rows.query("cluster", sql.READ_CLUSTER)), b"")
            problems = self._against_witness(rows, registers, cluster_id=cluster_id)
            if self._found is None and not self._damage and marked:
                problems.append(f"its witness {self._witness_path} is missing")
            problems += self._against_keeper(registers, cluster_id)
            if log_missing and self._found is not None and not self._found.header.clean:
                problems += self._without_log(rows, bool(problems))
        finally:
            rows.close()
        return problems

    def _against_witness(
        self, rows: SqliteRows, registers: Mapping[ShardId, RegisterRow], *, cluster_id: bytes
    ) -> list[str]:
        if self._found is None:
            return [self._damage] if self._damage else []
        header = self._found.header
        if cluster_id != header.cluster_id:
            is_what = f"of cluster {cluster_id.hex()}" if cluster_id else "empty"
            text = f"{self._path} is {is_what}, its witness is of cluster {header.cluster_id.hex()}"
            raise RolledBack(text, acceptable=False)

        def chain_at(shard: ShardId, position: int) -> bytes | None:
            found = rows.query("journal", sql.CHAIN_AT, values=(*shard, position))
            return found[0][0] if found else None

        for shard, known in self._found.known.items():
            self._epochs[shard] = known.epoch
        lost = records.missing(self._found, registers, chain_at=chain_at)
        problems = [records.counted(lost)] if lost else []
        if not lost:
            self._claimed = records.later_claims(self._found, registers)
        if self._generation < header.generation:
            self._generation = header.generation
            problems.append("it is from before a rollback that was accepted")
        return problems

    def _against_keeper(
        self, registers: Mapping[ShardId, RegisterRow], cluster_id: bytes
    ) -> list[str]:
        """Compare with the keeper's epochs, unless it serves another cluster."""
        registers = {**registers, **self._claimed}
        problems = []
        if cluster_id.hex() == self._options.keeper_of:
            for shard, epoch in self._options.epochs.items():
                self._epochs[shard] = max(epoch, self._epochs.get(shard, 0))
                row = registers.get(shard)
                if row is not None and row.epoch < epoch:
                    name = journal_dump.name_of(shard)
                    text = f"the keeper obeyed epoch {epoch} of {name}, it has {row.epoch}"
                    problems.append(text)
        return problems

    def _without_log(self, rows: SqliteRows, behind: bool) -> list[str]:
        """Return the reason if the journal was not closed and its log is gone."""
        text = f"{self._log.name} is missing"
        if behind:
            return [text]
        verdict = rows.query("register", "PRAGMA quick_check(1)")[0][0]
        if verdict != "ok":
            return [f"{text}, and the file is not whole: {verdict}"]
        self._options.report(
            f"warning: {self._log} is missing; all that was acknowledged is in the journal"
        )
        return []

    # ---- at the start ----

    def check(self, db: sqlite3.Connection, ops: OpNames) -> int:
        """Return the generation of the cluster, in the transaction of its bootstrap.

        If a rollback is accepted, the epochs of all shards are raised above every one that anybody
        knows: what an earlier owner sent can never apply.
        """
        if not self._problems:
            for shard, row in self._claimed.items():
                db.execute(sql.RAISE_EPOCH, (row.epoch, ops.next(), *shard))
            return self._generation
        self._generation += 1
        for shard, row in _registers(db.execute(sql.READ_REGISTERS)).items():
            epoch = max(row.epoch, self._epochs.get(shard, 0)) + 1
            db.execute(sql.RAISE_EPOCH, (epoch, ops.next(), *shard))
        db.execute(sql.WRITE_GENERATION, (self._generation, self._generation))
        if not self._options.anew:
            self._options.report(
                f"warning: the rollback of {self._path} is accepted: {'; '.join(self._problems)}. "
                f"Generation {self._generation} of the cluster begins: what is missing is given "
                "up, and runs that the journal does not know are killed"
            )
        return self._generation

    def begin(self, db: sqlite3.Connection, cluster: ClusterRecord) -> None:
        """Begin the witness with the journal's present registers."""
        self._problems = []
        registers = _registers(db.execute(sql.READ_REGISTERS))
        known = {shard: records.known_of(row) for shard, row in registers.items()}
        names = tuple((shard.group, shard.number) for shard in known)
        header = Header(cluster.cluster_id, cluster.generation, False, names)
        if self._file is not None:
            self._file.close(clean=False)  # bootstrapped again
        try:
            self._file = WitnessFile(self._options.folder, Witness(header, known))
        except OSError as error:
            text = f"{self._witness_path}: {error.strerror or error}"
            raise JournalBroken(f"the witness cannot be written: {text}") from error
        if self._without:
            self._options.report(f"witness of the journal created: {self._witness_path}")
        # Only now: a journal with this mark is refused without its witness.
        values = (cluster.generation, cluster.generation)
        if db.execute(sql.READ_GENERATION).fetchone() != values[:1]:
            db.execute(sql.WRITE_GENERATION, values)

    # ---- after each commit ----

    def note(self, done: Iterable[tuple[OwnedShard, RoundPlan | None]]) -> None:
        """Record committed plans; a claim has none. Raises OSError, JournalBroken."""
        known = {}
        for owned, plan in done:
            if plan is None:
                known[owned.shard] = Known(owned.epoch, owned.last_position, owned.chain)
            elif plan.work.frame is not None:
                known[owned.shard] = Known(owned.epoch, plan.work.frame.position, plan.chain)
        if known and self._file is not None:
            try:
                self._file.note(known)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise JournalBroken(f"{self._witness_path}: {error.strerror}") from error

    def close(self, db: sqlite3.Connection | None) -> None:
        """Close the witness; if all of the log was moved into the file, note that it is
        not needed."""
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


def _registers(found: Iterable[Any]) -> dict[ShardId, RegisterRow]:
    rows = {ShardId(row[0], row[1]): RegisterRow(*row[2:]) for row in found}
    rows.pop(FEATURES, None)
    return rows
