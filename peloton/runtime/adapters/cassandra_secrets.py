"""Port `SecretStore` on Cassandra: the table `secrets` of `schema.cql`, on a session of its own.

Turns sealed rows into plain writes and reads at the journal's level of consistency. No write needs
a condition: a new value is a new row. The session is not the journal's, so that no commit waits
behind a large value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra import InvalidRequest

from peloton.runtime.adapters import cassandra_session
from peloton.runtime.adapters.cassandra_session import CassandraSettings, Connected
from peloton.runtime.ports import JournalRefused, SealedSecret, Unreachable

PUT = "INSERT INTO secrets (job, id, made, key_id, data) VALUES (?, ?, ?, ?, ?)"
OF_JOB = "SELECT job, id, made, key_id, data FROM secrets WHERE job = ?"
DELETE = "DELETE FROM secrets WHERE job = ? AND id = ? AND made = ?"
FORGET = "DELETE FROM secrets WHERE job = ?"
FIRST_JOBS = "SELECT DISTINCT job FROM secrets LIMIT ?"
NEXT_JOBS = "SELECT DISTINCT job FROM secrets WHERE token(job) > token(?) LIMIT ?"
STATEMENTS = (PUT, OF_JOB, DELETE, FORGET, FIRST_JOBS, NEXT_JOBS)


class CassandraSecrets:
    """A SecretStore in the table `secrets`. Safe to call from several threads."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected
        with self._asking():
            try:
                self._prepared = {one: connected.session.prepare(one) for one in STATEMENTS}
            except InvalidRequest as error:
                keyspace = connected.session.keyspace
                text = f"keyspace {keyspace} has no table for secrets: run `peloton schema apply`"
                raise JournalRefused(text) from error

    @classmethod
    def open(cls, settings: CassandraSettings) -> CassandraSecrets:
        """Connect to the store. Raises Unreachable, or JournalRefused if the table is missing."""
        try:
            connected = cassandra_session.connect(settings)
        except InvalidRequest as error:
            raise JournalRefused(f"there is no keyspace {settings.keyspace}") from error
        try:
            return cls(connected)
        except BaseException:
            connected.close()
            raise

    def put(self, rows: Sequence[SealedSecret]) -> None:
        """Write rows one after the other: they are few, and each may be large."""
        for row in rows:
            self._done(PUT, row.job, row.id, row.made, row.key_id, row.data)

    def of_job(self, job: str) -> list[SealedSecret]:
        return [SealedSecret(*row) for row in self._done(OF_JOB, job)]

    def delete(self, rows: Sequence[SealedSecret]) -> None:
        for row in rows:
            self._done(DELETE, row.job, row.id, row.made)

    def forget(self, job: str) -> None:
        """Delete the partition of a job."""
        self._done(FORGET, job)

    def jobs(self, after: str, *, most: int) -> list[str]:
        """Return the next jobs after the given one, in the order of their tokens."""
        rows = self._done(NEXT_JOBS, after, most) if after else self._done(FIRST_JOBS, most)
        return [job for (job,) in rows]

    def close(self) -> None:
        self._connected.close()

    def _done(self, statement: str, *values: Any) -> list[Any]:
        with self._asking():
            return [*self._connected.session.execute(self._prepared[statement], values)]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn errors of the driver into Unreachable, without the values that were bound."""
        try:
            yield
        except cassandra_session.FAILURES as error:
            text = f"secrets: {type(error).__name__}"
            raise Unreachable(f"{text}: {error}") from error
