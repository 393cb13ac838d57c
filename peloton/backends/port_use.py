"""Tries whether the ports of a run are in use on this machine before the run is started.

Turns the ports of runs into those that may start now, and reports to hosts what is in use: by
programs that are no runs, or by runs of other hosts of this machine, which may not have bound
theirs yet. A port that was in use is tried again from time to time, and at once when the run that
had it ends. Nothing is reserved: a program that binds the port between the try and the run wins,
and the run sees EADDRINUSE itself. Ports are TCP's; runs that an earlier daemon started are known
by their binding.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Container, Sequence

from peloton.actors.host.machine_messages import PortsInUse
from peloton.actors.host.messages import StartRun

AGAIN_S = 5.0
"""How often ports that are in use are tried again."""
TRIED_BESIDE = 64
"""So many ports from one in use on are tried with it, so that a host does not learn of a row of
them one by one."""
PORTS_END = 65536
KNOWN_MAX = 1024
"""Of one host: beyond that only those of the last run are told."""


class PortUse:
    """The ports of one backend.

    `tell` takes the name of a host, and its report. `due` is called by one thread; the others may
    be by any.
    """

    def __init__(self, tell: Callable[[str, PortsInUse], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._holders: dict[int, tuple[str, str]] = {}  # host and run that was started with a port
        self._ports: dict[str, tuple[int, ...]] = {}  # of these runs
        self._used: dict[str, set[int]] = {}  # by hosts that are to know; empty: told that none is
        self.wake_at: float | None = None
        """When `due` is to be called next; None: no port is in use."""

    def startable(
        self, host: str, runs: Sequence[StartRun], *, known: Container[str]
    ) -> list[StartRun]:
        """Return the runs whose ports are free, or that are `known` to be there already.

        For the others the ports in use are reported to the host.
        """
        if not any(run.ports for run in runs):
            return [*runs]
        start, busy = list[StartRun](), list[str]()
        with self._lock:
            found: set[int] = set()
            for run in runs:
                used = set() if run.run in known else self._in_use(host, run)
                if used:
                    busy.append(run.run)
                    found |= used
                    continue
                start.append(run)
                if run.ports:
                    self._ports[run.run] = run.ports
                    self._holders.update(dict.fromkeys(run.ports, (host, run.run)))
            if busy:
                before = self._used.get(host, set())
                self._used[host] = found | (before if len(before) < KNOWN_MAX else set())
                self.wake_at = 0.0  # a first look soon, then at intervals
            told = self._told(host, tuple(busy))
        if busy:
            self._tell(host, told)
        return start

    def over(self, run: str) -> None:
        """Free the ports of a run that has ended: others may have them."""
        changed = list[tuple[str, PortsInUse]]()
        with self._lock:
            ports = self._ports.pop(run, ())
            for port in ports:
                if self._holders.get(port, ("", ""))[1] == run:
                    del self._holders[port]
            for host, used in self._used.items():
                free = {port for port in used.intersection(ports) if not self._taken(host, port)}
                if free:
                    used -= free
                    changed.append((host, self._told(host)))
        for host, told in changed:
            self._tell(host, told)

    def repeat(self, host: str) -> None:
        """Report the ports in use again.

        A report may have been lost, and a host may know what an earlier daemon has found. That none
        is in use is reported once.
        """
        with self._lock:
            if host in self._used and not self._used[host]:
                return
            self._used.setdefault(host, set())
            told = self._told(host)
        self._tell(host, told)

    def due(self, now: float) -> None:
        """Try again the ports that were in use, and report changes."""
        if self.wake_at is None or now < self.wake_at:
            return
        changed = list[tuple[str, PortsInUse]]()
        with self._lock:
            for host, used in self._used.items():
                free = {port for port in used if not self._taken(host, port)}
                if free:
                    used -= free
                    changed.append((host, self._told(host)))
            self.wake_at = now + AGAIN_S if any(self._used.values()) else None
        for host, told in changed:
            self._tell(host, told)

    def _told(self, host: str, busy: tuple[str, ...] = ()) -> PortsInUse:
        return PortsInUse(tuple(sorted(self._used.get(host, ()))), busy)

    def _in_use(self, host: str, run: StartRun) -> set[int]:
        """Return the ports of the run that are in use, and those beside one that was picked."""
        found: set[int] = set()
        for port, number in zip(run.spec.ports, run.ports, strict=True):
            if self._taken(host, number, run=run.run):
                found.add(number)
                end = min(number + TRIED_BESIDE, PORTS_END)
                beside = range(number + 1, end) if not port.number else ()
                found |= {one for one in beside if self._taken(host, one)}
        return found

    def _taken(self, host: str, port: int, *, run: str = "") -> bool:
        """Return whether others use the port; the host knows the ports that it has given itself."""
        holder = self._holders.get(port)
        if holder is not None:
            return holder[0] != host if not run else holder[1] != run
        return is_in_use(port)


def is_in_use(port: int) -> bool:
    """Return whether a program of this machine listens on a TCP port, at any address."""
    for family in (socket.AF_INET6, socket.AF_INET):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            # As servers do: what a closed connection left behind does not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
