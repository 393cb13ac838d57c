"""Starts a backend of a daemon once and closes it once, from different threads.

The first messages start it, the assembly closes it. A start that comes after the close does
nothing. A backend of this machine that is in trouble makes the daemon not ready; one outside, which
others may reach, only makes its hosts unreachable, and adds a note to health.
"""

from __future__ import annotations

import logging
import threading

from peloton.backends.keeper_calling import KeeperUnavailable
from peloton.backends.keeper_folder import OwnedByAnother
from peloton.backends.port import Backend
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.shells.root import Root

_LOG = logging.getLogger("peloton.backend")


class BackendSwitch:
    """A backend of a daemon, started and closed once."""

    def __init__(self, backend: Backend, root: Root) -> None:
        self._backend = backend
        self._root = root
        self._lock = threading.Lock()
        self._started = False
        self._closed = False
        self._troubles: dict[str, str] = {}

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return the troubles of a backend that is outside."""
        return tuple(NotReadyReason(name, text) for name, text in self._troubles.copy().items())

    def _note(self, name: str, text: str) -> None:
        if text and self._troubles.get(name) != text:
            _LOG.warning("%s: %s", name, text)
        if text:
            self._troubles[name] = text
        else:
            self._troubles.pop(name, None)

    def start(self) -> None:
        """Begin to obey orders. A daemon whose backend cannot begin ends, with the reason."""
        region = self._root.region
        with self._lock:
            if self._started or self._closed:
                return
            ours = self._backend.prefix == self._backend.key
            try:
                self._backend.start(region.tell, region.report_problem if ours else self._note)
            except OSError as error:
                where = f"{error.filename}: " if error.filename is not None else ""
                self._root.give_up(f"backend: {where}{error.strerror or error}")
            except (OwnedByAnother, KeeperUnavailable) as error:
                self._root.give_up(f"backend: {error}")
            else:
                self._started = True

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait; return whether all have ended."""
        with self._lock:
            return not self._started or self._backend.stop_all(grace_s)

    def close(self) -> None:
        """Release resources; runs outside of this process go on."""
        with self._lock:
            self._closed = True
            if self._started:
                self._backend.close()
