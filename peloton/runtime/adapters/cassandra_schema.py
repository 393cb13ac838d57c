"""The journal's tables on Cassandra: made under a lock, and compared with what they should be.

Turns `schema.cql` into statements and sends each once, while this process holds the lock, and only
for tables that are missing. A table that exists is never changed or dropped: differences are
reported, and a person decides.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from importlib import resources
from typing import Any

from cassandra import AlreadyExists, InvalidRequest, RequestValidationException
from cassandra.protocol import RequestValidationException as InvalidOnTheWire
from cassandra.query import SimpleStatement
from msgspec import Struct

from peloton.runtime.adapters.cassandra_session import CONDITIONAL, SERIAL, Connected, asking
from peloton.runtime.core.journal import register
from peloton.runtime.ports import JournalRefused, Unreachable

LOCK_TTL_S = 120
"""A command that died holds the lock for as long. Schema changes take a few seconds."""
CHANGE_TIMEOUT_S = 30.0
LOCK_TABLE = "schema_lock"
LOCK_NAMESPACE = uuid.UUID("6c6f6361-6c20-7363-6865-6d61206c6f63")
KEYSPACE_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
DATA_CENTRE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n\)(.*)", re.DOTALL)


class Table(Struct, frozen=True):
    """A table as `schema.cql` defines it."""

    name: str
    text: str
    columns: dict[str, str]
    """Name and type of each."""


def tables() -> list[Table]:
    """The tables that should exist."""
    file = resources.files("peloton.runtime.adapters") / "schema.cql"
    bare = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
    return [_table(text.strip()) for text in bare.split(";") if text.strip()]


def _table(text: str) -> Table:
    match = TABLE.fullmatch(text)
    assert match is not None, f"schema.cql: no table: {text}"
    lines = (line.strip().rstrip(",") for line in match[2].splitlines())
    columns = [line.split() for line in lines if line and not line.startswith("PRIMARY KEY")]
    return Table(match[1], text, {name: kind for name, kind, *_ in columns})


class SchemaApplied(Struct, frozen=True):
    """Result of `apply`: tables made now, tables that existed, and how those differ."""

    made: tuple[str, ...]
    there: tuple[str, ...]
    differ: tuple[str, ...]


def apply(connected: Connected, keyspace: str, *, replication: dict[str, int]) -> SchemaApplied:
    """Make the keyspace and the tables that are missing. Raises JournalRefused, Unreachable.

    Why a lock, though each statement has IF NOT EXISTS:
     1. commands A and B, at two servers, both see no table `frames`
     2. both create it; each server draws an id of its own for it
     3. the servers exchange their schemas: one name, two ids; half of them cannot read the rows
    """
    _check_names(keyspace, replication)
    there = {host.datacenter for host in connected.cluster.metadata.all_hosts()}
    for name in replication:
        if name not in there:
            raise JournalRefused(
                f"there is no data centre {name}; there is {', '.join(sorted(there))}"
            )
    with asking():
        return _apply(connected.session, keyspace, replication=replication)


def _apply(session: Any, keyspace: str, *, replication: dict[str, int]) -> SchemaApplied:
    parts = ", ".join(f"'{name}': {count}" for name, count in replication.items())
    _change(
        session,
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', {parts}}} AND durable_writes = true",
    )
    session.set_keyspace(keyspace)
    check_format(session, keyspace)
    lock = SchemaLock(session, keyspace)
    try:
        there = set(_columns(session, keyspace))
        missing = [table for table in tables() if table.name not in there]
        for table in missing:
            _change(session, table.text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
        differ = tuple(differences(session, keyspace))
    finally:
        lock.free()
    made = tuple(table.name for table in missing)
    kept = tuple(table.name for table in tables() if table.name not in made)
    return SchemaApplied(made, kept, differ)


def _check_names(keyspace: str, replication: dict[str, int]) -> None:
    """Refuse unusual names: names cannot be bound, so they are part of the statement."""
    if not KEYSPACE_NAME.fullmatch(keyspace):
        raise JournalRefused(
            f"{keyspace!r} is not a valid keyspace name: a-z, 0-9 and _, at most 48"
        )
    if not replication:
        raise JournalRefused("name how many copies each data centre keeps")
    for name, count in replication.items():
        if not DATA_CENTRE_NAME.fullmatch(name) or count < 1:
            raise JournalRefused(f"{name}:{count} is not a data centre with a number of copies ≥ 1")


def _change(session: Any, text: str) -> None:
    """Change the schema, and return once all servers agree on it."""
    try:
        result = session.execute(text, timeout=CHANGE_TIMEOUT_S)
    except AlreadyExists:
        return
    except (RequestValidationException, InvalidOnTheWire) as error:
        raise JournalRefused(f"{error}, in: {text.splitlines()[0]}") from error
    if not result.response_future.is_schema_agreed:
        raise Unreachable("the servers do not agree on the schema; try again when all are up")


class SchemaLock:
    """The lock on a keyspace's schema, held from construction on. Raises JournalRefused if taken.

    Its own table has an id that follows from the keyspace's name: two commands that create it at
    the same time create the same.
    """

    def __init__(self, session: Any, keyspace: str) -> None:
        self._session = session
        self._holder = uuid.uuid4()
        table_id = uuid.uuid5(LOCK_NAMESPACE, keyspace)
        _change(
            session,
            f"CREATE TABLE IF NOT EXISTS {LOCK_TABLE} (one int PRIMARY KEY, holder uuid)"
            f" WITH ID = {table_id}",
        )
        take = f"INSERT INTO {LOCK_TABLE} (one, holder) VALUES (0, %s) IF NOT EXISTS"
        take += f" USING TTL {LOCK_TTL_S}"
        row = session.execute(take, [self._holder], execution_profile=CONDITIONAL).one()
        # Our own id in a refusal: an earlier copy of this very statement was done.
        if not row["[applied]"] and row["holder"] != self._holder:
            raise JournalRefused(
                f"another command is changing the schema of {keyspace}; if it died, "
                f"its lock lasts {LOCK_TTL_S} s"
            )

    def free(self) -> None:
        """Release the lock."""
        delete = f"DELETE FROM {LOCK_TABLE} WHERE one = 0 IF holder = %s"
        self._session.execute(delete, [self._holder])


def check_format(session: Any, keyspace: str) -> None:
    """Raise JournalRefused if the keyspace has a journal of another format than ours."""
    found = read_format(session, keyspace)
    if found is not None:
        register.check_format(found)


def read_format(session: Any, keyspace: str) -> int | None:
    """The format of the journal; None if no daemon has ever used the keyspace."""
    read = SimpleStatement(
        f'SELECT format FROM "{keyspace}".cluster WHERE one = 0', consistency_level=SERIAL
    )
    try:
        row = session.execute(read, execution_profile=CONDITIONAL).one()
    except InvalidRequest:  # there is no such table
        return None
    return row["format"] if row is not None else None


def differences(session: Any, keyspace: str) -> Iterator[str]:
    """Yield how the existing tables differ from those that should exist, as text."""
    existing = _columns(session, keyspace)
    for table in tables():
        have = existing.get(table.name)
        if have is None:
            yield f"table {table.name} is missing"
            continue
        for column, kind in table.columns.items():
            if column not in have:
                yield f"table {table.name}: column {column} is missing"
            elif have[column] != kind:
                yield f"table {table.name}: column {column} is {have[column]}, not {kind}"


def _columns(session: Any, keyspace: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    rows = session.execute(
        "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = %s",
        [keyspace],
    )
    for name, column, kind in rows:
        found.setdefault(name, {})[column] = kind
    return found
