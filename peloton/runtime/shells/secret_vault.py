"""The vault of jobs' secrets, for gateway and backends: values by id, over a store of sealed ones.

Turns values into rows that nobody can read, and rows into values, for as long as it takes to hand
them over. A value must not be kept, logged or named in an error. Every call may wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from peloton.runtime.ports import BadSeal, SealedSecret, Sealing, SecretStore, Unreachable

ROWS_PER_JOB_MAX = 256
"""Values of a job that are kept: those of its config, and those before, for a config that comes
back. Beyond it the oldest that no config names go."""
_MICROSECONDS = 1_000_000


class SecretsUnavailable(Exception):
    """The secrets cannot be read or written for now; the text says why."""


class SecretUnreadable(SecretsUnavailable):
    """A value cannot be opened; those of other jobs can."""


class SecretVault:
    """The vault of one cluster; its calls may come from any thread."""

    def __init__(
        self, store: SecretStore, sealing: Sealing, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.sealing = sealing
        self._clock = clock

    def put(
        self, job: str, values: Mapping[str, bytes], *, named: Collection[str] | None = ()
    ) -> None:
        """Store these values by the ids of their secrets, in place of earlier ones.

        `named`: ids that the job's config names, whose values stay whatever their number. None if
        that is not known, as a job of this id may exist already: then no other value is deleted.
        """
        made = int(self._clock() * _MICROSECONDS)
        try:
            before = self.store.of_job(job)
            # Whatever the clock does, what comes later counts.
            made = max([made, *(row.made + 1 for row in before if row.id in values)])
            rows = [
                self.sealing.seal(job, secret, made=made, data=data)
                for secret, data in values.items()
            ]
            old = [row for row in before if row.id in values]
            spare = len(before) - len(old) + len(rows) - ROWS_PER_JOB_MAX
            if named is None and spare > 0:
                raise SecretsUnavailable(f"{len(before)} values are stored for this job")
            self.store.put(rows)
            rest = [row for row in before if row.id not in values and row.id not in (named or ())]
            old += sorted(rest, key=lambda row: row.made)[: max(0, spare)]
            if old:
                self.store.delete(old)
        except Unreachable as error:
            raise SecretsUnavailable(str(error)) from error

    def read(self, job: str, wanted: Collection[str]) -> dict[str, bytes]:
        """Return the values of these ids; ids without a value are missing in the answer."""
        try:
            rows = newest(self.store.of_job(job))
            return {one: self.sealing.unseal(rows[one]) for one in wanted if one in rows}
        except BadSeal as error:
            raise SecretUnreadable(str(error)) from error
        except Unreachable as error:
            raise SecretsUnavailable(str(error)) from error

    def remove(self, job: str, ids: Collection[str]) -> None:
        try:
            self.store.delete([row for row in self.store.of_job(job) if row.id in ids])
        except Unreachable as error:
            raise SecretsUnavailable(str(error)) from error

    def forget(self, job: str) -> None:
        try:
            self.store.forget(job)
        except Unreachable as error:
            raise SecretsUnavailable(str(error)) from error

    def fingerprint(self, data: bytes) -> bytes:
        """Return a digest that equal values share, and that discloses nothing of the value."""
        return self.sealing.fingerprint(data)


def newest(rows: Collection[SealedSecret]) -> dict[str, SealedSecret]:
    """Return the newest row of each id, which counts."""
    found: dict[str, SealedSecret] = {}
    for row in sorted(rows, key=lambda row: row.made):
        found[row.id] = row
    return found
