"""The first messages of a daemon: they create the roots, configure its hosts and await readiness.

A thread repeats each message until it is answered, because an owner may not be ready yet; then it
polls until the daemon is ready, and ends. The waiter for `ready` decides how long a start may take.

The hosts of a daemon that is alone are the hosts of its cluster: others in its journal are retired.
In a fleet the configs of daemons may differ, so only an operator retires a host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from peloton.actors.host.inventory.messages import OpenInventory
from peloton.actors.host.machine_messages import PORTS_DEFAULT
from peloton.actors.host.messages import ConfigureHost, HostGone, PingBackend
from peloton.actors.resources import Resources, millionths
from peloton.actors.respool.messages import ROOT, OpenRoot
from peloton.assembly.readiness import Readiness
from peloton.placement.messages import Label
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key, Message, Unavailable
from peloton.settings.config import HostSetting

RESEND_S = 1.0
REPORT_AFTER_S = 5.0
"""A daemon that is not ready after this time prints the reasons."""
REASONS_REPORTED_MAX = 5
START = "start"
"""Component of the reason why a daemon that starts is not ready."""
HOSTS_UNKNOWN = "not all hosts of this daemon are up and known yet"
POLL_S, POLL_S_MAX, POLL_GROWTH = 0.05, 5.0, 1.25


class FirstMessages:
    """The thread that sends them, from `start` until all is ready or `stop`.

    `hosts` are those of this daemon, with their configuration. `alone`: there are no others in the
    cluster, so any other in the journal has left. `report` takes lines for people.
    """

    def __init__(
        self,
        region: Region,
        hosts: Mapping[Key, ConfigureHost],
        *,
        inventories: Sequence[Key],
        alone: bool,
        report: Callable[[str], object],
    ) -> None:
        self._region = region
        self._hosts = hosts
        self._inventories = inventories
        self._alone = alone
        self._report = report
        self._leaving = threading.Event()
        self._readiness = Readiness(region, inventories, over=self._leaving.is_set)
        self._waiting_since_s = 0.0
        self.report_after_s = REPORT_AFTER_S
        """When the reasons why the daemon is not ready are reported; then with growing pauses."""
        self.start_backend: Callable[[], object] | None = None
        """Called when the hosts have been sent their configuration; None: it has been started."""
        self.settle_pools: Callable[[], bool] | None = None
        """Called when our hosts are up, until it returns True; then the daemon is ready."""
        self.answered: Future[None] = Future()
        """Done when all first messages are answered."""
        self.ready: Future[None] = Future()
        """Done when all are answered, our hosts are up, every shard of the cluster has an owner,
        and those that are ours take mail."""
        region.report_problem(START, HOSTS_UNKNOWN)

    def start(self) -> None:
        threading.Thread(target=self._run, name="first-messages", daemon=True).start()

    def stop(self) -> None:
        """Give up; the rest is done at the next start."""
        self._leaving.set()

    def _run(self) -> None:
        self._waiting_since_s = time.monotonic()
        found: dict[Key, Message] = {ROOT: OpenRoot()}
        found |= {inventory: OpenInventory() for inventory in self._inventories}
        if not self._send({**found, **self._hosts}):
            return
        # Only now: the backend runs, and kills the runs of a host that is removed.
        if self._alone and not self._send({host: HostGone() for host in self._gone()}):
            return
        self.answered.set_result(None)
        self._await_ready()

    def _send(self, left: dict[Key, Message]) -> bool:
        """Send until all are answered; return False if the daemon stops before."""
        while left and not self._leaving.is_set():
            answers: dict[Key, Future[object]] = {to: Future() for to in sorted(left)}
            # At once: each shard handles its part in few frames, however many hosts there are.
            self._region.tell([Envelope(to, left[to], reply_to=answers[to]) for to in answers])
            start, self.start_backend = self.start_backend, None
            if start is not None:
                start()
            # Every future gets a result, at the latest Unavailable from the carrier.
            done = [to for to in answers if not isinstance(answers[to].result(), Unavailable)]
            answered = {to: left.pop(to) for to in done}
            if start is None:
                self._ping_backend(answered)
            if left:
                self._report_waiting()
                self._leaving.wait(RESEND_S)
        return not left

    def _ping_backend(self, answered: Mapping[Key, Message]) -> None:
        """Ping the backend: a new host has missed the first message of a running one."""
        self._region.tell(
            Envelope(message.backend, PingBackend(host))
            for host, message in answered.items()
            if isinstance(message, ConfigureHost)
        )

    def _gone(self) -> list[Key]:
        """Return the hosts in the journal that the config does not name any more."""
        known = {view.summary.host for view in self._readiness.hosts()}
        gone = sorted(known - self._hosts.keys())
        for host in gone:
            text = "is not part of the cluster any more: its tasks are lost"
            self._report(f"warning: {host} {text}")
        return gone

    def _await_ready(self) -> None:
        """Wait until all shards have owners and our hosts are up.

        A client that reads `ready` relies on both.
        """
        pause_s, ours = POLL_S, self._hosts.keys()
        while not self._leaving.is_set():
            # At each poll: a host that was up may have moved here and found another keeper.
            up = self._readiness.all_up(ours, alone=self._alone)
            trouble = "" if up else _hosts_down(self._readiness.down(ours))
            self._region.report_problem(START, trouble)
            ready = self._region.daemon_health().ready
            if ready and (self.settle_pools is None or self.settle_pools()):
                self.ready.set_result(None)
                return
            self._report_waiting()
            self._leaving.wait(pause_s)
            pause_s = min(POLL_GROWTH * pause_s, POLL_S_MAX)  # each poll lists every host

    def _report_waiting(self) -> None:
        now = time.monotonic()
        if now - self._waiting_since_s < self.report_after_s:
            return
        self.report_after_s *= 2
        found = self._region.daemon_health().reasons
        self._report(f"not ready yet: {'; '.join(map(str, found[:REASONS_REPORTED_MAX]))}")


def configured(host: HostSetting, backend: Key) -> ConfigureHost:
    """Return the message that configures a host."""
    capacity = Resources(
        millionths(host.cpus, "cpus"),
        millionths(host.memory_mb, "memory_mb"),
        millionths(host.disk_mb, "disk_mb"),
        millionths(host.gpus, "gpus"),
        millionths(host.revocable_cpus, "revocable_cpus"),
    )
    labels = tuple(Label(name, value) for name, value in sorted(host.attributes.items()))
    return ConfigureHost(capacity, labels, backend)


def apart(hosts: Mapping[Key, ConfigureHost]) -> dict[Key, ConfigureHost]:
    """Return the same hosts with even parts of the ports.

    They are one machine, and a port that two of them give to runs is taken for one of these. More
    hosts than ports keep all of the range.
    """
    first, end = PORTS_DEFAULT
    width = (end - first) // max(len(hosts), 1)
    if not width:
        return dict(hosts)
    begins = range(first, end, width)
    return {
        host: ConfigureHost(sent.capacity, sent.labels, sent.backend, ports=(begin, begin + width))
        for (host, sent), begin in zip(hosts.items(), begins, strict=False)
    }


def _hosts_down(down: Sequence[str]) -> str:
    return "; ".join((HOSTS_UNKNOWN, *down[:REASONS_REPORTED_MAX]))
