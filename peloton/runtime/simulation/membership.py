"""A simulated membership service: sessions, ephemeral nodes, and watchers notified late.

Turns the port's calls of several daemons on one stepper into what a real ensemble makes of them,
with its faults: an answer that is lost after the effect, a view that comes late and skips changes,
a client that learns of its session's end only after it has reconnected. It must not know what
daemons do with their nodes, nor be kinder than the real service. Nor worse: as there, an operation
is never answered twice, and no answer overtakes an earlier one of its session.

    ensemble = begun(Ensemble(stepper))
    membership = SimulatedMembership(ensemble, "a")
    ensemble.storm(MembershipFaults(cuts_per_s=0.05))
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from peloton.runtime.ports import (
    MemberNode,
    NodeAnswer,
    NodeOutcome,
    ShardId,
)
from peloton.runtime.simulation.member import SimulatedMembership, SimulatedSession
from peloton.runtime.simulation.scheduled import ScheduledShell
from peloton.runtime.simulation.stepper import Stepper

STRIKE_EVERY_S = 1.0


class MembershipFaults(Struct, frozen=True):
    """How strong each fault is; times are drawn evenly up to their maximum."""

    way_s_max: float = 0.02
    """A request or an answer takes so long."""
    watch_s_max: float = 0.1
    """From a change until it is read; all changes in between are seen as one."""
    unsure: float = 0.0
    """Share of operations on owner nodes without an answer, half of them carried out."""
    cuts_per_s: float = 0.0
    cut_s_max: float = 30.0
    expiries_per_s: float = 0.0
    """Sessions that expire without a cause."""
    pauses_per_s: float = 0.0
    """Of the whole ensemble."""
    pause_s_max: float = 30.0


CALM_MEMBERSHIP = MembershipFaults()


class Ensemble(ScheduledShell):
    """The service: the truth about nodes, and the faults between it and its clients."""

    def __init__(
        self,
        stepper: Stepper,
        *,
        faults: MembershipFaults = CALM_MEMBERSHIP,
        session_s: float = 10.0,
    ) -> None:
        super().__init__("ensemble", stepper)
        self.faults = faults
        self.session_s = session_s
        self._writes = 0
        self.changed_at = 0
        """The position of the last change of anything here: the date of every view."""
        self.members: dict[str, MemberNode] = {}
        self.owners: dict[ShardId, str] = {}
        self.clients: list[SimulatedMembership] = []
        self.lines: list[SimulatedSession] = []
        self.struck: Counter[str] = Counter()
        self.paused = False
        self._quiet = True

    # ---- what a world does to it ----

    def storm(self, faults: MembershipFaults) -> None:
        """Turn on faults of these strengths."""
        self.faults = faults
        if self._quiet:
            self._quiet = False
            self.at(self.now, self._strike)

    def calm(self) -> None:
        """End all faults, cuts and pauses."""
        self.faults, self._quiet = CALM_MEMBERSHIP, True
        self.resume()
        for client in self.clients:
            client.heal()

    def pause(self) -> None:
        """Until `resume` no request is answered, and no session ends."""
        if not self.paused:
            self.paused = True
            self.struck["pause"] += 1
            for client in self.clients:
                client.broken()

    def resume(self) -> None:
        """A new leader gives every session its whole timeout again."""
        if self.paused:
            self.paused = False
            for line in self.lines:
                self.await_heartbeat(line)
            for client in self.clients:
                client.come_back()

    def _strike(self) -> None:
        if self._quiet:
            return
        faults, chance = self.faults, self.stepper.chance
        for client in self.clients:
            if chance.random() < faults.cuts_per_s * STRIKE_EVERY_S:
                client.cut()
                self.at(self.now + self.upto(faults.cut_s_max), client.heal)
            if chance.random() < faults.expiries_per_s * STRIKE_EVERY_S:
                client.expire()
        if chance.random() < faults.pauses_per_s * STRIKE_EVERY_S:
            self.pause()
            self.at(self.now + self.upto(faults.pause_s_max), self.resume)
        self.at(self.now + STRIKE_EVERY_S, self._strike)

    # ---- the truth ----

    @property
    def position(self) -> int:
        """Of the service's history: it rises by itself, too, for sessions beat by writing what
        nobody watches."""
        return self._writes + int(self.now)

    def elsewhere(self) -> None:
        """A write that nobody here watches, such as another cluster's."""
        self._writes += 1

    def changed(self) -> None:
        """One more change; every watcher is notified after a time of its own."""
        self._writes += 1
        self.changed_at = self.position
        for client in self.clients:
            client.look()

    def begin(self, line: SimulatedSession) -> None:
        """A new session."""
        line.joined = line.alive = True
        self.lines.append(line)

    def end(self, line: SimulatedSession) -> None:
        """A session is over: all its nodes are deleted in one change."""
        if line.alive:
            line.alive = False
            self.lines.remove(line)
            self.members.pop(line.member, None)
            self.owners = {s: owner for s, owner in self.owners.items() if owner != line.member}
            self.changed()

    def await_heartbeat(self, line: SimulatedSession) -> None:
        """The session ends after its timeout, unless its client is back; the last heartbeat is up
        to a third of the timeout old already."""
        line.waits += 1
        waits = line.waits

        def end() -> None:
            if line.alive and not line.through and line.waits == waits and not self.paused:
                self.struck["timed out"] += 1
                self.end(line)

        self.at(self.now + self.session_s - self.upto(self.session_s / 3), end)

    def create(self, shard: ShardId, member: str) -> NodeAnswer:
        """Create the owner node, if there is none."""
        if shard not in self.owners:
            self.owners[shard] = member
            self.changed()
        owner = self.owners[shard]
        outcome = NodeOutcome.HELD if owner == member else NodeOutcome.TAKEN
        return NodeAnswer(member, shard, outcome, self.position, "" if owner == member else owner)

    def remove(self, shard: ShardId, member: str) -> NodeAnswer:
        """Delete the owner node, if it is this member's."""
        if self.owners.get(shard) == member:
            del self.owners[shard]
            self.changed()
        owner = self.owners.get(shard, "")
        return NodeAnswer(member, shard, NodeOutcome.GONE, self.position, owner)
