"""The hosts of a backend whose machines are added and removed by an operator.

Turns `AddHost` and `RemoveHost` into reports for the hosts, and knows which machines have left. A
host that appeared is reported again until it gives an order: its shard may have been moving to
another owner. Orders of a host that was never added here are not refused: it may be of an earlier
life of the daemon, and one that left the cluster still has runs to end.

A roster serves only a daemon that is alone. In a fleet the host may live at another daemon, whose
own backend gets its orders: that one does not know that the machine was added here, or has left.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import AddHost, RemoveHost
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.vocabulary import Key, Refused

IN_FLEET = "IN_FLEET"
"""Code of a refusal."""
APPEAR_AGAIN_S = 2.0
"""Between two reports of a host that has not answered."""


class Roster:
    """Present and departed hosts, by key."""

    def __init__(self, backend: Key, hosts: Iterable[Key]) -> None:
        self.in_fleet = False
        self._backend = backend
        self._hosts: dict[Key, None] = dict.fromkeys(hosts)
        self._left: dict[Key, str] = {}  # why; bounded by the machines an operator ever named
        self._unconfirmed: dict[Key, m.HostAppeared] = {}
        self._again_at: float | None = None

    @property
    def hosts(self) -> list[Key]:
        """All hosts known here that have not left."""
        return [host for host in [*self._hosts] if host not in self._left]

    @property
    def wake_at(self) -> float | None:
        """When hosts that have not answered are reported again."""
        return self._again_at

    def has_left(self, host: Key) -> bool:
        """Return whether the machine is gone."""
        return host in self._left

    def left(self, host: Key) -> Envelope:
        """Return the answer for a machine that is gone."""
        return self._report(host, m.BackendDown(self._left.get(host, "")))

    def ordered(self, host: Key) -> None:
        """Note that the host gave an order: it exists, and knows this backend."""
        self._hosts.setdefault(host)
        self._unconfirmed.pop(host, None)

    def change(self, envelope: Envelope, now: float) -> tuple[Envelope | None, list[Reply]]:
        """Add or remove a machine; return the report for its host, and the reply if one waits.

        The reply is a `Refused`, or None when it was done.
        """
        order, refused, report = envelope.message, None, None
        if self.in_fleet:
            text = (
                "machines are added and removed only at a daemon that is alone; in a fleet change "
                "the hosts in the configs of the daemons and restart them one by one"
            )
            refused = Refused(IN_FLEET, text)
        elif isinstance(order, AddHost):
            report = self._add(order, now)
        elif isinstance(order, RemoveHost):
            report = self._remove(order)
        waits = envelope.reply_to is not None
        return report, [Reply(envelope.reply_to, refused)] if waits else []

    def _add(self, order: AddHost, now: float) -> Envelope:
        self._left.pop(order.host, None)
        self._hosts.setdefault(order.host)
        appeared = m.HostAppeared(order.capacity, order.labels, self._backend, order.ports)
        self._unconfirmed[order.host] = appeared
        if self._again_at is None:
            self._again_at = now + APPEAR_AGAIN_S
        return self._report(order.host, appeared)

    def _remove(self, order: RemoveHost) -> Envelope:
        self._unconfirmed.pop(order.host, None)
        self._left[order.host] = order.text or "the host has left"
        return self.left(order.host)

    def due(self, now: float) -> list[Envelope]:
        """Return the reports to repeat now, because no order followed them."""
        if self._again_at is None or now < self._again_at:
            return []
        self._again_at = now + APPEAR_AGAIN_S if self._unconfirmed else None
        return [self._report(host, appeared) for host, appeared in self._unconfirmed.items()]

    def _report(self, host: Key, report: m.HostAppeared | m.BackendDown) -> Envelope:
        return Envelope(host, report, sender=self._backend)
