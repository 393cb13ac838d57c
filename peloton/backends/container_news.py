"""How far the containers of running pods have come, until their tasks know of it.

Turns what the keeper tells, by itself and in lists, into reports to hosts, and tells again what
nobody has confirmed. Numbers count steps, so those of any daemon mean the same, and what was told
late is known by them. Must not keep anything of a run that has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from peloton.actors.host.container_messages import (
    ContainersNoted,
    ContainersReported,
    RunContainers,
)
from peloton.actors.task.container_messages import steps_of
from peloton.actors.task.messages import ContainerEnd

REPEAT_S = 10.0
"""Between two looks at what nobody has confirmed; it is told again at the second one."""


class _Told(NamedTuple):
    host: str
    change: RunContainers
    noted: int = 0  # the highest number that was confirmed
    looked_at: bool = False


class ContainerNews:
    """Of all runs of one backend. `tell` takes the name of a host, and its report. `due` is called
    by one thread; the others may be by any."""

    def __init__(self, tell: Callable[[str, ContainersReported], None]) -> None:
        self._tell = tell
        self._last: dict[str, _Told] = {}
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
            known = self._last.get(run)
            noted = known.noted if known is not None else 0
            if number <= noted or (known is not None and number < known.change.number):
                return
            change = RunContainers(run, number, containers)
            self._last[run] = _Told(host, change, noted)
        self._tell(host, ContainersReported((change,)))

    def noted(self, message: ContainersNoted) -> None:
        """The tasks of these runs know of the change of this number."""
        with self._lock:
            for run in message.runs:
                known = self._last.get(run)
                if known is not None:
                    noted = max(known.noted, message.number)
                    self._last[run] = known._replace(noted=noted)

    def over(self, what: str) -> None:
        """The run has ended, and what became of its containers is told with that; or the list of
        the host has come."""
        with self._lock:
            self._expected.pop(what, None)
            self._last.pop(what, None)

    def due(self, now: float) -> None:
        """Tell again what was told before the last look, and was not confirmed."""
        if self.wake_at is not None and now < self.wake_at:
            return
        self.wake_at = now + REPEAT_S if self._expected else None
        found: dict[str, list[RunContainers]] = {}
        with self._lock:
            for run, told in self._last.items():
                if told.noted >= told.change.number:
                    continue
                if told.looked_at:
                    found.setdefault(told.host, []).append(told.change)
                else:
                    self._last[run] = told._replace(looked_at=True)
        for host, changes in found.items():
            self._tell(host, ContainersReported(tuple(changes)))
