"""The watcher of one pod with several containers, a child of the keeper: `... -S pod_run.py`.

Turns a description (JSON, by a descriptor) into the processes of the containers, and their states
into a file: init containers one after the other, then all others together. The watcher outlives the
keeper, so exit statuses do as well. A container is never started again. When the pod is to be
killed is not decided here: the keeper does, by SIGTERM (the containers are told) and SIGUSR1
(killed).

Each container is a process group of its own in the watcher's session, which is how a keeper finds
all of them. A container that is told to end has ended when its last process has, or is killed.
Signals are blocked from the beginning and taken when there is time. A change is written first; then
the parent, which is the keeper that started the watcher or of no concern, gets a SIGCHLD, as for a
child that has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

DESCRIPTION_FD = 4
# The last two mean nothing here, and must not end it: what it watches would be nobody's.
TAKEN = (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)
LOOK_S = 5.0
"""Between two looks at children where no signal comes: it heals what nobody expects."""
_TERM, _KILL = 1, 2
_KILL_PASSES_MAX = 40
_KILL_PAUSE_S = 0.005
_UMASK = 0o022


class _Container:
    """A container: its status as in subprocess, once it has ended; `why` it could not run."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.name, self.init = str(told["name"]), bool(told["init"])
        self.told = told
        self.outputs = (-1, -1)
        self.pid = 0
        self.started_at = self.ended_at = 0.0
        self.status: int | None = None
        self.why = ""
        self.left: tuple[int, Any] | None = None
        """How its first process ended, while others of its group go on."""

    @property
    def runs(self) -> bool:
        return self.pid > 0 and not self.ended_at


class PodWatcher:
    """The watcher of one pod."""

    def __init__(self, told: dict[str, Any]) -> None:
        # The keeper's own modules, which are beside this file.
        self._processes = import_module("keeper.processes")
        self._switching = import_module("keeper.switching")
        self._replace_file = import_module("keeper.disk").replace_file
        accounts = import_module("keeper.accounts")
        self._path = str(told["status"])
        self._sandbox = str(told["sandbox"])
        account = told["account"]
        self._account = accounts.Account(*account) if account is not None else None
        self._grace_s = float(told["grace_s"])
        self._containers = [_Container(one) for one in told["containers"]]
        self._spawner = self._processes.Spawner()
        self._log = -1
        self._stop = 0
        self._sent = 0
        self._stops = False
        """They were told to end, and not killed yet: each ends with its last process."""
        self._ready_at = 0.0
        self._failed: int | None = None
        self._why_lost = ""
        self._over = False

    def run(self) -> None:
        """Run from the first container to the end of the last one."""
        try:
            self._open()
            self._start_all()
        except (OSError, self._switching.SwitchFailed, self._processes.SpawnFailed) as trouble:
            self._why_lost = str(trouble)
        self._wait_for_all()
        self._end_session()
        self._over = True
        self._write()

    def _open(self) -> None:
        """Open every file in the sandbox before it is the account's."""
        names = [*self._switching.OUTPUTS]
        for one in self._containers:
            names += [f"{one.name}.{name}" for name in self._switching.OUTPUTS]
        opened = self._switching.hand_over(self._sandbox, self._account, outputs=names)
        os.fchdir(opened[0])
        self._log = opened[1]
        for at, one in enumerate(self._containers):
            one.outputs = (opened[3 + 2 * at], opened[4 + 2 * at])

    def _start_all(self) -> None:
        inits = [one for one in self._containers if one.init]
        mains = [one for one in self._containers if not one.init]
        for one in inits:
            if self._start(one):
                while one.runs:
                    self._step(LOOK_S)
            if self._stop or self._failed is not None or self._why_lost:
                return
        for one in mains:
            if not self._start(one):
                return
        self._ready_at = time.time()
        self._write()

    def _start(self, one: _Container) -> bool:
        """Start a container; return whether it runs. Raises SpawnFailed if it is not to blame."""
        self._take_signals(0.0)
        if self._stop:
            return False
        told, sandbox = one.told, self._sandbox
        program = self._processes.Program(
            told["value"], told["arguments"], told["environment"], sandbox, self._account
        )
        one.started_at = time.time()
        try:
            one.pid = self._spawner.spawn_part(program, one.outputs)
        except self._processes.SpawnFailed as failure:
            one.ended_at = one.started_at
            if failure.status is None:
                raise
            self._ended(one, failure.status, why=str(failure))
            return False
        finally:
            told["environment"] = {}
        self._say(one, "started")
        self._write()
        return True

    def _wait_for_all(self) -> None:
        """Wait until nothing runs; once one has failed, the others end within the grace."""
        kill_at = None
        while any(one.runs for one in self._containers):
            broken = self._failed is not None or self._why_lost
            if broken and kill_at is None:
                kill_at = time.monotonic() + self._grace_s
                self._signal(signal.SIGTERM)
            left_s = LOOK_S if kill_at is None else kill_at - time.monotonic()
            if left_s <= 0:
                self._signal(signal.SIGKILL)
                left_s = LOOK_S
            self._step(min(left_s, LOOK_S))

    def _step(self, seconds: float) -> None:
        """Wait for a signal or a child; obey the one and reap the other."""
        if self._reap_all():
            return  # its signal may have been taken before
        deadline = self._spawner.next_deadline()
        if deadline is not None:
            seconds = max(0.0, min(seconds, deadline - time.monotonic()))
        self._take_signals(seconds)
        if self._stop > self._sent:
            self._sent = self._stop
            self._signal(signal.SIGTERM if self._stop == _TERM else signal.SIGKILL)
        self._spawner.kill_overdue(time.monotonic())
        self._reap_all()

    def _reap_all(self) -> bool:
        reaped = False
        while self._reap():
            reaped = True
        return reaped

    def _take_signals(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            found = signal.sigtimedwait(TAKEN, max(0.0, until - time.monotonic()))
            if found is None:
                return
            until = 0.0
            if found.si_signo == signal.SIGTERM:
                self._stop = max(self._stop, _TERM)
            elif found.si_signo == signal.SIGUSR1:
                self._stop = _KILL

    def _reap(self) -> bool:
        """Reap a child; return whether there was one.

        Processes that it leaves in its group are killed while its pid is still taken.
        """
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if dead is None:
            return False
        group = os.getpgid(dead.si_pid)
        running = {some.pid: some for some in self._containers if some.runs}
        one = running.get(dead.si_pid) or running.get(group)  # a first process may leave its group
        first = one is not None and one.pid == dead.si_pid
        if first and not self._stops:
            self._processes.signal_group(dead.si_pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(dead.si_pid, 0)[1])
        if one is None:
            return True
        if first:
            one.left = status, self._spawner.ended(dead.si_pid)
        if one.left and not (self._stops and self._processes.has_group(one.pid)):
            self._first_exited(one)
        return True

    def _first_exited(self, one: _Container) -> None:
        """Handle the end of a container's first process, when no process with grace is left."""
        assert one.left is not None
        status, failure = one.left
        one.ended_at = time.time()
        if failure is None or self._stop:
            self._ended(one, status)
        elif failure.status is None:
            self._why_lost = str(failure)
        else:
            self._ended(one, failure.status, why=str(failure))

    def _ended(self, one: _Container, status: int, *, why: str = "") -> None:
        one.status, one.why = status, why
        if status != 0 and self._failed is None:
            self._failed = self._containers.index(one)
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        self._say(one, why or how)
        self._write()

    def _signal(self, number: int) -> None:
        self._stops = number == signal.SIGTERM
        for one in self._containers:
            if one.runs:
                self._processes.signal_group(one.pid, number)
                if one.left and not self._stops:
                    self._first_exited(one)

    def _end_session(self) -> None:
        """Kill processes that containers have left in groups of their own."""
        for _ in range(_KILL_PASSES_MAX):
            mine = os.getpid()
            found = [
                pid
                for pid, info in self._processes.all_processes()
                if info.session == mine and pid != mine and info.state not in "ZX"
            ]
            if not found:
                return
            for pid in found:
                self._processes.signal_one(pid, signal.SIGKILL)
            time.sleep(_KILL_PAUSE_S)

    def _write(self) -> None:
        """Write the file whole or not at all; nobody reads it after a power cut."""
        rows = [[one.started_at, one.ended_at, one.status, one.why] for one in self._containers]
        told = {
            "over": self._over, "ready_at": self._ready_at, "failed": self._failed,
            "why_lost": self._why_lost, "containers": rows,
        }  # fmt: skip
        try:
            self._replace_file(self._path, json.dumps(told).encode())
        except OSError as trouble:
            os.write(2, f"the state of a pod is lost: {trouble.strerror}\n".encode())
        if not self._over:
            self._processes.signal_one(os.getppid(), signal.SIGCHLD)

    def _say(self, one: _Container, text: str) -> None:
        """Write a line for people to the pod's own log."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        whose = f"{'init container' if one.init else 'container'} {one.name}"
        try:
            os.write(self._log, f"{at} {whose}: {text}\n".encode())
        except OSError:
            return  # on a full disk the containers go on all the same


def main() -> None:
    """Read the description of the pod, and watch it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # What containers leave becomes a child of this process, not of the keeper: it is waited for.
    import_module("keeper.processes").become_subreaper()
    os.umask(_UMASK)
    with open(DESCRIPTION_FD, encoding="utf-8") as file:
        told = json.load(file)
    PodWatcher(told).run()


if __name__ == "__main__":
    main()
