"""The hourly sweep of a daemon through data of jobs, some of which may belong to no job any more.

A thread of its own asks the cluster about one job at a time. It heals losses, so nobody waits for
it. No answer is no proof that a job is gone.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as TimesUp

from peloton.actors.job.messages import GetJob, JobView, job_key
from peloton.runtime.ports import Unreachable
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Absent

FIRST_S, EVERY_S = 60.0, 3600.0
"""After the start, and between two sweeps."""
YOUNG_S = 900.0
"""What is younger may be of a command that is under way."""
ASK_S_MAX = 15.0
PAUSE_S = 0.01
"""Between two jobs: it has time."""


class Sweep(abc.ABC):
    """The sweep of one daemon, from `start` until `stop`. `report` takes lines for people."""

    what: str
    """Is swept; in the name of the thread, and in a report."""

    def __init__(
        self,
        region: Region,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._region = region
        self._report = report
        self._clock = clock
        self._leaving = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"sweep-{self.what}", daemon=True).start()

    def stop(self) -> None:
        self._leaving.set()

    @abc.abstractmethod
    def sweep(self) -> None:
        """Look at everything once. Raises Unreachable, OSError."""

    def _run(self) -> None:
        pause_s = FIRST_S
        while not self._leaving.wait(pause_s):
            pause_s = EVERY_S
            try:
                self.sweep()
            except (Unreachable, OSError) as error:
                self._report(f"warning: the sweep of {self.what} stopped: {error}")

    def _goes_on(self) -> bool:
        """Pause between two jobs; return whether there is to be another."""
        return not self._leaving.wait(PAUSE_S)

    def _asked(self, job: str) -> JobView | Absent | None:
        """Return the job, or that there is none; None if nobody answers."""
        try:
            found = self._region.ask(job_key(job), GetJob()).result(ASK_S_MAX)
        except TimesUp:
            return None
        return found if isinstance(found, JobView | Absent) else None
