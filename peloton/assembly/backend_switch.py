"""Starts the backend of a daemon once and closes it once, from different threads.

It must not decide when: the first messages start it, the assembly closes it. A start that comes
after the close does nothing.
"""

from __future__ import annotations

import threading

from peloton.backends.keeper.calling import KeeperUnavailable
from peloton.backends.keeper_folder import OwnedByAnother
from peloton.backends.port import Backend
from peloton.runtime.shells.root import Root


class BackendSwitch:
    """The backend of a daemon, or none."""

    def __init__(self, backend: Backend | None, root: Root) -> None:
        self._backend = backend
        self._root = root
        self._lock = threading.Lock()
        self._started = False
        self._closed = False

    def start(self) -> None:
        """Begin to obey orders. A daemon whose backend cannot begin ends, with the reason."""
        region = self._root.region
        with self._lock:
            if self._backend is None or self._started or self._closed:
                return
            try:
                self._backend.start(region.tell, region.report_problem)
            except OSError as error:
                where = f"{error.filename}: " if error.filename is not None else ""
                self._root.give_up(f"backend: {where}{error.strerror or error}")
            except (OwnedByAnother, KeeperUnavailable) as error:
                self._root.give_up(f"backend: {error}")
            else:
                self._started = True

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait; returns whether all have ended."""
        with self._lock:
            return self._backend is None or not self._started or self._backend.stop_all(grace_s)

    def close(self) -> None:
        """Release resources; what runs outside of this process runs on."""
        with self._lock:
            self._closed = True
            if self._backend is not None and self._started:
                self._backend.close()
