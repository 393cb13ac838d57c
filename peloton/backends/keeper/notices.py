"""Runs that are told in their sandbox why they end, and may say that they have saved their work.

Turns the text of a kill into the file `preempted` of the sandbox, and the file `checkpointed`,
which the program may write then, into an early end of its grace. It must not signal anybody. What
lies in a sandbox is the program's: what is there already is never written to or followed.
"""

from __future__ import annotations

import os

NOTICE, SAVED = "preempted", "checkpointed"
LOOK_S = 0.2
"""Between two looks at the sandboxes of runs that were told; there are none at other times."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class Notices:
    """The runs that were told and have not ended, as far as this keeper knows."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, str] = {}
        self._look_at = 0.0

    def give(self, run_id: str, sandbox: str, *, text: str) -> None:
        """Tell a run; if that cannot be done it has the signal, as any other."""
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

    def drop(self, run_id: str) -> None:
        """A run has ended."""
        self._sandboxes.pop(run_id, None)

    def next_look(self) -> float | None:
        """When to look whether one has saved its work; None if none was told."""
        return self._look_at if self._sandboxes else None

    def saved(self, now: float) -> list[str]:
        """The runs that have saved their work since; once each."""
        if not self._sandboxes or now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        found = [run for run, sandbox in self._sandboxes.items() if _has_saved(sandbox)]
        for run_id in found:
            del self._sandboxes[run_id]
        return found


def _has_saved(sandbox: str) -> bool:
    try:
        folder = os.open(sandbox, _FOLDER)
    except OSError:
        return False
    try:
        os.stat(SAVED, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(folder)
