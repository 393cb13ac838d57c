"""The backends of a daemon: none, one, or one for each cluster of Mesos that its settings name.

Each has a service, a gate and a switch of its own, so that one in trouble holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from peloton.assembly.backend_switch import BackendSwitch
from peloton.assembly.lockdowns import GatedBackend, LockFollower
from peloton.backends.port import Backend, LeasesFiles
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.shells.root import Root
from peloton.runtime.vocabulary import Key


class Backends:
    """All backends of a daemon, from their registration as services to `close`."""

    def __init__(self, found: Iterable[Backend], root: Root, *, locks: LockFollower) -> None:
        self._found = [*found]
        self._switches = [BackendSwitch(one, root) for one in self._found]
        for one in self._found:
            gate = GatedBackend(one, root.region.tell)
            locks.on_change(gate.obey)
            root.region.register_service(one.prefix, gate, outward=True)

    @property
    def of_config(self) -> Key | None:
        """The backend whose hosts are in the config, which would be the only one."""
        return self._found[0].key if len(self._found) == 1 else None

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return the troubles of backends that are outside."""
        return tuple(note for switch in self._switches for note in switch.notes())

    def lease(self, job: str, for_s: float) -> bool:
        """Keep the files of a job's runs for so long; return whether any backend can."""
        leased = [one.lease(job, for_s) for one in self._found if isinstance(one, LeasesFiles)]
        return any(leased)

    def start(self) -> None:
        """Begin to obey orders."""
        for switch in self._switches:
            switch.start()

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait; return whether all have ended."""
        ended = [switch.stop_all(grace_s) for switch in self._switches]
        return all(ended)

    def close(self) -> None:
        """Release resources; runs outside of this process go on.

        All backends are closed at once, as each may wait for a server.
        """
        if self._switches:
            with ThreadPoolExecutor(len(self._switches), "closes-backends") as pool:
                [*pool.map(BackendSwitch.close, self._switches)]
