"""The stopping of runs: the times of kills, the notices to programs, and the end of their grace.

Turns graces and limits into runs that are due to be killed, the text of a kill into the file
`preempted` of the sandbox, and the file `checkpointed`, which the program may write then, into an
early end of its grace. Files in a sandbox are the program's: those that exist are never written to
or followed.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterator, Mapping
from signal import SIGTERM

from .kinds import KeeperRun

NOTICE, SAVED = "preempted", "checkpointed"
LOOK_S = 0.2
"""Between two looks at the sandboxes of runs that were told; there are none at other times."""
_FEW = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def since_boot() -> float:
    """Return the seconds since the machine's start, including those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stops:
    """The runs of one keeper that are being stopped, or are to be once they have run too long.

    `signal` sends a signal to a run, `note` records a change of it for a successor.
    """

    def __init__(
        self,
        runs: Mapping[str, KeeperRun],
        path: Callable[[str], str],
        *,
        signal: Callable[[KeeperRun, int], None],
        note: Callable[[KeeperRun], object],
    ) -> None:
        self._runs, self._path = runs, path
        self._signal, self._note = signal, note
        self._notices = Notices()
        self._kills: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._dues: list[tuple[float, str]] = []
        """What has changed since is not as in `_due`; seldom more than half of it."""

    # One run.

    def begin(self, run: KeeperRun, grace_s: float, *, notice: str = "") -> None:
        """Tell a run to end, once, and kill it after its grace, or that of an earlier order."""
        if notice and not run.stop:
            self._notices.give(run.run_id, self._path(run.run_id), text=notice)
        self._stop(run, time.monotonic() + grace_s)

    def _stop(self, run: KeeperRun, at: float) -> None:
        """Stop a run. That is noted before the signal, so that the end is known to be by order."""
        self.kill_at(at, run.run_id)
        if not run.stop or at < run.stop[0]:
            run.stop = [at, bool(run.stop and run.stop[1])]
            self._note(run)
        if not run.stop[1]:
            self._signal(run, SIGTERM)
            run.stop[1] = True
            self._note(run)

    def kill_at(self, at: float, run_id: str) -> None:
        """Schedule a kill, by the monotonic clock."""
        heapq.heappush(self._kills, (at, run_id))

    def started(self, run: KeeperRun) -> None:
        """Start the time of a run: now, or for a pod, when all its containers had started.

        The caller notes when the time is over.
        """
        if run.max_running_s and not run.due:
            run.due = since_boot() + run.max_running_s
            if run.ready_at:
                run.due -= time.time() - run.ready_at
            self._due_at(run.due, run.run_id)

    def limit(self, run: KeeperRun, max_running_s: float) -> None:
        """Limit the time of a run, from its start on; from now on if it had no limit."""
        begun = run.due - run.max_running_s if run.due else since_boot()
        run.max_running_s = max_running_s
        if run.live and run.begun_at:
            run.due = begun + max_running_s if max_running_s else 0.0
            self._due_at(run.due, run.run_id)
        if run.live:
            self._note(run)

    def resume(self, run: KeeperRun) -> None:
        """Continue the stop or the limit of an earlier keeper's run."""
        if run.stop:
            self._notices.resume(run.run_id, self._path(run.run_id))
            self._stop(run, run.stop[0])
        else:
            self._due_at(run.due, run.run_id)

    def ended(self, run: KeeperRun, at: float) -> None:
        """End the time of a run, which is late if it ended after its limit."""
        if run.due and not run.stop:
            run.late = since_boot() - (time.time() - at) >= run.due
        self._due_at(0.0, run.run_id)
        self._notices.drop(run.run_id)

    def _due_at(self, at: float, run_id: str) -> None:
        """Set when the time of a run is over, by `since_boot`; 0: it has no limit."""
        if self._due.pop(run_id, 0.0) and len(self._dues) > 2 * len(self._due) + _FEW:
            self._dues = [(due, other) for other, due in self._due.items()]
            heapq.heapify(self._dues)
        if at:
            self._due[run_id] = at
            heapq.heappush(self._dues, (at, run_id))

    # All of them.

    def next_at(self) -> float | None:
        """Return when there is something to do, by the monotonic clock."""
        times = [self._notices.next_look(), self._kills[0][0] if self._kills else None]
        if self._dues:
            times.append(time.monotonic() + self._dues[0][0] - since_boot())
        return min((at for at in times if at is not None), default=None)

    def overdue(self, now: float) -> Iterator[KeeperRun]:
        """Stop runs that have run too long; then yield those that are to be killed."""
        while self._dues and self._dues[0][0] <= since_boot():
            at, run_id = heapq.heappop(self._dues)
            run = self._runs.get(run_id)
            if self._due.get(run_id) == at and run is not None and run.live and not run.stop:
                del self._due[run_id]
                if run.exit:  # it has ended, and that is about to be seen to
                    continue
                run.kill_requested = run.late = True
                self.begin(run, run.grace_s)
        for run_id in self._notices.saved(now):
            self.kill_at(now, run_id)
        while self._kills and self._kills[0][0] <= now:
            run = self._runs.get(heapq.heappop(self._kills)[1])
            if run is not None and run.live:
                yield run


class Notices:
    """The runs that got a notice and have not ended, as far as this keeper knows."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, str] = {}
        self._look_at = 0.0

    def give(self, run_id: str, sandbox: str, *, text: str) -> None:
        """Give a run a notice; if that fails the run has the signal, as any other."""
        try:
            folder = os.open(sandbox, _FOLDER)
        except OSError:
            return
        try:
            file = os.open(NOTICE, _NEW, 0o644, dir_fd=folder)
            try:
                os.fchmod(file, 0o644)
                os.write(file, text.encode("utf-8", "replace") + b"\n")
            finally:
                os.close(file)
            self._sandboxes[run_id] = sandbox
        except OSError:
            return
        finally:
            os.close(folder)

    def resume(self, run_id: str, sandbox: str) -> None:
        """Take over a run that an earlier keeper may have given a notice."""
        if _has(NOTICE, sandbox):
            self._sandboxes[run_id] = sandbox

    def drop(self, run_id: str) -> None:
        self._sandboxes.pop(run_id, None)

    def next_look(self) -> float | None:
        """Return when to look whether a run has saved its work; None if none got a notice."""
        return self._look_at if self._sandboxes else None

    def saved(self, now: float) -> list[str]:
        """Return the runs that have saved their work since; once each."""
        if not self._sandboxes or now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        found = [run for run, sandbox in self._sandboxes.items() if _has(SAVED, sandbox)]
        for run_id in found:
            del self._sandboxes[run_id]
        return found


def _has(name: str, sandbox: str) -> bool:
    try:
        folder = os.open(sandbox, _FOLDER)
    except OSError:
        return False
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(folder)


def has_grace(run: KeeperRun) -> bool:
    """Return whether a run is being stopped, and its other processes may go on until the kill.

    Of several containers their watcher decides that.
    """
    asked = run.kill_requested and not (run.killed or run.over_limit)
    return asked and not (run.container or run.pod)
