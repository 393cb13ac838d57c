"""The sweep of files that came with jobs: those of jobs that are gone, or have ended long ago.

Files of a job that may still run, or that was created a moment ago, are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from peloton.actors.job.messages import JobView
from peloton.assembly.process_log import log_line
from peloton.assembly.secret_sweep import SecretSweep
from peloton.assembly.sweep import YOUNG_S, Sweep
from peloton.backends.job_files import JobFileFolder
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault

KEPT_S = 7 * 86_400.0
"""After the end of the job: what failed of it may be run again."""


class JobFileSweep(Sweep):
    """The sweep of the files in one keeper's folder."""

    what = "files of jobs"

    def __init__(
        self,
        files: JobFileFolder,
        region: Region,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(region, report=report, clock=clock)
        self._files = files

    def sweep(self) -> None:
        """Look at every job that has files, once. Raises OSError."""
        for job, made in self._files.made().items():
            if not self._goes_on():
                return
            if made < self._clock() - YOUNG_S and not self._needed(job):
                self._files.remove(job)

    def _needed(self, job: str) -> bool:
        found = self._asked(job)
        if isinstance(found, JobView):
            ended = found.summary.completed_at
            return not ended or self._clock() - ended < KEPT_S
        return found is None


def begin_sweeps(
    vault: SecretVault | None,
    files: JobFileFolder | None,
    *,
    region: Region,
) -> list[Callable[[], object]]:
    """Start the sweeps of a daemon; return the calls that end them."""
    sweeps: list[Sweep] = []
    if vault is not None:
        sweeps.append(SecretSweep(vault, region, report=log_line))
    if files is not None:
        sweeps.append(JobFileSweep(files, region, report=log_line))
    for sweep in sweeps:
        sweep.start()
    return [sweep.stop for sweep in sweeps]
