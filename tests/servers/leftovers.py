"""Ends what agents of Mesos leave behind: executors and tasks, which outlive their agent.

That they do is what an agent's recovery rests on, so nobody ends them by default. A guard does
when the test process ends, however it ends: it waits for the end of its standard input. It must
touch no process but those of one folder, which it knows by their variables, or by where they work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

LOOK_AGAIN_S = 0.05
ROUNDS_MAX = 100
VARIABLES = (
    b"MESOS_SANDBOX=", b"MESOS_DIRECTORY=", b"MESOS_WORK_DIR=",
    b"MESOS_CONTAINERIZER_RUNTIME_DIRECTORY=",  # one that its agent has not let begin yet
)  # fmt: skip
SWITCHBOARD = b"mesos-io-switchboard"
"""Of the command of a check in a pod: it has the variables of the agent, and works in its folder.
It waits for whoever asked for the check, also where that is no more."""


def guard(folder: Path) -> subprocess.Popen[bytes]:
    """A process that ends what is left below the folder when ours is no more."""
    words = [sys.executable, str(Path(__file__)), str(folder)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)


def below(folder: Path) -> list[int]:
    """The processes that an agent started, whose own folders lie below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _belongs(entry, folder):
            found.append(int(entry.name))
    return found


def _belongs(entry: Path, folder: Path) -> bool:
    try:
        words = (entry / "environ").read_bytes().split(b"\0")
        program = (entry / "cmdline").read_bytes().split(b"\0")[0]
        works_in = Path(os.readlink(entry / "cwd"))
    except OSError:  # it has ended, or is another user's
        return False
    if program == SWITCHBOARD and works_in.is_relative_to(folder):
        return True
    start = os.fsencode(folder) + b"/"
    return any(word.startswith(tuple(name + start for name in VARIABLES)) for word in words)


def end_below(folder: Path) -> None:
    """End them, and those that they start meanwhile."""
    pause = threading.Event()
    for _ in range(ROUNDS_MAX):
        found = below(folder)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        pause.wait(LOOK_AGAIN_S)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_below(Path(sys.argv[1]))
