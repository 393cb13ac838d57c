"""How far the containers of running pods have come, until their tasks know of it.

Turns what the keeper tells, by itself and in lists, into reports to hosts, and tells again what
nobody has confirmed. Numbers count steps, so those of any daemon mean the same, and what was told
late is known by them. Must not keep anything of a run that has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from peloton.actors.host.live.container_messages import (
    ContainersNoted,
    ContainersReported,
    RunContainers,
)
from peloton.actors.task.container_messages import steps_of
from peloton.actors.task.messages import ContainerEnd
from peloton.backends.unconfirmed import REPEAT_S, Unconfirmed


class ContainerNews:
    """Of all runs of one backend. `tell` takes the name of a host, and its report. `due` is called
    by one thread; the others may be by any."""

    def __init__(self, tell: Callable[[str, ContainersReported], None]) -> None:
        self._tell = tell
        self._told = Unconfirmed[str, RunContainers]()
        self._fresh: dict[str, None] = {}  # runs with changes that came after the last look
        self._noted: dict[str, int] = {}  # of runs: the highest number that was confirmed
        self._expected: dict[str, None] = {}  # runs, and hosts whose list is to come
        self._lock = threading.Lock()
        self.wake_at: float | None = None
        """When `due` is to be called next; None: once there are orders."""

    def expect(self, what: str) -> None:
        """News may come of this run of several containers, or of runs in the list of this host."""
        with self._lock:
            self._expected[what] = None

    def moved(self, host: str, run: str, *, containers: tuple[ContainerEnd, ...]) -> None:
        """The containers of a run are so far: told at once, unless that is known."""
        number = steps_of(containers)
        with self._lock:
            self._expected[run] = None
            last = self._told.last(run)
            if number <= self._noted.get(run, 0) or (last is not None and number < last.number):
                return
            change = RunContainers(run, number, containers)
            self._told.put(host, run, change=change)
            self._fresh[run] = None
        self._tell(host, ContainersReported((change,)))

    def noted(self, message: ContainersNoted) -> None:
        """The tasks of these runs know of the change of this number."""
        with self._lock:
            for run in message.runs:
                last = self._told.last(run)
                if last is None:
                    continue
                self._noted[run] = max(self._noted.get(run, 0), message.number)
                if message.number >= last.number:
                    self._told.confirm(run)
                    self._fresh.pop(run, None)

    def over(self, what: str) -> None:
        """The run has ended, and what became of its containers is told with that; or the list of
        the host has come."""
        with self._lock:
            self._expected.pop(what, None)
            self._told.drop(what)
            self._fresh.pop(what, None)
            self._noted.pop(what, None)

    def due(self, now: float) -> None:
        """Tell again what was told before the last look, and was not confirmed."""
        if self.wake_at is not None and now < self.wake_at:
            return
        self.wake_at = now + REPEAT_S if self._expected else None
        with self._lock:
            for run in self._fresh:  # the answers may be on the way
                self._told.tell_at(run, now + REPEAT_S)
            self._fresh.clear()
            found = self._told.due(now)
        for host, changes in found.items():
            self._tell(host, ContainersReported(tuple(changes)))
