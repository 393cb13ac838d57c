"""The supervisor: the parent of a keeper, which keeps the exit codes of a killed keeper's runs.

It is run as `python -I -S .../supervisor.py LOCK_FD STATUS_FD COMMAND...` in the keeper's folder.
The kernel gives the children of a process that has ended to the nearest subreaper above it: that is
this process. So a keeper starts and reaps its runs as if there were no supervisor, which costs them
nothing; once it is killed, their ends come here. They are kept in memory and told to the next
keeper, which is started at once, until that has them in its journal. Nothing else is done here: a
process that takes part in nothing else has no reason to fail.

The supervisor imports only modules that are part of the interpreter, because it lives as long as
the keeper. It is a subreaper already when it begins (`__main__.py`), and holds the lock LOCK_FD, as
its keeper does: a keeper whose supervisor has died executes this program in its place, and has its
successor as a child. By two pipes they tell each other, in lines:

    to the keeper   inherited PID BIRTH  a child of an earlier keeper, which has not ended
                    end PID BIRTH STATUS CPU_S PEAK_MB AT      one that has
                    all                these were those from before this keeper
    from it         STATUS             of its start; 0: it is ready
                    PID BIRTH          told, or of no use
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

PROGRAM_FILE = "program"
"""How the next keeper is started: the words of its command, each with a NUL behind it. Whoever
wants a keeper writes it, so that one of the newest version takes the place of one that is gone."""
LIVED_S = 5.0
"""A keeper that was ready, and lived so long, has no fault that its successor has as well."""
PAUSE_FIRST_S, PAUSE_LAST_S = 0.1, 2.0
_READ_BYTES = 65536
_STAT_BYTES_MAX = 4096
_FAILED_STATUS = 1
_READY_STATUS = 0
_PEAK_PER_MB = 1024  # of ru_maxrss


class Supervisor:
    """The supervisor of one folder, which is the working folder."""

    def __init__(self, lock_fd: int, status_fd: int, *, command: list[str]) -> None:
        self._lock_fd, self._status_fd, self._command = lock_fd, status_fd, command
        self._alarm, wakeup = os.pipe()
        for descriptor in (self._alarm, wakeup):
            os.set_blocking(descriptor, False)
        _signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (_signal.SIGCHLD, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, lambda *_: None)
        _signal.signal(_signal.SIGTERM, self._pass_on)
        self._keeper, self._code = 0, 0
        self._leaves = False  # a keeper is to end once no run is alive
        self._down = self._up = -1
        self._unsent, self._begun = bytearray(), b""
        self._status: int | None = None
        self._started_at = 0.0
        # Children that an earlier keeper had when it ended, and ends that none has in its journal.
        self._inherited = _children()
        self._ends: dict[tuple[int, int], bytes] = {}

    def _pass_on(self, *_: object) -> None:
        """Pass SIGTERM on to the keeper, as soon as one is ready for it.

        The signal is passed to the next keeper as well if one is killed before its runs have ended.
        """
        self._leaves = True
        if self._keeper and self._status == _READY_STATUS:
            os.kill(self._keeper, _signal.SIGTERM)

    def serve(self) -> int:
        """Serve until a keeper has ended by itself, or nothing is left; return an exit status."""
        pause_s = 0.0
        while True:
            self._pause(pause_s)
            if self._folder_gone():
                return _FAILED_STATUS
            self._start()
            while self._keeper or self._up >= 0:
                self._wait(-1.0)
            if self._status == _READY_STATUS and self._code == 0:
                return 0
            if not (self._inherited or self._ends):
                return self._code or _FAILED_STATUS
            lived = self._status == _READY_STATUS and time.monotonic() - self._started_at > LIVED_S
            pause_s = 0.0 if lived else min(max(PAUSE_FIRST_S, 2 * pause_s), PAUSE_LAST_S)

    def _folder_gone(self) -> bool:
        """Return whether the folder is gone: then nobody asks for the ends.

        The processes that are left are killed, as the keeper does it.
        """
        try:
            if os.stat(".").st_nlink:
                return False
        except OSError:
            return False  # a disk that fails for a moment: it is asked again before the next start
        for pid in self._inherited:  # children, which nobody else reaps
            try:
                os.killpg(pid, _signal.SIGKILL)
            except OSError:
                continue
        return True

    # The keeper.

    def _start(self) -> None:
        down, self._down = os.pipe()
        self._up, up = os.pipe()
        os.set_blocking(self._down, False)
        self._status, self._begun, self._code = None, b"", _FAILED_STATUS
        self._started_at = time.monotonic()
        inherited = [b"inherited %d %d\n" % one for one in self._inherited.items()]
        self._unsent = bytearray(b"".join([*inherited, *self._ends.values(), b"all\n"]))
        passed = [down, up, self._lock_fd]
        words = _wanted() or self._command
        command = [*words[:4], "--below", *map(str, passed), *words[4:]]
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        try:
            self._keeper = os.posix_spawn(
                command[0], command, os.environ, setsid=True, setsigmask=(),
                setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),
            )  # fmt: skip
        except OSError as trouble:
            say(f"the keeper cannot be started: {trouble.strerror}")
        os.close(down)
        os.close(up)
        os.set_inheritable(self._lock_fd, False)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._wait(left_s)

    def _wait(self, seconds: float) -> None:
        """Wait for something to happen, and handle it."""
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        if self._up >= 0:
            poll.register(self._up, select.POLLIN)
        if self._unsent and self._down >= 0:
            poll.register(self._down, select.POLLOUT)
        ready = dict(poll.poll(seconds * 1000 if seconds >= 0 else None))
        if self._alarm in ready:
            try:
                os.read(self._alarm, _READ_BYTES)
            except BlockingIOError:
                pass
        self._reap()
        if self._up in ready:
            self._hear()
        self._tell()

    def _hear(self) -> None:
        """Read the keeper's pipe to its end.

        At the end the keeper has ended, and any process it was just starting has begun and can be
        found. Nobody may take the keeper's place before.
        """
        data = os.read(self._up, _READ_BYTES)
        if not data:
            os.close(self._up)
            os.close(self._down)
            self._up = self._down = -1
            self._unsent.clear()
            self._answer(b"")
            return
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            if b" " not in line:
                self._status = int(line)
                self._answer(bytes([self._status]))
                if self._leaves:
                    self._pass_on()
                continue
            pid, birth = map(int, line.split())
            if self._ends.pop((pid, birth), None) is None and self._inherited.get(pid) == birth:
                del self._inherited[pid]

    def _answer(self, status: bytes) -> None:
        """Answer the starter, once. A starter that has given up meanwhile reads nothing more."""
        if self._status_fd >= 0:
            try:
                os.write(self._status_fd, status)
            except BrokenPipeError:
                pass
            os.close(self._status_fd)
            self._status_fd = -1

    def _tell(self) -> None:
        try:
            while self._unsent and self._down >= 0:
                sent = os.write(self._down, memoryview(self._unsent)[:_READ_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()  # it has ended; the next one is told all

    # What has ended.

    def _reap(self) -> None:
        """Reap children.

        While a keeper lives it is told all ends, and replies which are of no use: it may be ending,
        and its runs be ours before that is known. Without a keeper only the processes count that it
        had when it ended: others are orphans of these, as many as a run may start.
        """
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            pid, birth = dead.si_pid, _stat(dead.si_pid)[1]
            _, status, used = os.wait4(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if pid == self._keeper:
                self._keeper, self._code, self._inherited = 0, code, _children()
                if code:
                    say(f"the keeper, process {pid}, has ended: status {code}")
            elif self._inherited.pop(pid, None) is not None or self._keeper:
                cpu_s, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / _PEAK_PER_MB
                at = time.clock_gettime(time.CLOCK_BOOTTIME)
                line = b"end %d %d %d %.3f %.1f %.3f\n" % (pid, birth, code, cpu_s, peak_mb, at)
                self._ends[pid, birth] = line
                if self._down >= 0:
                    self._unsent += line


def _children() -> dict[int, int]:
    """Return the children of this process, with their times of birth."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            pids = [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel built without this file
        others = (int(name) for name in os.listdir("/proc") if name.isdigit())
        pids = [pid for pid in others if _stat(pid)[0] == me]
    return {pid: _stat(pid)[1] for pid in pids}


def _stat(pid: int) -> tuple[int, int]:
    """Return parent and birth; zeros for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = (file.read(_STAT_BYTES_MAX) or b"").rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), int(fields[19])


def _wanted() -> list[str]:
    """Return the command in the file; empty if there is none."""
    try:
        with open(PROGRAM_FILE, "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def say(text: str) -> None:
    """Log to the keeper's log, if its disk takes it: the exit codes of runs count more."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        os.write(1, f"{now} {text}\n".encode())
    except OSError:
        pass


def main(arguments: list[str]) -> int:
    """Write the pid for people to the folder's lock, and serve."""
    lock_fd, status_fd = int(arguments[0]), int(arguments[1])
    for descriptor in (lock_fd, status_fd):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    try:
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)
    except OSError as trouble:  # a full disk, say: the lock holds all the same
        say(f"the file of the supervisor: {trouble.strerror}")
    return Supervisor(lock_fd, status_fd, command=arguments[2:]).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
