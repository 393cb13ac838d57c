"""A client of the Cassandra for tests that asks again where the server stood still.

Turns answers that nobody knows into what is so: on a busy machine its disk takes longer than the
two seconds that a write may take. It must not be used where doubt is what a test is about, as it
removes the doubt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from peloton.runtime.adapters import cassandra_session
from peloton.runtime.adapters.cassandra_session import Connected
from peloton.runtime.adapters.cassandra_store import CassandraRows
from peloton.runtime.core.journal.statements import Statement, StatementFailed, StatementReply

PATIENCE_S = 60.0
AGAIN_S = 0.1


class PatientRows(CassandraRows):
    """What failed is sent again as it was: its second copy is refused with the name of the first,
    which tells the journal that it was done."""

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        replies = super().run(statements)
        pauses = _pauses()
        while failed := [n for n, one in enumerate(replies) if isinstance(one, StatementFailed)]:
            if not next(pauses, False):
                break
            again = super().run([statements[number] for number in failed])
            for number, reply in zip(failed, again, strict=True):
                replies[number] = reply
        return replies


def executed(connected: Connected, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
    """The rows of a statement that may be carried out more than once."""
    pauses = _pauses()
    while True:
        try:
            return list(connected.session.execute(statement, values))
        except cassandra_session.FAILURES:
            if not next(pauses, False):
                raise


def _pauses() -> Iterator[bool]:
    """One after the other, until it took too long in all."""
    until_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while time.monotonic() < until_s:
        pause.wait(AGAIN_S)
        yield True
