"""For programs that run as tasks: notice before they are ended, and work that can go on later.

    with preemption_notice() as notice:
        for step in steps:
            ...
            if notice:
                save(step)
                notice.saved()

A run that is to end gets SIGTERM, and SIGKILL after its grace. Where others need its room, the file
`preempted` of its sandbox says so before the signal; it runs again later, and uses up no attempt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, Protocol, runtime_checkable

NOTICE, SAVED = "preempted", "checkpointed"
"""Files of a sandbox: what a run is told, and what it tells then, which ends its grace."""
SANDBOX = "MESOS_SANDBOX"
NOTICE_BYTES_MAX = 16 * 1024
EXIT_SAVED = 75
"""The exit code of who has saved and left: with 0 the task would have succeeded. It is EX_TEMPFAIL
of sysexits.h."""


@runtime_checkable
class Checkpointing(Protocol):
    """A callable object whose work can go on elsewhere.

    An executor calls `checkpoint` when a call of the object is preempted, in the thread of the
    call, between two of its steps. What that returns is called with the same arguments by the next
    worker; often it is the object itself.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def checkpoint(self) -> Callable[..., Any]: ...


class PreemptionNotice:
    """Whether this run was told to end: true in a condition from then on.

    `reason` says for whom the room is needed; empty where the run is only stopped, and not to go on
    later.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        self.reason = ""

    def __bool__(self) -> bool:
        return self._told.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it comes, at most so long; return whether it has come."""
        return self._told.wait(timeout_s)

    def saved(self) -> NoReturn:
        """End this program: its work is saved, and the rest of the grace is not needed.

        The exit code is `EXIT_SAVED`. Raises RuntimeError if no notice has come.
        """
        if not self:
            raise RuntimeError("no notice has come: there is nothing to leave for")
        grace_over()
        sys.exit(EXIT_SAVED)

    def _tell(self, reason: str) -> None:
        self.reason = reason
        self._told.set()


_given: list[str] = []
"""The reasons of the notices that this process was given, the first one is all that counts."""


def was_noticed() -> bool:
    """Return whether a notice has come to this process while somebody waited for one."""
    return bool(_given)


@contextlib.contextmanager
def preemption_notice() -> Iterator[PreemptionNotice]:
    """Take SIGTERM as a notice inside of this block, in which it does not end the program.

    One inside of another tells both. Raises RuntimeError outside of the main thread, which alone
    may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the main thread gets signals: enter preemption_notice() there")
    notice = PreemptionNotice()
    before = signal.getsignal(signal.SIGTERM)

    def told(number: int, frame: FrameType | None) -> None:
        reason = notice_text()
        _given.append(reason)
        notice._tell(reason)
        if callable(before) and hasattr(before, "is_notice"):
            before(number, frame)

    told.is_notice = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, told)
    try:
        yield notice
    finally:
        signal.signal(signal.SIGTERM, before)


def notice_text() -> str:
    """Return what this run was told of its preemption; empty if it is not preempted."""
    folder = os.environ.get(SANDBOX, "")
    if not folder:
        return ""
    try:
        with open(os.path.join(folder, NOTICE), "rb") as file:
            return file.read(NOTICE_BYTES_MAX).decode(errors="replace").strip()
    except OSError:
        return ""


def grace_over() -> None:
    """Say that this run has saved what it wants to, which ends its grace at once."""
    folder = os.environ.get(SANDBOX, "")
    if folder:
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(os.open(os.path.join(folder, SAVED), flags, 0o644))
