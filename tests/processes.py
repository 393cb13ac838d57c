"""Finds processes of this machine by what they say of themselves, and ends those of a test.

A process is never chosen by its name alone: tests run side by side, and a folder tells whose
process it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from tests.outlived import descendants

END_S_MAX = 60.0
LOOK_AGAIN_S = 0.01


class Process:
    """One of them; what it says is read when asked for, and empty once it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._entry = Path("/proc", str(pid))

    @property
    def words(self) -> bytes:
        """Its command line, each word with a NUL behind it."""
        return self._read("cmdline")

    @property
    def variables(self) -> list[bytes]:
        """With which it was started."""
        return self._read("environ").split(b"\0")

    @property
    def works_in(self) -> str:
        """Its folder."""
        with contextlib.suppress(OSError):
            return os.readlink(self._entry / "cwd")
        return ""

    def _read(self, name: str) -> bytes:
        with contextlib.suppress(OSError):  # it has just ended, or is another account's
            return (self._entry / name).read_bytes()
        return b""


def every() -> Iterator[Process]:
    """All but this one."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            yield Process(int(name))


def naming(folder: Path) -> list[Process]:
    """Those whose command line names the folder."""
    return [one for one in every() if os.fsencode(folder) in one.words]


def send_each(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Those that are gone already are no concern."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end_all(find: Callable[[], Collection[int]], *, stopped_first: Collection[int] = ()) -> None:
    """Kill what is found, and what they start meanwhile, until there is nothing more.

    Those that start others are stopped first and killed last: what one has just forked is still
    found below it, and may have neither words nor variables of its own yet.
    """
    late_s = time.monotonic() + END_S_MAX
    try:
        send_each(stopped_first, signal.SIGSTOP)
        while True:
            below = {one.pid for pid in stopped_first for one in descendants(pid)}
            found = {*find(), *below} - {*stopped_first}
            if not found:
                break
            send_each(found)
            assert time.monotonic() < late_s, f"not ended within {END_S_MAX} s: {found}"
            threading.Event().wait(LOOK_AGAIN_S)
    finally:
        send_each(stopped_first)
