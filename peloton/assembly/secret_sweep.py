"""The sweep of secrets: what no job has is deleted, and what older keys sealed is sealed anew.

Turns the jobs of the store into questions to the cluster, one at a time, on a thread of its own. It
heals losses (a create that was refused or whose answer was lost, a job that left the archive), so
nobody waits for it. It must not delete what is younger than `YOUNG_S`: its command may be under
way; nor the secrets of a job about which nobody answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as TimesUp
from typing import Any

from peloton.actors.job.messages import GetJob, JobView, job_key
from peloton.runtime.ports import BadSeal, SealedSecret, Unreachable
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.runtime.vocabulary import Absent

FIRST_S, EVERY_S = 60.0, 3600.0
"""After the start, and between two sweeps."""
YOUNG_S = 900.0
ASK_S_MAX = 15.0
PAUSE_S = 0.01
"""Between two jobs: it has time."""
PAGE_JOBS = 500
_MICROSECONDS = 1_000_000


class SecretSweep:
    """Of one daemon, from `start` until `stop`. `report` takes lines for people."""

    def __init__(
        self,
        vault: SecretVault,
        region: Region,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._vault = vault
        self._region = region
        self._report = report
        self._clock = clock
        self._leaving = threading.Event()
        self._unreadable: set[str] = set()
        self._anew = 0

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="secret-sweep", daemon=True).start()

    def stop(self) -> None:
        """Sweep no more."""
        self._leaving.set()

    def _run(self) -> None:
        pause_s = FIRST_S
        while not self._leaving.wait(pause_s):
            pause_s = EVERY_S
            try:
                self.sweep()
            except Unreachable as error:
                self._report(f"warning: the sweep of secrets stopped: {error}")

    def sweep(self) -> None:
        """Look at every job that has secrets, once. Raises Unreachable."""
        self._anew, unreadable = 0, set(self._unreadable)
        last, store = "", self._vault.store
        while page := store.jobs(last, most=PAGE_JOBS):
            for job in page:
                if self._leaving.wait(PAUSE_S):
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
        """Whether there is such a job, which has secrets; None if nobody answers."""
        try:
            found: Any = self._region.ask(job_key(job), GetJob()).result(ASK_S_MAX)
        except TimesUp:
            return None
        if isinstance(found, JobView):
            return bool(found.spec.default.secrets)
        return False if isinstance(found, Absent) else None

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


def begin_sweep(
    vault: SecretVault | None, region: Region, *, report: Callable[[str], object]
) -> list[Callable[[], object]]:
    """Sweep from now on, if there are secrets; what ends it."""
    if vault is None:
        return []
    sweep = SecretSweep(vault, region, report=report)
    sweep.start()
    return [sweep.stop]
