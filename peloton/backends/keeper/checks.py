"""Health checks by command: each is a process beside its run, with the same account and limits.

Turns requests into processes, and their ends into events. No process is waited for: the loop reaps
it, or kills it when its time is over. Nothing is journaled; a check that a killed keeper leaves is
ended by its successor.

A check waits at a gate, a pipe, until it is in its run's control group: the keeper must not enter
that itself, as it would be killed with a run at its memory limit. The output of a check goes to a
folder made for it: a task must not choose which files are opened.
"""

from __future__ import annotations

import heapq
import os
import signal
import stat
from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import accounts, processes
from .accounts import Account, Accounts
from .disk import DISK, Disk
from .kinds import KeeperRun, Record
from .limits import Limits
from .pods import container_pid, own_variables
from .processes import Program, Spawner, SpawnFailed

FOLDER = "checks"
MARK_SUFFIX = ".check"
"""Of the mark of a check's processes: they are no processes of the run that a keeper adopts."""
UNDER_WAY_MAX = 256
"""Checks at once; one more is not carried out, and nothing is known of its outcome."""
PRINTED_BYTES_MAX = 16 * 1024 * 1024
"""What a check may print, looked at in each round: it is in nobody's disk limit."""
_SANDBOX = "MESOS_SANDBOX"
_PRINTED = f"killed, as it may print {PRINTED_BYTES_MAX // 1024**2} MB"
_NOT_DONE = "is not carried out"
_DEADLINES_MAX = 4 * UNDER_WAY_MAX
_OUTPUT_BYTES_MAX = 4096
_TEXT_MAX = 200
_GATE, _OUTPUTS = "go", ("stdout", "stderr")
_SHELL = f'read -r _ < {_GATE} && cd "$1" && exec /bin/sh -c "$2"'
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class CheckRequest(NamedTuple):
    """A requested check. The asker chooses its number, which comes back with the answer."""

    number: int
    command: str
    timeout_s: float
    unshared: bool = False


class CheckMeans(NamedTuple):
    """The means by which checks are started, as runs are."""

    spawner: Spawner
    limits: Limits
    accounts: Accounts
    base: Mapping[str, str]


class _Owner(NamedTuple):
    environment: dict[str, str]
    account: Account | None


class _UnderWay(NamedTuple):
    run: KeeperRun
    asked: CheckRequest
    folder: str
    gate: int  # the pipe, open until it has ended


def read_request(sent: Record) -> CheckRequest:
    """Read a daemon's request of a check. Raises one of MALFORMED."""
    timeout_s = float(sent["timeout_s"])
    if not 0 < timeout_s <= 1e6:
        raise ValueError(f"not a timeout: {timeout_s}")
    return CheckRequest(
        int(sent["number"]), str(sent["command"]), timeout_s, bool(sent["unshared"])
    )


def checked_event(run_id: str, asked: CheckRequest, *, ok: bool | None, text: str) -> Record:
    """Return the answer to a request; `ok` is None if nothing is known."""
    return {"a": "checked", "run": run_id, "number": asked.number, "ok": ok, "text": text}


class Checks:
    """The checks of all runs of one keeper. `tell` takes the events for a host's daemon."""

    def __init__(
        self,
        folder: str,
        tell: Callable[[str, Record], None],
        *,
        means: CheckMeans,
        disk: Disk = DISK,
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._spawner, self._limits, self._accounts, self._base = means
        self._disk = disk
        self._owners: dict[str, _Owner] = {}
        self._by_pid: dict[int, _UnderWay] = {}
        self._deadlines: list[tuple[float, int, int]] = []
        self._noisy: dict[int, None] = {}  # those killed for what they have printed
        self._swept = False

    @property
    def pids(self) -> tuple[int, ...]:
        return (*self._by_pid,)

    def owns(self, pid: int) -> bool:
        """Return whether the pid is the first process of a check."""
        return pid in self._by_pid

    def started(self, run: KeeperRun) -> None:
        """Keep what a check needs of a run that is being started, before that is dropped."""
        if run.checked:
            account = run.command.get("account")
            own = own_variables(run) if run.pod else {}
            self._owners[run.run_id] = _Owner({**own, **run.command["environment"]}, account)

    def ended(self, run: KeeperRun) -> None:
        """Kill the checks of a run that has ended."""
        self._owners.pop(run.run_id, None)
        for pid, under_way in self._by_pid.items():
            if under_way.run is run:
                processes.signal_group(pid, signal.SIGKILL)

    # One check.

    def begin(self, run: KeeperRun, asked: CheckRequest, *, sandbox: str, now: float) -> None:
        """Start a check. A failure to start it is no outcome of the check."""
        if not run.checked:
            where = "in a container of its own " if run.container else ""
            event = checked_event(run.run_id, asked, ok=None, text=f"a command {where}{_NOT_DONE}")
            self._tell(run.host, {**event, "never": True})
            return
        if len(self._by_pid) >= UNDER_WAY_MAX:
            self._answer(run, asked, ok=None, text=_NOT_DONE)
            return
        folder, gate = f"{FOLDER}/{run.run_id}-{asked.number}", -1
        try:
            program = self._program(run, asked, sandbox=sandbox, folder=folder)
            gate = self._make(folder)
            with self._spawner:
                pid = self._spawner.spawn(program)
        except (SpawnFailed, accounts.AccountUnusable, OSError) as trouble:
            self._remove(folder, gate)
            self._answer(run, asked, ok=None, text=str(trouble)[:_TEXT_MAX])
            return
        self._limits.admit(run, pid)
        os.write(gate, b"\n")
        self._by_pid[pid] = _UnderWay(run, asked, folder, gate)
        heapq.heappush(self._deadlines, (now + asked.timeout_s, pid, asked.number))
        if len(self._deadlines) > _DEADLINES_MAX:  # most are of checks that have long ended
            self._deadlines = [one for one in self._deadlines if self._is_of(*one[1:])]
            heapq.heapify(self._deadlines)

    def _program(
        self, run: KeeperRun, asked: CheckRequest, *, sandbox: str, folder: str
    ) -> Program:
        owner = self._owners.get(run.run_id) or self._found(run)
        where = f"{self._folder}/{sandbox}"
        environment = {
            **self._base,
            **(owner.account.environment if owner.account is not None else {}),
            **({} if asked.unshared else owner.environment),
            _SANDBOX: where,
            processes.RUN_MARK: run.run_id + MARK_SUFFIX,
            processes.KEEPER_MARK: self._folder,
        }
        arguments = ["sh", "-c", _SHELL, "sh", where, asked.command]
        return Program("/bin/sh", arguments, environment, folder, owner.account)

    def _found(self, run: KeeperRun) -> _Owner:
        """Return the environment with which an earlier keeper started the run."""
        wanted = run.command.get("as")
        account = self._accounts.of(wanted) if wanted is not None else None
        pid = container_pid(run, self._folder) if run.pod else run.pid
        environment = processes.environment(pid) if pid else {}
        begun = _SANDBOX in environment  # else it is yet to execute its command
        if not (begun and run.live and processes.is_alive(run.pid, run.birth)):
            raise OSError("what it belongs to does not run")
        owner = self._owners[run.run_id] = _Owner(environment, account)
        return owner

    def reaped(self, pid: int, status: int) -> bool:
        """Return whether this process was that of a check; if so, report its outcome."""
        under_way = self._by_pid.pop(pid, None)
        if under_way is None:
            return False
        failure, noisy = self._spawner.ended(pid), pid in self._noisy
        self._noisy.pop(pid, None)
        run, asked, folder, gate = under_way
        text = self._output(folder)
        self._remove(folder, gate)
        if run.end is not None or failure is not None:
            self._answer(run, asked, ok=None, text=str(failure or "its run has ended"))
        elif status == 0:
            self._answer(run, asked, ok=True, text=text)
        else:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            if status == -signal.SIGKILL:
                how = _PRINTED if noisy else f"killed, as it may take {asked.timeout_s:g} s"
            self._answer(run, asked, ok=False, text=f"{how}: {text}" if text else how)
        return True

    def next_deadline(self) -> float | None:
        """Return when `kill_overdue` is to be called next."""
        while self._deadlines and not self._is_of(*self._deadlines[0][1:]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def kill_overdue(self, now: float) -> None:
        """Kill the checks whose time is over, with the processes that they have started."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, pid, _ = heapq.heappop(self._deadlines)
            processes.signal_group(pid, signal.SIGKILL)

    def kill_noisy(self) -> None:
        """Kill the checks that would fill the disk: the journal is on it."""
        for pid, under_way in self._by_pid.items():
            path = f"{self._folder}/{under_way.folder}"
            if any(_size(f"{path}/{name}") > PRINTED_BYTES_MAX for name in _OUTPUTS):
                self._noisy[pid] = None
                processes.signal_group(pid, signal.SIGKILL)

    def _is_of(self, pid: int, number: int) -> bool:
        found = self._by_pid.get(pid)
        return found is not None and found.asked.number == number

    def _answer(self, run: KeeperRun, asked: CheckRequest, *, ok: bool | None, text: str) -> None:
        self._tell(run.host, checked_event(run.run_id, asked, ok=ok, text=text))

    # Its folder.

    def _make(self, folder: str) -> int:
        """Make the folder of a check, and return its gate. Raises OSError."""
        if not self._swept:
            self._sweep()
        self._disk.mkdir(folder, 0o700)
        gate = f"{folder}/{_GATE}"
        os.mkfifo(gate, 0o600)
        opened = os.open(gate, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
        os.fchmod(opened, 0o444)  # for another account, too; only root could open it after that
        return opened

    def _sweep(self) -> None:
        """Make the folder of all checks, and remove what an earlier keeper has left in it."""
        try:
            self._disk.mkdir(FOLDER, 0o700)
        except FileExistsError:
            with self._disk.scandir(FOLDER) as entries:
                left = [entry.name for entry in entries]
            for name in left:
                self._remove(f"{FOLDER}/{name}")
        self._swept = True

    def _output(self, folder: str) -> str:
        """Return the last line of a check's output, of its errors if there are some."""
        found = ""
        for name in _OUTPUTS:
            found = _last_line(f"{self._folder}/{folder}/{name}") or found
        return found

    def _remove(self, folder: str, gate: int = -1) -> None:
        """Remove a check's folder as far as possible: the account may have put more into it."""
        path = f"{self._folder}/{folder}"
        if gate >= 0:
            os.close(gate)
        try:
            for name in (_GATE, *_OUTPUTS):
                try:
                    self._disk.unlink(f"{path}/{name}")
                except FileNotFoundError:
                    continue
            self._disk.rmdir(path)
        except OSError:
            return


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _last_line(path: str) -> str:
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return ""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return ""
        os.lseek(descriptor, max(found.st_size - _OUTPUT_BYTES_MAX, 0), os.SEEK_SET)
        lines = os.read(descriptor, _OUTPUT_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    line = next((line for line in reversed(lines) if line.strip()), "")
    return "".join(each if each.isprintable() else " " for each in line).strip()[:_TEXT_MAX]
