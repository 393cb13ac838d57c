"""Measures the slack of the hosts of one machine every few seconds, on a thread of its own.

Turns the kernel's counts into reports to hosts, by `slack_meter`. The caller's thread does not read
them: with thousands of processes that takes time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from peloton.backends.cpu_use import CpuUse
from peloton.backends.slack_meter import HostLoad, SlackMeter

EVERY_S = 5.0
_LOG = logging.getLogger("peloton.slack")

RunsOfHosts = Callable[[], Mapping[str, list[str]]]
"""The names at the keeper of the runs of every host."""


class SlackThread:
    """A thread that begins to measure at once, and ends with `close`."""

    def __init__(
        self,
        hosts: RunsOfHosts,
        tell: Callable[[str, int], None],
        *,
        every_s: float = EVERY_S,
        use: CpuUse | None = None,
    ) -> None:
        self._hosts, self._tell = hosts, tell
        self._every_s = every_s
        self._use, self._meter = use or CpuUse(), SlackMeter()
        self._compared = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slack", daemon=True)
        self._thread.start()

    def told(self, host: str) -> int | None:
        """Return the slack that was reported to a host last."""
        return self._meter.told.get(host)

    def close(self) -> None:
        """Stop measuring."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._measure()
            except OSError:
                _LOG.exception("slack was not measured")
            self._over.wait(self._every_s)

    def _measure(self) -> None:
        now = time.monotonic()
        used = self._use.read(now)
        loads: dict[str, HostLoad] = {}
        for host, runs in self._hosts().items():
            found = [used[run] for run in runs if run in used]
            loads[host] = HostLoad(
                sum(each.own for each in found), sum(each.used for each in found)
            )
        compared, self._compared = self._compared, True
        if not compared:
            return  # all would seem to be in use, and the runs that are on slack already would end
        for host, slack in self._meter.measured(loads, now).items():
            self._tell(host, slack)
