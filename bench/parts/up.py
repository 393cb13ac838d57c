"""How many instances of services are up at each moment, by what the change feed says.

Turns events of tasks into bitmaps of instances that run, and the least of each job. It must not
count what has never run as down, so a job counts from when all of its instances ran at once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from bench.parts.follower import ENDED, STARTED, members_of

KILLING = "TaskKilling"


class UpTally:
    """Instances that run, by job. `totals` counts every run, also of the same instance."""

    def __init__(self, instances: int) -> None:
        self.totals = {STARTED: 0, ENDED: 0}
        self.worst = 0
        """The most instances of one job that were down at once."""
        self._instances = instances
        self._up: dict[str, int] = defaultdict(int)
        self._whole: set[str] = set()  # jobs of which all instances have run at once

    def note(self, event: Any) -> None:
        """Count what an event says; an instance is down as soon as it is told to end."""
        names = (STARTED, ENDED, KILLING)
        started, ended, killing = (name in event.facts for name in names)
        if not (started or ended or killing):
            return
        job, members = members_of(event)
        count = members.bit_count()
        self.totals[STARTED] += count * started
        self.totals[ENDED] += count * ended
        up = self._up[job] | members if started else self._up[job]
        self._up[job] = up & ~members if ended or killing else up
        running = self._up[job].bit_count()
        if running == self._instances:
            self._whole.add(job)
        if job in self._whole:
            self.worst = max(self.worst, self._instances - running)
