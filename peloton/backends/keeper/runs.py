"""All runs of one keeper, from launch to acknowledged end.

Turns requests and the deaths of processes into journal records and events, in that order: nothing
is reported before it is safe on disk. Nothing but the disk is waited for.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Iterable

from . import accounts, adoption, kinds, processes
from .accounts import AccountUnusable
from .adoption import LeftRuns
from .checks import CheckMeans, CheckRequest, Checks, checked_event
from .containers import Containers
from .disk_use import DiskUse
from .ends import RunExit, adopted_exit_of, container_exit_of, exit_of, limited, pod_exit_of
from .engine import ContainerRefused
from .journal import KeeperJournal, KeeperJournalFailed
from .kinds import KeeperRun, Memory, Record
from .limits import InsideGroup, Limits, LimitsUnavailable
from .pods import Pods, container_ends, ended_at
from .programs import inherited, program_of
from .requests import MALFORMED, EpochRefused, run_of
from .sandboxes import SandboxFolders
from .secret_files import SecretFiles
from .stops import Stops, has_grace
from .volumes import VolumeFolders, folder_of, has_volume, limit_mb
from .watchers import signal_watcher

_NEEDED_ONCE = ("environment", "account", "parts")
"""Of a command: to start it, and never again."""
# So many launches share one sync of the journal; kills and ends are served between batches.
LAUNCH_BATCH_MAX = 64


KILL_AGAIN_S = 2.0
"""What a pod's watcher that is asked to kill its containers may take for it."""


class Runs:
    # Replaced by tests that must know which groups would get a signal.
    signal_group = staticmethod(processes.signal_group)

    def __init__(
        self,
        folder: str,
        memory: Memory,
        *,
        journal: KeeperJournal,
        boxes: SandboxFolders,
        limits: Limits | None = None,
    ) -> None:
        self.folder = folder
        self.memory = memory
        self.sandboxes = boxes
        self.limits = limits or Limits(folder)
        self.disk_use = DiskUse(boxes.path)
        self.volume_use = DiskUse(self._volume_path, limit_mb=limit_mb)
        self._volumes = VolumeFolders(folder)
        self.containers = Containers(folder)
        self.pods = Pods(folder)
        self.secret_files = SecretFiles(folder, lambda: self.containers.mark)
        self.events: list[tuple[str, Record]] = []
        self.by_pid: dict[int, KeeperRun] = {}
        self.adopted: dict[str, KeeperRun] = {}
        self._leaving: dict[int, int] = {}
        """Statuses of first processes of runs that are being stopped, of which others go on."""
        self._journal = journal
        self._queue: deque[KeeperRun] = deque()
        self._ending: list[KeeperRun] = []
        self._acks: list[Record] = []
        self.left = LeftRuns(self._note)
        self._stops = Stops(memory.runs, boxes.path, signal=self._signal, note=self._note)
        self._spawner = processes.Spawner()
        self._accounts = accounts.Accounts(os.geteuid())
        self._inherited = inherited()
        self.checks = Checks(
            folder,
            lambda host, event: self.events.append((host, event)),
            means=CheckMeans(self._spawner, self.limits, self._accounts, self._inherited),
        )

    # Requests of the daemon.

    def hello(self, host: str, epoch: int) -> None:
        """Raise the host's epoch durably. Raises EpochRefused if a higher one is known."""
        known = self.memory.epochs.get(host, -1)
        if epoch < known:
            raise EpochRefused(known)
        if epoch > known:
            self._journal.append([kinds.epoch_record(host, epoch)], sync=True)
            self.memory.epochs[host] = epoch

    def launch(self, host: str, requests: Iterable[Record]) -> None:
        """Launch runs. A repeat is answered from the records; a bad request fails its own run."""
        for request in requests:
            known = self.memory.runs.get(request["run"])
            if known is None:
                try:
                    run = run_of(host, request)
                except MALFORMED as trouble:
                    why = f"{type(trouble).__name__}: {trouble}"
                    refused = kinds.refused_event(request["run"], why, at=time.time())
                    self.events.append((host, refused))
                    continue
                self.memory.runs[run.run_id] = run
                self._queue.append(run)
            elif known.host == host:
                self._report_again(known)
            else:
                self.events.append((host, kinds.used_event(known.run_id, at=time.time())))

    def kill(self, host: str, run_id: str, *, grace_s: float, notice: str = "") -> None:
        run = self.memory.runs.get(run_id)
        if run is None or run.host != host:
            self.events.append((host, {"a": "unknown", "run": run_id}))
        elif run.end is not None:
            self._report_again(run)
        else:
            run.kill_requested = True
            if run.pid:
                self._stops.begin(run, grace_s, notice=notice)

    def limit(self, host: str, run_id: str, *, max_running_s: float) -> None:
        """Limit the time of a run, from its start on; from now on if it had no limit."""
        run = self.memory.runs.get(run_id)
        if run is not None and run.host == host and run.end is None:
            self._stops.limit(run, max_running_s)

    def _note(self, run: KeeperRun) -> bool:
        """Record a run for a successor; return whether it will know. A power cut may lose the
        record."""
        try:
            self._journal.append([kinds.start_record(run)], sync=False)
        except KeeperJournalFailed:
            return False  # the next commit writes a new file
        return True

    def check(self, host: str, run_id: str, *, asked: CheckRequest) -> None:
        """Check the health of a run. If it is not running that is reported at once: the asker
        waits."""
        run = self.memory.runs.get(run_id)
        if run is not None and run.host == host and run.live and not run.kill_requested:
            sandbox = self.sandboxes.path(run_id)
            self.checks.begin(run, asked, sandbox=sandbox, now=time.monotonic())
        else:
            self.events.append((host, checked_event(run_id, asked, ok=None, text="not running")))

    def remove_volumes(self, host: str, names: Iterable[str]) -> None:
        """Remove volumes that no run has; report those that are gone."""
        having = {run.volume["name"] for run in self.memory.runs.values() if has_volume(run)}
        gone = self._volumes.remove(name for name in names if name not in having)
        self.events.append((host, {"a": "removed", "volumes": gone}))

    def ack(self, run_ids: Iterable[str]) -> None:
        """Delete ended runs; their folders stay, so their ids stay taken. A run without a folder
        stays: its id could start again. A lost acknowledgement is repeated after the next listing.
        """
        for run_id in run_ids:
            run = self.memory.runs.get(run_id)
            if run is not None and run.end_safe and self.sandboxes.takes_id(run_id):
                del self.memory.runs[run_id]
                self._acks.append(kinds.ack_record(run_id))
                self.sandboxes.finish(run_id, run.end or {})

    def listing(self, host: str) -> list[Record]:
        mine = (run for run in self.memory.runs.values() if run.host == host)
        return [{**kinds.listed(run), **self.pods.listed(run)} for run in mine]

    def _report_again(self, run: KeeperRun) -> None:
        if run.end_safe and run.end is not None:
            self.events.append((run.host, kinds.ended_event(run.run_id, run.end)))
        elif run.live and (run.ready_at or not run.pod):
            self.events.append((run.host, kinds.started_event(run)))

    # What the loop calls.

    @property
    def helper_pids(self) -> tuple[int, ...]:
        """The children of the keeper that are no runs."""
        measuring = self.disk_use.helper_pid, self.volume_use.helper_pid
        others = self.sandboxes.kept.helper_pid, self.containers.helper_pid
        return (self.sandboxes.helper_pid, *measuring, *others, *self.checks.pids)

    @property
    def busy(self) -> bool:
        """Whether runs are alive or starting. Unacknowledged ends are safe in the journal."""
        return bool(self.by_pid or self.adopted or self._queue or self._ending)

    @property
    def unfinished(self) -> bool:
        """Whether `commit` is to be called again at once. Ends that a broken journal does not take
        wait for the next event, or a round."""
        return bool(self._queue or (self._ending and not self._journal.broken))

    def next_kill(self) -> float | None:
        times = (
            self._stops.next_at(),
            self._spawner.next_deadline(),
            self.checks.next_deadline(),
        )
        return min((at for at in times if at is not None), default=None)

    def kill_overdue(self, now: float) -> None:
        self._spawner.kill_overdue(now)
        self.checks.kill_overdue(now)
        for run in self._stops.overdue(now):
            self._signal(run, signal.SIGKILL)

    def kill_all(self) -> None:
        self._queue.clear()
        for run in [*self.by_pid.values(), *self.adopted.values()]:
            self._signal(run, signal.SIGKILL)

    def kill_over_limit(self, run: KeeperRun, message: str, *, reason: str) -> None:
        run.over_limit, run.over_reason = message, reason
        self._signal(run, signal.SIGKILL)

    def commit(self) -> None:
        """Make ends and the next launches safe with one sync; then report and start them."""
        batch = self._next_batch()
        if not (batch or self._ending or self._journal.broken):
            return
        try:
            if self._journal.broken:
                self._rewrite()
            else:
                records = [kinds.launch_record(run) for run in batch]
                records += [kinds.end_record(run) for run in self._ending]
                self._journal.append(records, sync=True)
        except KeeperJournalFailed as trouble:
            for run in batch:
                self._not_started(run, f"journal: {trouble}")
            return
        ended, self._ending = self._ending, []
        for run in ended:
            run.end_safe = True
            self.containers.forget(run)
            self.pods.forget(run)
            self.events.append((run.host, kinds.ended_event(run.run_id, run.end or {})))
        self._start(batch)

    def _next_batch(self) -> list[KeeperRun]:
        """Return the next launches, with folders: no keeper can start these ids again."""
        batch: list[KeeperRun] = []
        for _ in range(min(len(self._queue), LAUNCH_BATCH_MAX)):
            run = self._queue.popleft()
            try:
                self.sandboxes.make(run.run_id)
            except FileExistsError:
                del self.memory.runs[run.run_id]
                self.events.append((run.host, kinds.used_event(run.run_id, at=time.time())))
                continue
            except OSError as trouble:
                self._not_started(run, f"sandbox: {trouble}")
            if "refusal" in run.command and run.end is None:
                self._finish(run, run.command["refusal"])
            self._choose_account(run)
            self._give_volume(run)
            if run.container:
                self.containers.owned(run)
            run.recorded = True
            batch.append(run)
        return batch

    def _choose_account(self, run: KeeperRun) -> None:
        """End a run whose account cannot be used; it is not started as another one."""
        wanted = run.command.get("as")
        if run.end is not None or wanted is None:
            return
        try:
            account = self._accounts.of(wanted)
            if account is not None:
                self.sandboxes.open_way(account)
            run.command["account"] = account
        except (AccountUnusable, OSError) as trouble:
            self._finish(run, RunExit(kinds.FAILED, kinds.NO_ACCOUNT, str(trouble)))

    def _give_volume(self, run: KeeperRun) -> None:
        """Give a run its volume; it is not started without it."""
        if run.end is not None or not run.volume:
            return
        try:
            self._volumes.give(run, self.sandboxes.path(run.run_id))
        except OSError as trouble:
            self._not_started(run, f"volume: {trouble}")

    def _volume_path(self, run_id: str) -> str:
        return folder_of(self.memory.runs[run_id])

    def resume(self, run: KeeperRun) -> None:
        """Resume an earlier keeper's measures and orders for a run that goes on."""
        self.measure(run)
        self.left.add(run)
        self._stops.resume(run)

    def measure(self, run: KeeperRun) -> None:
        """Measure the disk use of a run from now on, if it has limits."""
        if run.limits.get("disk_mb"):
            self.disk_use.add(run.run_id)
        if run.limits and run.volume:
            self.volume_use.add(run.run_id)

    def _start(self, batch: list[KeeperRun]) -> None:
        """Spawn the runs, then record their pids. If the keeper is killed in between, its successor
        ends the processes, which only their environment identifies."""
        started: list[KeeperRun] = []
        with self._spawner:
            for run in batch:
                if run.kill_requested and run.end is None:
                    message = "not started yet"
                    self._finish(run, RunExit(kinds.KILLED, kinds.KILL_REQUESTED, message))
                if run.end is None and self._spawn(run):
                    started.append(run)
                if run.end is None:
                    self.checks.started(run)
                for name in _NEEDED_ONCE:
                    run.command.pop(name, None)
                run.secrets = ()
        if not started:
            return
        try:
            # No sync: it outlives a killed keeper, and a power cut ends the processes as well.
            self._journal.append(map(kinds.start_record, started), sync=False)
        except KeeperJournalFailed:
            return  # the next commit writes a new file, with their pids

    def _spawn(self, run: KeeperRun) -> bool:
        """Spawn a run; return whether it runs now. A command that cannot be run counts as started,
        as one that fails at once."""
        run.started_at = time.time()
        try:
            run.pid = self._spawn_one(run)
        except processes.SpawnFailed as failure:
            if failure.status is not None:
                self.events.append((run.host, kinds.started_event(run)))
            self._start_failed(run, failure)
            return False
        except (ContainerRefused, LimitsUnavailable) as trouble:
            limits = isinstance(trouble, LimitsUnavailable)
            reason = kinds.NO_LIMITS if limits else kinds.NO_CONTAINER
            self._finish(run, RunExit(kinds.FAILED, reason, str(trouble)))
            return False
        except InsideGroup as trouble:
            self._not_started(run, str(trouble))
            return False
        finally:
            self.limits.leave(run)
        found = processes.stat(run.pid)
        run.birth = found.birth if found else 0
        if run.pid in self._leaving:  # nothing of that run is left, or its number would be taken
            self._end_leaving(run.pid, killed=True)
        self.by_pid[run.pid] = run
        self.measure(run)
        if run.begun_at:
            self.events.append((run.host, kinds.started_event(run)))
            self._stops.started(run)
        return True

    def look_at_pods(self) -> None:
        """Report the changes of pods' containers."""
        for event in self.pods.look():
            run = self.memory.runs[event["run"]]
            self.events.append((run.host, event))
            if event["a"] == "started":
                self._stops.started(run)
                self._note(run)

    def _spawn_one(self, run: KeeperRun) -> int:
        """Spawn one run. A container has no control group of ours: its engine limits it."""
        sandbox = self.sandboxes.path(run.run_id)
        try:
            self.secret_files.put(run, sandbox)
        except OSError as trouble:
            raise processes.SpawnFailed(f"its secrets: {trouble}", status=None) from trouble
        if run.container:
            return self.containers.start(run, sandbox)
        self.limits.enter(run)
        if run.pod:
            return self.pods.start(run, sandbox, base=self._inherited)
        program = program_of(run, sandbox, folder=self.folder, base=self._inherited)
        return self._spawner.spawn(program)

    def _start_failed(self, run: KeeperRun, failure: processes.SpawnFailed) -> None:
        message, status = str(failure), failure.status
        if status is None:
            self._not_started(run, message)
        else:
            reason = kinds.NOT_RUNNABLE
            self._finish(run, RunExit(kinds.FAILED, reason, message), status=status)
        self.limits.not_started(run)

    def reap(self) -> None:
        """Reap ended children. The group is killed while its leader's zombie holds the pid, so the
        signal cannot reach another process. A run that is being stopped ends with its last process,
        which is our child once its parents have ended."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            run = self.by_pid.pop(dead.si_pid, None)
            stops = run is not None and has_grace(run)
            if run is not None and not stops:
                self._kill_rest(run)
            elif self.checks.owns(dead.si_pid):
                self.signal_group(dead.si_pid, signal.SIGKILL)
            group = os.getpgid(dead.si_pid)
            if run is not None and not (run.container or run.pod):
                # Nobody can ask for the status again once the process was waited for.
                run.exit = [processes.status_of(dead), time.time()]
                self._note(run)
            _, status, used = os.wait4(dead.si_pid, 0)
            if run is not None:
                run.peak_mb, run.cpu_s = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
                self._first_exited(run, os.waitstatus_to_exitcode(status), stops=stops)
            elif group in self._leaving:
                self._end_leaving(group)
            elif self.checks.reaped(dead.si_pid, os.waitstatus_to_exitcode(status)):
                continue
            else:
                self._helper_ended(dead.si_pid)

    def _helper_ended(self, pid: int) -> None:
        for helper in (self.sandboxes, self.containers):
            if pid == helper.helper_pid:
                helper.helper_pid = 0
        for measuring in (self.disk_use, self.volume_use, self.sandboxes.kept):
            if pid == measuring.helper_pid:
                measuring.reaped()

    def lose(self, run: KeeperRun) -> None:
        """End an adopted run."""
        del self.adopted[run.run_id]
        if run.container:
            self._watcher_ended(run)
            return
        self.limits.ended(run)
        self.look_at_pods()
        told = self.pods.ended(run) if run.pod else {}
        if told.get("over"):
            self._pod_ended(run, told)
        else:
            status = run.exit[0] if run.exit else None
            self._finish(run, adopted_exit_of(run), status=status, told=told)

    def write_acks(self) -> None:
        """Write acknowledgements, after a sync of the folders: only they know then that the ids are
        taken."""
        if self._acks:
            try:
                self._sync_folders()
                self._journal.append(self._acks, sync=False)
            except KeeperJournalFailed:
                return  # what a commit writes then is without these runs
            self._acks = []

    def compact(self, bytes_min: int) -> None:
        if self._journal.size_bytes > max(bytes_min, 4 * self._journal.rewritten_bytes):
            try:
                self._rewrite()
            except KeeperJournalFailed:
                return  # the next commit tries again

    def _rewrite(self) -> None:
        self._sync_folders()
        self._journal.rewrite(self.memory.records())
        self._acks = []

    def _sync_folders(self) -> None:
        try:
            self.sandboxes.sync()
        except OSError as trouble:
            raise KeeperJournalFailed(str(trouble)) from trouble

    # Ends.

    def _first_exited(self, run: KeeperRun, status: int, *, stops: bool) -> None:
        if stops and processes.has_group(run.pid):
            self._leaving[run.pid], self.by_pid[run.pid] = status, run
        else:
            self._exited(run, status)

    def end_left(self) -> None:
        """End the runs of which no process is left. Then the number of the group is free: a parent
        outside of it has reaped the last one."""
        for group in [*self._leaving]:
            self._end_leaving(group)

    def _end_leaving(self, group: int, *, killed: bool = False) -> None:
        """End the run of this group if its last process has ended, or the group was just killed."""
        if killed or not processes.has_group(group):
            self._exited(self.by_pid.pop(group), self._leaving.pop(group))

    def _exited(self, run: KeeperRun, status: int) -> None:
        if run.container:
            run.peak_mb = run.cpu_s = 0.0  # of the engine's client, not of the container
            self._watcher_ended(run)
            return
        failure = self._spawner.ended(run.pid)
        if failure is not None and not run.kill_requested:
            self._start_failed(run, failure)
            return
        self.limits.ended(run)
        if run.pod:
            self.look_at_pods()  # it may have started just before
            self._pod_ended(run, self.pods.ended(run))
        else:
            self._finish(run, exit_of(run, status), status=status)

    def _pod_ended(self, run: KeeperRun, told: Record) -> None:
        found, status = pod_exit_of(run, told)
        self._finish(run, found, status=status, told=told)

    def _kill_rest(self, run: KeeperRun) -> None:
        """Kill the processes that the leader has left, while its pid is still taken; for a pod
        whose watcher was killed, all of its containers."""
        if run.pod and not self.pods.told(run).get("over"):
            adoption.kill_session(run.pid)
        self.signal_group(run.pid, signal.SIGKILL)

    def _watcher_ended(self, run: KeeperRun) -> None:
        """Handle the end of a watcher; if its container has not ended, another one goes on."""
        told = self.containers.told(run)
        if told is not None:
            found, status = container_exit_of(run, told)
            self._finish(run, found, status=status)
            return
        try:
            run.pid = self.containers.resume(run, self.sandboxes.path(run.run_id))
        except processes.SpawnFailed as failure:
            self._finish(run, RunExit(kinds.LOST, kinds.UNWATCHED, str(failure)))
            return
        found_stat = processes.stat(run.pid)
        run.birth, run.adopted = found_stat.birth if found_stat else 0, False
        self.by_pid[run.pid] = run
        if run.kill_requested or run.over_limit:
            self._signal(run, signal.SIGKILL)  # the last one may not have been obeyed
        try:
            self._journal.append([kinds.start_record(run)], sync=False)
        except KeeperJournalFailed:
            return  # the next commit writes a new file, with its pid

    def _not_started(self, run: KeeperRun, message: str) -> None:
        if run.end is None:
            self._finish(run, RunExit(kinds.LOST, kinds.NOT_STARTED, message))

    def _finish(
        self,
        run: KeeperRun,
        found: RunExit,
        *,
        status: int | None = None,
        told: Record | None = None,
    ) -> None:
        at = ended_at(told) or (run.exit[1] if run.exit else time.time())
        self._stops.ended(run, at)
        self.checks.ended(run)
        self.secret_files.drop(run.run_id)
        run.secrets = ()
        found = limited(run, found)
        message = f"{found.message}; {run.note}" if run.note else found.message
        run.end = kinds.end_of(
            found.outcome, reason=found.reason, message=message, status=status, at=at
        )
        if run.cpu_s or run.peak_mb:
            run.end |= {"cpu_s": round(run.cpu_s, 3), "peak_mb": round(run.peak_mb, 1)}
        if run.pod:
            run.end["containers"] = container_ends(run, told or {})
        run.command.pop("environment", None)
        run.command.pop("parts", None)
        self._ending.append(run)

    def _signal(self, run: KeeperRun, number: int) -> None:
        """Signal a run. An unreaped child or a group keeps its pid; an adopted process is checked
        first."""
        run.killed = run.killed or number == signal.SIGKILL
        if not run.adopted or processes.is_alive(run.pid, run.birth):
            if run.container:
                signal_watcher(run, number)
                return
            if run.pod and self.pods.asks(run, number):
                if number == signal.SIGKILL:
                    self._stops.kill_at(time.monotonic() + KILL_AGAIN_S, run.run_id)
                return
            if run.pod:
                adoption.kill_session(run.pid)
            self.signal_group(run.pid, number)
            if number == signal.SIGKILL:
                self.limits.kill(run)
            if run.killed and run.pid in self._leaving:
                self._end_leaving(run.pid, killed=True)
