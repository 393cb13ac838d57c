"""Runs a command and then looks for processes that it left behind: a test run leaves none.

Turns a command line into its exit code, or into 1 where the command succeeded but some of its
processes live on. Orphans become children of this process (PR_SET_CHILD_SUBREAPER), whatever
session or group they moved to, so none can be missed and no stranger is taken for one. It prints
nothing if all is well: the summary of the tests comes last.

    python -m tests.outlived COMMAND [WORD ...]
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""
LEAVE_TIMEOUT_S = 60.0
"""For what was told to end and is still about it, on a busy machine."""
LOOK_AGAIN_S = 0.05


class Leftover(NamedTuple):
    """One process that outlived the command."""

    pid: int
    folder: str
    words: str

    def __str__(self) -> str:
        return f"{self.pid}  in {self.folder}: {self.words}"


def descendants(of: int) -> list[Leftover]:
    """All processes below this one that have not ended, children before theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], children.get(of, [])
    while left:
        found += left
        left = [below for pid in left for below in children.get(pid, [])]
    return [_told(pid) for pid in found]


def _parent(entry: Path) -> int | None:
    """None of a process that has ended, waited for or not."""
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:  # it ended while we looked
        return None
    return None if state in "ZX" else int(parent)


def _told(pid: int) -> Leftover:
    entry = Path("/proc", str(pid))
    try:
        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return Leftover(pid, os.readlink(entry / "cwd"), words.strip())
    except OSError:
        return Leftover(pid, "?", "(ended while it was looked at)")


def reap() -> None:
    """Wait for all children that have ended, so that no zombie looks alive to a test."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:  # there is none
        pass


def run(command: Sequence[str]) -> int:
    """Run it to its end, passing signals on and waiting for orphans meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    pids: list[int] = []
    early: list[int] = []
    """Signals that came before the process was known."""

    def pass_on(number: int, _: object) -> None:
        if not pids:
            early.append(number)
        for pid in pids:  # `Popen.send_signal` would also wait for it, as only the loop below may
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    process = subprocess.Popen(command)
    pids.append(process.pid)
    for number in early:
        os.kill(process.pid, number)
    # A terminal interrupts the whole group, and pytest decides what becomes of that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            pids.clear()
            return os.waitstatus_to_exitcode(status)


def left_behind(within_s: float = LEAVE_TIMEOUT_S) -> list[Leftover]:
    """What has not left in time."""
    until_s = time.monotonic() + within_s
    while True:
        reap()
        found = descendants(os.getpid())
        if not found or time.monotonic() > until_s:
            return found
        time.sleep(LOOK_AGAIN_S)


def main(command: Sequence[str], *, within_s: float = LEAVE_TIMEOUT_S) -> int:
    """The exit code of the command, or 1 if only its processes are wrong."""
    code = run(command)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = left_behind(within_s)
    for one in found:
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.kill(one.pid, signal.SIGKILL)
    if found:
        print(
            "Processes that the tests started and left behind (end each where it was started; the "
            "folder names the test):",
            *found,
            sep="\n  ",
            file=sys.stderr,
        )
    return code or (1 if found else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
