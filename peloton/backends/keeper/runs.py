"""All runs of one keeper, from launch to acknowledged end.

Turns requests and the deaths of processes into journal records and events, in that order:
nothing is reported before it is safe on disk. It must not read a socket or wait for anything but
the disk.
"""

from __future__ import annotations

import heapq
import json
import os
import signal
import time
from collections import deque
from collections.abc import Iterable

from . import kinds, processes
from .journal import KeeperJournal, KeeperJournalFailed, sync_folder
from .kinds import KeeperRun, Memory, Record
from .sandboxes import SandboxFolders

# So many launches share one sync of the journal; kills and ends are served between batches.
LAUNCH_BATCH_MAX = 64
# What a task inherits from the keeper's environment: enough to find a shell, and no secret.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_PIPE_READ_BYTES = 65536


class EpochRefused(Exception):
    """The sender is not the host's owner any more; `known` is."""

    def __init__(self, known: int) -> None:
        super().__init__(f"epoch {known} is known")
        self.known = known


class BadRequest(Exception):
    """The request is malformed."""


# What reading a malformed request may raise.
_MALFORMED = (BadRequest, KeyError, TypeError, ValueError, AttributeError)


class Runs:
    def __init__(
        self, folder: str, memory: Memory, *, journal: KeeperJournal, boxes: SandboxFolders
    ) -> None:
        self.folder = folder
        self.memory = memory
        self.sandboxes = boxes
        self.events: list[tuple[str, Record]] = []
        self.by_pid: dict[int, KeeperRun] = {}
        self.adopted: dict[str, KeeperRun] = {}
        self._journal = journal
        self._queue: deque[KeeperRun] = deque()
        self._ending: list[KeeperRun] = []
        self._notes: list[Record] = []
        self._kills: list[tuple[float, str]] = []
        self._exec_errors: dict[int, str] = {}
        self.exec_errors_fd, self._exec_errors_write_fd = os.pipe()
        os.set_blocking(self.exec_errors_fd, False)

    # Requests of the daemon.

    def hello(self, host: str, epoch: int) -> None:
        """Raise the host's epoch durably; raises EpochRefused if a higher one is known."""
        known = self.memory.epochs.get(host, -1)
        if epoch < known:
            raise EpochRefused(known)
        if epoch > known:
            self._journal.append([kinds.epoch_record(host, epoch)], sync=True)
            self.memory.epochs[host] = epoch

    def launch(self, host: str, requests: Iterable[Record]) -> None:
        """A repeat is answered from the records; a malformed request fails its own run only."""
        for request in requests:
            known = self.memory.runs.get(request["run"])
            if known is None:
                try:
                    run = _run_of(host, request)
                except _MALFORMED as trouble:
                    self._refuse(host, request["run"], why=f"{type(trouble).__name__}: {trouble}")
                    continue
                self.memory.runs[run.run_id] = run
                self._queue.append(run)
            elif known.host == host:
                self._report_again(known)
            else:
                self._refuse_used(host, known.run_id)

    def kill(self, host: str, run_id: str, *, grace_s: float) -> None:
        run = self.memory.runs.get(run_id)
        if run is None or run.host != host:
            self.events.append((host, {"a": "unknown", "run": run_id}))
        elif run.end is not None:
            self._report_again(run)
        else:
            first, run.kill_requested = not run.kill_requested, True
            if run.pid and first:
                self._signal(run, signal.SIGTERM)
            if run.pid:
                heapq.heappush(self._kills, (time.monotonic() + grace_s, run_id))

    def ack(self, run_ids: Iterable[str]) -> None:
        """Delete ended runs; their folders stay, so their ids stay taken."""
        for run_id in run_ids:
            run = self.memory.runs.get(run_id)
            if run is not None and run.end_safe:
                del self.memory.runs[run_id]
                self._notes.append(kinds.ack_record(run_id))
                self.sandboxes.finish(run_id)

    def listing(self, host: str) -> list[Record]:
        return [kinds.listed(run) for run in self.memory.runs.values() if run.host == host]

    def _report_again(self, run: KeeperRun) -> None:
        if run.end_safe and run.end is not None:
            self.events.append((run.host, kinds.ended_event(run.run_id, run.end)))
        elif run.live:
            self.events.append((run.host, kinds.started_event(run)))

    # What the loop calls.

    @property
    def busy(self) -> bool:
        """Unacknowledged ends do not count: they are safe in the journal."""
        return bool(self.by_pid or self.adopted or self._queue or self._ending)

    @property
    def queued(self) -> bool:
        return bool(self._queue)

    def next_kill(self) -> float | None:
        return self._kills[0][0] if self._kills else None

    def kill_overdue(self, now: float) -> None:
        while self._kills and self._kills[0][0] <= now:
            run = self.memory.runs.get(heapq.heappop(self._kills)[1])
            if run is not None and run.live:
                self._signal(run, signal.SIGKILL)

    def kill_all(self) -> None:
        self._queue.clear()
        for run in [*self.by_pid.values(), *self.adopted.values()]:
            self._signal(run, signal.SIGKILL)

    def kill_over_memory(self, run: KeeperRun, message: str) -> None:
        run.over_memory = message
        self._signal(run, signal.SIGKILL)

    def start_some(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), LAUNCH_BATCH_MAX))]
        if batch:
            self._fork(self._record_launches(batch))

    def _record_launches(self, batch: list[KeeperRun]) -> list[KeeperRun]:
        """The folders, then their records, then one sync for all: from here on no keeper can
        start these ids again."""
        made: list[KeeperRun] = []
        for run in batch:
            try:
                self.sandboxes.make(run.run_id)
            except FileExistsError:
                del self.memory.runs[run.run_id]
                self._refuse_used(run.host, run.run_id)
                continue
            except OSError as trouble:
                self._not_started(run, f"sandbox: {trouble}")
            run.recorded = True
            made.append(run)
        try:
            self._journal.append(map(kinds.launch_record, made), sync=True)
            sync_folder("runs")
        except (KeeperJournalFailed, OSError) as trouble:
            for run in made:
                self._not_started(run, f"journal: {trouble}")
        for run in made:
            if run.kill_requested and run.end is None:
                self._finish(
                    run, kinds.KILLED, reason=kinds.KILL_REQUESTED, message="not started yet"
                )
        return [run for run in made if run.end is None]

    def _fork(self, batch: list[KeeperRun]) -> None:
        if not batch:
            return
        try:
            forks = processes.ForkBatch(self._exec_errors_write_fd)
        except OSError as trouble:
            for run in batch:
                self._not_started(run, str(trouble))
            return
        try:
            self._fork_behind_gate(batch, forks)
        finally:
            forks.close()

    def _fork_behind_gate(self, batch: list[KeeperRun], forks: processes.ForkBatch) -> None:
        born = []
        for run in batch:
            try:
                run.pid = forks.fork(self._program(run))
            except OSError as trouble:
                self._not_started(run, f"fork: {trouble}")
                continue
            found = processes.stat(run.pid)
            run.birth = found.birth if found else 0
            run.started_at = time.time()
            born.append(run)
        try:
            # No sync: it outlives a killed keeper, and a power cut ends the processes as well.
            self._journal.append(map(kinds.start_record, born), sync=False)
        except KeeperJournalFailed as trouble:
            for run in born:
                run.pid = 0
                self._not_started(run, f"journal: {trouble}")
            return
        forks.open()
        for run in born:
            self.by_pid[run.pid] = run
            self._exec_errors.pop(run.pid, None)  # of an earlier process with this pid
            self.events.append((run.host, kinds.started_event(run)))
            run.command.pop("environment", None)

    def _program(self, run: KeeperRun) -> processes.Program:
        sandbox = self.sandboxes.path(run.run_id)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment["MESOS_SANDBOX"] = sandbox
        environment.update(run.command["environment"])
        environment[processes.RUN_MARK] = run.run_id
        environment[processes.KEEPER_MARK] = self.folder
        value, arguments = run.command["value"], run.command["arguments"]
        if run.command["shell"]:
            return processes.Program("/bin/sh", ["sh", "-c", value], environment, sandbox)
        return processes.Program(value, arguments or [value], environment, sandbox)

    def reap(self) -> None:
        """The group is killed while its leader's pid is still taken: the zombie holds it, so the
        signal cannot reach another process."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            run = self.by_pid.pop(dead.si_pid, None)
            if run is not None:
                processes.signal_group(run.pid, signal.SIGKILL)
            _, status = os.waitpid(dead.si_pid, 0)
            if run is not None:
                self._exited(run, os.waitstatus_to_exitcode(status))
            elif dead.si_pid == self.sandboxes.helper_pid:
                self.sandboxes.helper_pid = 0

    def lose(self, run: KeeperRun) -> None:
        """An adopted run has ended; its exit status cannot be known."""
        del self.adopted[run.run_id]
        message = "killed on request" if run.kill_requested else run.over_memory
        self._finish(run, kinds.LOST, reason=kinds.KEEPER_DIED, message=message)

    def commit(self) -> None:
        """Make ends safe, then report them. A failed write is retried with a new file."""
        if not (self._ending or self._notes or self._journal.broken):
            return
        try:
            if self._journal.broken:
                self._journal.rewrite(self.memory.records())
            else:
                ends = [kinds.end_record(run) for run in self._ending]
                self._journal.append([*self._notes, *ends], sync=bool(ends))
        except KeeperJournalFailed:
            return
        for run in self._ending:
            run.end_safe = True
            self.events.append((run.host, kinds.ended_event(run.run_id, run.end or {})))
        self._ending, self._notes = [], []

    def compact(self, bytes_min: int) -> None:
        if self._journal.size_bytes > max(bytes_min, 4 * self._journal.rewritten_bytes):
            try:
                self._journal.rewrite(self.memory.records())
            except KeeperJournalFailed:
                return  # the next commit tries again

    # Ends.

    def _exited(self, run: KeeperRun, status: int) -> None:
        self.read_exec_errors()
        exec_error = self._exec_errors.pop(run.pid, "")
        if exec_error:
            outcome, reason, message = kinds.FAILED, kinds.NOT_RUNNABLE, exec_error
        elif run.over_memory:
            outcome, reason, message = kinds.FAILED, kinds.OVER_MEMORY, run.over_memory
        else:
            outcome = kinds.SUCCEEDED if status == 0 else kinds.FAILED
            reason = kinds.EXITED if status >= 0 else kinds.SIGNALLED
            message = f"exit code {status}" if status >= 0 else f"signal {_signal_name(-status)}"
            if run.kill_requested:
                outcome, reason = kinds.KILLED, kinds.KILL_REQUESTED
        self._finish(run, outcome, reason=reason, message=message, status=status)

    def read_exec_errors(self) -> None:
        """Whole lines only: each was written at once and is shorter than PIPE_BUF."""
        try:
            while data := os.read(self.exec_errors_fd, _PIPE_READ_BYTES):
                for line in data.splitlines():
                    pid, text = json.loads(line)
                    self._exec_errors[pid] = text
        except BlockingIOError:
            return

    def _not_started(self, run: KeeperRun, message: str) -> None:
        if run.end is None:
            self._finish(run, kinds.LOST, reason=kinds.NOT_STARTED, message=message)

    def _refuse(self, host: str, run_id: str, *, why: str) -> None:
        """Not recorded: a repeat is refused again."""
        end = kinds.end_of(kinds.FAILED, reason=kinds.NOT_RUNNABLE, message=why, at=time.time())
        self.events.append((host, kinds.ended_event(run_id, end)))

    def _refuse_used(self, host: str, run_id: str) -> None:
        """Not recorded: whoever acknowledged the first run of this id knows its end."""
        end = kinds.end_of(kinds.LOST, reason=kinds.USED_BEFORE, at=time.time())
        self.events.append((host, kinds.ended_event(run_id, end)))

    def _finish(
        self, run: KeeperRun, outcome: str, *, reason: str, message: str, status: int | None = None
    ) -> None:
        run.end = kinds.end_of(
            outcome, reason=reason, message=message, status=status, at=time.time()
        )
        run.command.pop("environment", None)
        self._ending.append(run)

    def _signal(self, run: KeeperRun, number: int) -> None:
        """A child not yet reaped keeps its pid; an adopted process must be checked first."""
        if not run.adopted or processes.is_alive(run.pid, run.birth):
            processes.signal_group(run.pid, number)


def _run_of(host: str, request: Record) -> KeeperRun:
    run_id = request["run"]
    if not kinds.RUN_ID.fullmatch(run_id):
        raise BadRequest(f"not a run id: {run_id!r}")
    command = {
        "value": str(request["value"]),
        "shell": bool(request["shell"]),
        "arguments": [str(argument) for argument in request["arguments"]],
        "environment": {str(k): str(v) for k, v in request["environment"].items()},
    }
    return KeeperRun(run_id, host, command=command, memory_mb=float(request["memory_mb"]))


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
