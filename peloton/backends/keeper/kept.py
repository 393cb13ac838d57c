"""The sandboxes of ended runs that are kept: by job, for a limited time and size.

Turns ended runs into those whose sandboxes are to go, and by which rule. Those of the job whose
last run ended longest ago go first, those of runs that failed last. A job that somebody reads is
leased, for a time that the reader renews: then only the reserve of the disk takes something of it.
Each sandbox is measured once, by a helper.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from .sizes import SizeHelper

BATCH_MAX = 512
HELPER_S_MAX = 60.0
"""A batch that takes longer is given up: the sandbox at which it stands counts as empty."""
COUNT, AGE, BYTES, FREE = "count", "age", "bytes", "free"
LEASE_S_MAX = 300.0
LEASES_MAX = 10_000
"""Jobs that are leased at a time; others are not."""
SPARED_S = 60.0
"""How long a keeper that begins removes nothing of what it found, but for the reserve: readers
renew their leases meanwhile, of which it knows nothing."""
UNKNOWN_KIB = 1024
"""What a sandbox counts that makes room before it is measured."""
LOOKED_AT_MAX = 256
"""Jobs whose oldest run is looked at in one go; all have their turn."""
_RUN = re.compile(r"(?P<job>.+)-[0-9]+-[0-9]+(\.g[0-9]+)?", re.DOTALL)


class KeepRules(NamedTuple):
    """The rules. `age_s`, `mb` or `free_mb` of 0: no such rule."""

    most: int
    age_s: float = 0.0
    mb: int = 0
    free_mb: int = 0


STANDARD_RULES = KeepRules(100_000, age_s=7 * 86400.0, mb=10_240, free_mb=256)
"""Those of whoever is not told others."""


class KeptSandbox:
    __slots__ = ("ended_at", "files", "kib", "run_id")

    def __init__(self, run_id: str, ended_at: float, *, files: JobFiles) -> None:
        self.run_id = run_id
        self.ended_at = ended_at
        self.kib: int | None = None  # not known yet
        self.files = files


class JobFiles:
    """Runs of one job that all failed, or all did not, in the order of their ends."""

    __slots__ = ("failed", "job", "kib", "runs", "shelf")

    def __init__(self, job: str, shelf: FilesInOrder, *, failed: bool) -> None:
        self.job, self.failed = job, failed
        self.runs: deque[KeptSandbox] = deque()
        self.kib = 0  # of all that are measured
        self.shelf = shelf


class FilesInOrder:
    """The files of jobs, those of the one whose last run ended longest ago first."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, JobFiles] = OrderedDict()
        self.runs = self.kib = 0

    @property
    def oldest(self) -> JobFiles | None:
        return next(iter(self.jobs.values()), None)

    def put(self, files: JobFiles) -> None:
        """Append the files of a job as the newest."""
        self.jobs[files.job] = files
        self.runs += len(files.runs)
        self.kib += files.kib
        files.shelf = self

    def take(self, job: str) -> JobFiles | None:
        files = self.jobs.pop(job, None)
        if files is not None:
            self.runs -= len(files.runs)
            self.kib -= files.kib
        return files


class KeptSandboxes:
    """The kept sandboxes of ended runs.

    `path` returns the sandbox of a run; `clock` is the time of ends, `ticks` a monotonic time.
    """

    def __init__(
        self,
        path: Callable[[str], str],
        rules: KeepRules,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rules = rules
        self._path = path
        self._clock, self._ticks = clock, ticks
        self._done, self._failed = FilesInOrder(), FilesInOrder()
        self._leased_done, self._leased_failed = FilesInOrder(), FilesInOrder()
        self._leases: dict[str, float] = {}  # until when
        self._turn: deque[JobFiles] = deque()  # each has its turn to be looked at for its age
        self._unmeasured: deque[KeptSandbox] = deque()
        self._batch: dict[str, KeptSandbox] = {}  # without those that are measured
        self._helper = SizeHelper()
        self._began = 0.0
        self._spared_until = 0.0

    @property
    def helper_pid(self) -> int:
        return self._helper.pid

    def add(self, run_id: str, ended_at: float | None = None, *, failed: bool = False) -> None:
        """Add the newest; it ended now if `ended_at` is not given."""
        found = _RUN.fullmatch(run_id)
        job = found["job"] if found else run_id
        ended_at = self._clock() if ended_at is None else ended_at
        kept = KeptSandbox(run_id, ended_at, files=self._files(job, failed=failed))
        self._append(kept)
        if self.rules.mb or self.rules.free_mb:
            self._unmeasured.append(kept)

    def spare(self) -> None:
        """Spare for a while what was added until now, by an earlier keeper."""
        self._spared_until = self._ticks() + SPARED_S

    def lease(self, job: str, for_s: float) -> None:
        """Hold the files of a job that somebody reads: for so long only the reserve removes one.

        Leases are not added up: the one that ends last counts.
        """
        until = self._ticks() + min(max(for_s, 0.0), LEASE_S_MAX)
        if job not in self._leases:
            if len(self._leases) >= LEASES_MAX:
                return
            self._move(job, leased=True)
        self._leases[job] = max(self._leases.get(job, until), until)

    def take_due(self, most: int, *, short_kib: int = 0) -> list[tuple[KeptSandbox, str]]:
        """Remove from the list and return the first that are to go, each with the rule.

        `short_kib`: what the disk lacks of its reserve.
        """
        self._lapse()
        aged = self._aged(most)
        found = [(kept, AGE) for kept in aged]
        while len(found) < most and (picked := self._next(short_kib)):
            files, rule = picked
            kept = self._pop(files)
            short_kib -= UNKNOWN_KIB if kept.kib is None else kept.kib
            found.append((kept, rule))
        for kept, _ in found:
            kept.kib = kept.kib or 0  # it needs not be measured any more
        return found

    def put_back(self, kept: KeptSandbox) -> None:
        """Put back a sandbox that could not be removed, behind the others."""
        kept.files = self._files(kept.files.job, failed=kept.files.failed)
        self._append(kept)

    def measure(self) -> None:
        """Measure the next sandboxes; called each round."""
        for path, kib in self._helper.read():
            self._measured(self._batch.pop(path, None), kib)
        if self.helper_pid:
            if self._ticks() - self._began > HELPER_S_MAX:
                os.kill(self.helper_pid, signal.SIGKILL)  # not reaped, so the pid is its own
                self._give_up_one()
        elif self._batch or self._unmeasured:
            self._begin()

    def reaped(self) -> None:
        """Note that the helper has ended; folders that it did not name have no size."""
        for path, kib in self._helper.read():
            self._measured(self._batch.pop(path, None), kib)
        self._helper.pid = 0
        for kept in self._batch.values():
            self._measured(kept, 0)
        self._batch = {}

    # ---- which is next ----

    def _next(self, short_kib: int) -> tuple[JobFiles, str] | None:
        rules, done, failed = self.rules, self._done, self._failed
        if short_kib > 0:
            shelves = done, failed, self._leased_done, self._leased_failed
            found = next((one.oldest for one in shelves if one.jobs), None)
            return (found, FREE) if found is not None else None
        runs, most_kib = done.runs + failed.runs, rules.mb * 1024
        if not runs or self._is_spared():
            return None
        if runs > rules.most:
            return self._oldest(spares_failed=2 * failed.runs <= rules.most), COUNT
        # The newest stays, however large it is: else it would be gone before anybody read it.
        if most_kib and done.kib + failed.kib > most_kib and runs > 1:
            files = self._oldest(spares_failed=2 * failed.kib <= most_kib)
            if files.runs[0].kib is not None:
                return files, BYTES
        return None

    def _oldest(self, *, spares_failed: bool) -> JobFiles:
        """Return the files to remove first.

        Failed runs take half of what is kept at most: the others would be gone at once if something
        fails again and again.
        """
        first, then = self._done, self._failed
        if not spares_failed:
            first, then = then, first
        found = first.oldest or then.oldest
        assert found is not None, "something is kept"
        return found

    def _aged(self, most: int) -> list[KeptSandbox]:
        """Return the sandboxes that ended too long ago, of the jobs whose turn it is."""
        found: list[KeptSandbox] = []
        if not self.rules.age_s or self._is_spared():
            return found
        before = self._clock() - self.rules.age_s
        for _ in range(min(len(self._turn), LOOKED_AT_MAX)):
            files = self._turn.popleft()
            is_leased = files.job in self._leases
            while files.runs and not is_leased and files.runs[0].ended_at <= before:
                if len(found) == most:
                    self._turn.appendleft(files)
                    return found
                found.append(self._pop(files))
            if files.runs:
                self._turn.append(files)
        return found

    def _is_spared(self) -> bool:
        return self._ticks() < self._spared_until

    # ---- where it stands ----

    def _shelf(self, job: str, *, failed: bool) -> FilesInOrder:
        if job in self._leases:
            return self._leased_failed if failed else self._leased_done
        return self._failed if failed else self._done

    def _files(self, job: str, *, failed: bool) -> JobFiles:
        shelf = self._shelf(job, failed=failed)
        files = shelf.jobs.get(job)
        if files is None:
            files = JobFiles(job, shelf, failed=failed)
            shelf.put(files)
            if self.rules.age_s:
                self._turn.append(files)
        return files

    def _append(self, kept: KeptSandbox) -> None:
        files, kib = kept.files, kept.kib or 0
        files.runs.append(kept)
        files.shelf.runs += 1
        files.kib += kib
        files.shelf.kib += kib
        files.shelf.jobs.move_to_end(files.job)

    def _pop(self, files: JobFiles) -> KeptSandbox:
        kept = files.runs.popleft()
        files.shelf.runs -= 1
        files.kib -= kept.kib or 0
        files.shelf.kib -= kept.kib or 0
        if not files.runs:
            files.shelf.take(files.job)
        return kept

    def _move(self, job: str, *, leased: bool) -> None:
        """Make the job the newest: its reader counts as a use."""
        free, taken = (self._done, self._failed), (self._leased_done, self._leased_failed)
        for old, new in zip(*((free, taken) if leased else (taken, free)), strict=True):
            files = old.take(job)
            if files is not None:
                new.put(files)

    def _lapse(self) -> None:
        now = self._ticks()
        for job in [job for job, until in self._leases.items() if until <= now]:
            del self._leases[job]
            self._move(job, leased=False)

    # ---- sizes ----

    def _begin(self) -> None:
        while self._unmeasured and len(self._batch) < BATCH_MAX:
            kept = self._unmeasured.popleft()
            if kept.kib is None:
                self._batch[self._path(kept.run_id)] = kept
        if self._batch:
            self._began = self._ticks()
            self._helper.begin(self._batch)

    def _measured(self, kept: KeptSandbox | None, kib: int) -> None:
        if kept is not None and kept.kib is None:
            kept.kib = kib
            kept.files.kib += kib
            kept.files.shelf.kib += kib

    def _give_up_one(self) -> None:
        """Give up one sandbox; the others of the batch are measured by the next helper."""
        first, *others = self._batch.values() if self._batch else (None,)
        self._measured(first, 0)
        self._unmeasured.extendleft(reversed(others))
        self._batch = {}
