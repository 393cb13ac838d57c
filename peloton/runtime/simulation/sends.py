"""Faults of single messages between shards, on the same daemon or another: lost, repeated, late.

Turns the envelopes that leave a shard or a service into fewer, more or later ones. `Network` has
the faults of whole frames between daemons; what goes from one shard to another of the same daemon
passes no network. Two promises of the runtime are kept: messages of one sender to one receiver do
not overtake each other, and those under way end with the process of their sender.

    world.sends.faults = SendFaults(drop=0.2, repeat=0.2, delay_s=0.5)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable

import msgspec

from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.draws import FaultDraws
from peloton.runtime.simulation.scheduled import ScheduledShell
from peloton.runtime.vocabulary import Key, kind_of


class SendFaults(msgspec.Struct, frozen=True, gc=False):
    """The faults that are on, and how strong. All off is a calm."""

    drop: float = 0.0  # share of messages that are lost
    repeat: float = 0.0  # share of messages that come twice
    delay_s: float = 0.0  # of every message, at most


CALM_SENDS = SendFaults()
HANDED_OVER = 0.5
"""Share of the hand-overs within a round that take place while faults are on."""


class FaultySends:
    """The sends of all daemons of a world. `struck` counts how often each fault struck."""

    def __init__(
        self, later: ScheduledShell, chance: random.Random, *, route_of: Callable[[Key], Hashable]
    ) -> None:
        self.faults = CALM_SENDS
        self.spared: tuple[str, ...] = ()
        """Kinds whose messages are left alone, both ways."""
        self._later = later
        self._chance = chance
        self._draws = FaultDraws(chance)
        self.struck = self._draws.struck
        self._route_of = route_of  # messages of one sender to one route keep their order
        self._under_way: dict[Hashable, _UnderWay] = {}
        self._delivering = False

    def attach(self, daemon: SimulatedDaemon) -> None:
        """Let everything that this daemon sends pass here, in all its lives."""
        daemon.outlet = lambda envelopes, stamp: self._passed(daemon, envelopes, stamp=stamp)
        daemon.hands_over = self._hands_over

    def _passed(
        self, daemon: SimulatedDaemon, envelopes: list[Envelope], *, stamp: Stamp | None
    ) -> list[Envelope]:
        faults = self.faults
        if self._delivering or (faults == CALM_SENDS and not self._under_way):
            return envelopes
        sent: list[Envelope] = []
        for envelope in envelopes:
            if self._is_spared(envelope, stamp):
                sent.append(envelope)
                continue
            if self._draws.strikes("drop", faults.drop):
                continue
            for _ in range(2 if self._draws.strikes("repeat", faults.repeat) else 1):
                if not self._is_late(daemon, envelope, stamp=stamp):
                    sent.append(envelope)
        return sent

    def _hands_over(self) -> bool:
        """Return whether messages of an open frame are handed over before the commit.

        A message of an open frame that came late could outlive its round. With any fault on some
        wait for the commit, so that messages are struck on both ways.
        """
        if self.faults.delay_s or self._under_way:
            return False
        return self.faults == CALM_SENDS or self._chance.random() < HANDED_OVER

    def _is_spared(self, envelope: Envelope, stamp: Stamp | None) -> bool:
        sender = envelope.sender
        if stamp is None and sender is None:
            return True  # what a client or an operator sends
        ends = (envelope.to,) if sender is None else (envelope.to, sender)
        return any(kind_of(end) in self.spared for end in ends)

    def _is_late(self, daemon: SimulatedDaemon, envelope: Envelope, *, stamp: Stamp | None) -> bool:
        """Return whether the envelope is sent later: delayed itself, or behind a delayed one."""
        assert daemon.process is not None
        source = stamp if stamp is not None else envelope.sender
        route = (daemon.process.name, source, self._route_of(envelope.to))
        delay_s = self._draws.up_to(self.faults.delay_s)
        before = self._under_way.get(route)
        if not delay_s and before is None:
            return False
        if before is None:
            before = self._under_way[route] = _UnderWay()
        before.count += 1
        before.last_s = max(before.last_s, self._later.now + delay_s)
        self.struck["delay"] += 1
        life = daemon.lives

        def deliver() -> None:
            before.count -= 1
            if not before.count:
                del self._under_way[route]
            if daemon.alive and daemon.lives == life:
                self._delivering = True
                daemon.region.tell((envelope,), stamp)
                self._delivering = False

        self._later.at(before.last_s, deliver)
        return True


class _UnderWay:
    """The late messages of one sender to one route: how many, and when the last arrives."""

    __slots__ = ("count", "last_s")

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
