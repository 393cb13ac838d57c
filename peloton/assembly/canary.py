"""A small write every two seconds, which shows health whether writes of clients would succeed.

Reports to `Status` that the journal's server answers, or since when it does not. The write is made
on a thread of its own, because a server that is away lets its callers wait for seconds, and a
health request must not wait. It is left out if a commit has just proved the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from peloton.runtime.ports import JournalError
from peloton.runtime.shells.status import Status

EVERY_S = 2.0
STOP_S_MAX = 1.0


class Canary:
    """The canary's thread. `write` raises JournalError if the server takes no writes."""

    def __init__(
        self, write: Callable[[], object], status: Status, *, server: str, every_s: float = EVERY_S
    ) -> None:
        self._write, self._status, self._server = write, status, server
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop. A write that is under way is left to itself: it may wait for long."""
        self._over.set()
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            if self._status.wrote_lately(self._server, within_s=self._every_s):
                continue
            self._status.probing(self._server)
            try:
                self._write()
            except JournalError as error:
                if not self._over.is_set():
                    self._status.probed(self._server, str(error))
            else:
                self._status.probed(self._server, "")
