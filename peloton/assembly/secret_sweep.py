"""The sweep of secrets: those of no job are deleted, those under older keys are sealed anew.

Turns the jobs of the store into questions to the cluster, one at a time, on a thread of its own.
The sweep heals losses (a create that was refused or whose answer was lost, a job that left the
archive), so nobody waits for it. Secrets younger than `YOUNG_S` must not be deleted: their command
may be under way; nor those of a job about which nobody answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from peloton.actors.job.messages import JobView
from peloton.assembly.sweep import YOUNG_S, Sweep
from peloton.runtime.ports import BadSeal, SealedSecret
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault

PAGE_JOBS = 500
_MICROSECONDS = 1_000_000


class SecretSweep(Sweep):
    """The sweep of the secrets of one store."""

    what = "secrets"

    def __init__(
        self,
        vault: SecretVault,
        region: Region,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(region, report=report, clock=clock)
        self._vault = vault
        self._unreadable: set[str] = set()
        self._anew = 0

    def sweep(self) -> None:
        """Look at every job that has secrets, once. Raises Unreachable."""
        self._anew, unreadable = 0, set(self._unreadable)
        last, store = "", self._vault.store
        while page := store.jobs(last, most=PAGE_JOBS):
            for job in page:
                if not self._goes_on():
                    return
                self._look_at(job)
            last = page[-1]
        if self._anew:
            self._report(f"{self._anew} secrets are encrypted with the newest key now")
        for key in sorted(self._unreadable - unreadable):
            self._report(f"warning: secrets of key {key} cannot be read: it is not in the key file")

    def _look_at(self, job: str) -> None:
        rows = self._vault.store.of_job(job)
        named = self._named(job)
        if named is None:
            return
        before = (self._clock() - YOUNG_S) * _MICROSECONDS
        if not named:
            old = [row for row in rows if row.made < before]
            self._vault.store.delete(old)
            rows = [row for row in rows if row.made >= before]
        for row in rows:
            self._seal_anew(row)

    def _named(self, job: str) -> bool | None:
        """Return whether there is such a job, which has secrets; None if nobody answers."""
        found = self._asked(job)
        if isinstance(found, JobView):
            return bool(found.spec.default.secrets)
        return None if found is None else False

    def _seal_anew(self, row: SealedSecret) -> None:
        sealing = self._vault.sealing
        if sealing.is_newest(row):
            return
        try:
            data = sealing.unseal(row)
        except BadSeal:
            self._unreadable.add(row.key_id)
            return
        # The same value at the same place: whoever reads it meanwhile has one of the two.
        self._vault.store.put([sealing.seal(row.job, row.id, made=row.made, data=data)])
        self._anew += 1
