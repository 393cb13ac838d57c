"""The jobs and their ends, by the tallies in their journal.

Turns committed facts of jobs into their specs and ends, for checks that need both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from peloton.actors.job import facts as jf
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import ENDED_NAMES
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.vocabulary import Key

EndCounts = tuple[tuple[str, int], ...]
"""Instances by state, those of no state left out."""


def end_counts(counts: Iterable[tuple[str, int]]) -> EndCounts:
    """Return the same counts in one order."""
    return tuple(sorted((name, count) for name, count in counts if count))


class JobEnds:
    """The specs and ends of all jobs.

    `ever`: each way in which a job was seen to have ended; `last`: its present end; `deleted`: the
    jobs whose deletion was ordered.
    """

    def __init__(self) -> None:
        self.specs: dict[Key, JobSpec] = {}
        self.ever: dict[Key, dict[EndCounts, None]] = {}
        self.last: dict[Key, EndCounts] = {}
        self.deleted: dict[Key, None] = {}
        self._tallies: dict[Key, dict[int, dict[str, int]]] = {}
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            jf.JobMade: self._made,
            jf.JobChanged: self._changed,
            jf.JobTallied: self._tallied,
            jf.SliceVanished: self._vanished,
            jf.DeletionOrdered: self._deletes,
            jf.JobForgotten: self._forgotten,
        }

    def was_over(self, job: Key) -> bool:
        """Return whether the job has ended once, is to be deleted, or is not there any more."""
        return job in self.ever or job in self.deleted or job not in self.specs

    def was_gone(self, job: Key) -> bool:
        """Return whether the job has ended once, or none of its slices is left."""
        return job in self.ever or not self._tallies.get(job)

    def _made(self, entry: Entry, fact: jf.JobMade) -> None:
        self.specs[entry.key], self._tallies[entry.key] = fact.spec, {}
        self.last.pop(entry.key, None)
        self.deleted.pop(entry.key, None)

    def _changed(self, entry: Entry, fact: jf.JobChanged) -> None:
        self.specs[entry.key] = fact.spec
        self.last.pop(entry.key, None)

    def _tallied(self, entry: Entry, fact: jf.JobTallied) -> None:
        job, tallies = entry.key, self._tallies[entry.key]
        tallies[fact.number] = dict(fact.tally.counts)
        total: dict[str, int] = {}
        for counts in tallies.values():
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        ended = sum(total.get(name, 0) for name in ENDED_NAMES)
        if 0 < self.specs[job].instances <= ended:
            self.last[job] = end_counts(total.items())
            self.ever.setdefault(job, {})[self.last[job]] = None
        else:
            self.last.pop(job, None)

    def _vanished(self, entry: Entry, fact: jf.SliceVanished) -> None:
        self._tallies.get(entry.key, {}).pop(fact.number, None)

    def _deletes(self, entry: Entry, fact: jf.DeletionOrdered) -> None:  # noqa: ARG002
        self.deleted[entry.key] = None

    def _forgotten(self, entry: Entry, fact: jf.JobForgotten) -> None:  # noqa: ARG002
        self.specs.pop(entry.key, None)
        self._tallies.pop(entry.key, None)
        self.last.pop(entry.key, None)
