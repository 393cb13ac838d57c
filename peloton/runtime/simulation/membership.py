"""A simulated membership service: sessions, ephemeral nodes, and watchers notified late.

Simulates what a real ensemble makes of the calls of several daemons on one stepper, with its
faults: an answer that is lost after the effect, a view that comes late and skips changes, a client
that learns of its session's end only after it has reconnected. It must be neither kinder than the
real service, which would hide faults of daemons, nor worse: an operation is never answered twice,
and no answer overtakes an earlier one of its session.

The client of one daemon turns the port's calls into requests that take a while, and changes of the
service into news that arrive late. It holds no truth: the ensemble does.

    ensemble = begun(Ensemble(stepper))
    membership = SimulatedMembership(ensemble, "a")
    ensemble.storm(MembershipFaults(cuts_per_s=0.05))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from peloton.runtime.ports import (
    MemberNode,
    MembershipNews,
    MembershipView,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)
from peloton.runtime.simulation.scheduled import ScheduledShell
from peloton.runtime.simulation.stepper import Stepper

STRIKE_EVERY_S = 1.0
RECONNECT_S = 0.5


class MembershipFaults(Struct, frozen=True):
    """How strong each fault is; times are drawn evenly up to their maximum."""

    way_s_max: float = 0.02
    """A request or an answer takes so long."""
    watch_s_max: float = 0.1
    """From a change until it is read; all changes in between are seen as one."""
    inconclusive: float = 0.0
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
        """Pause: until `resume` no request is answered, and no session ends."""
        if not self.paused:
            self.paused = True
            self.struck["pause"] += 1
            for client in self.clients:
                client.broken()

    def resume(self) -> None:
        """Resume: a new leader gives every session its whole timeout again."""
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
        """The position in the service's history, which also rises by the heartbeats of sessions."""
        return self._writes + int(self.now)

    def elsewhere(self) -> None:
        """Write what nobody here watches, as another cluster does."""
        self._writes += 1

    def changed(self) -> None:
        """Record one more change; every watcher is notified after a time of its own."""
        self._writes += 1
        self.changed_at = self.position
        for client in self.clients:
            client.request_view()

    def begin(self, line: SimulatedSession) -> None:
        """Begin a session."""
        line.joined = line.alive = True
        self.lines.append(line)

    def end(self, line: SimulatedSession) -> None:
        """End a session: all its nodes are deleted in one change."""
        if line.alive:
            line.alive = False
            self.lines.remove(line)
            self.members.pop(line.member, None)
            self.owners = {s: owner for s, owner in self.owners.items() if owner != line.member}
            self.changed()

    def await_heartbeat(self, line: SimulatedSession) -> None:
        """End the session after its timeout, unless its client is back.

        The last heartbeat is up to a third of the timeout old already.
        """
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
        outcome = NodeOutcome.OURS if owner == member else NodeOutcome.TAKEN
        return NodeAnswer(member, shard, outcome, self.position, "" if owner == member else owner)

    def remove(self, shard: ShardId, member: str) -> NodeAnswer:
        """Delete the owner node, if it is this member's."""
        if self.owners.get(shard) == member:
            del self.owners[shard]
            self.changed()
        owner = self.owners.get(shard, "")
        return NodeAnswer(member, shard, NodeOutcome.GONE, self.position, owner)


class SimulatedSession:
    """A session, both ends of it."""

    def __init__(self, member: str, node: MemberNode) -> None:
        self.member = member
        self.node = node  # the newest announced
        self.joined = False
        self.alive = False  # as the service sees it
        self.through = False  # connected: requests pass
        self.breaks = 0  # what was under way at an earlier break is lost
        self.reported: SessionState | None = None
        self.waits = 0  # numbers the timers for a heartbeat
        self.broken_s = 0.0  # when the last heartbeat arrived, if not connected
        self.over = False  # the client gets no more news
        self.reading = False  # a view will be read soon
        self.request_s = 0.0  # no request is carried out before an earlier one
        self.news_s = 0.0  # no answer overtakes an earlier one
        self.connected_s = 0.0
        self.views_s = 0.0  # no view overtakes an earlier one; an answer may overtake views


class SimulatedMembership:
    """The membership port of one daemon; its methods are described there.

    The client dies with its daemon's process.
    """

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self.name = name
        self.dead = False
        self._service = ensemble
        ensemble.clients.append(self)
        self._cut = False
        self._line: SimulatedSession | None = None
        self._listener: Callable[[MembershipNews], object] = lambda news: None

    # ---- the port ----

    def listen(self, listener: Callable[[MembershipNews], object]) -> None:
        self._listener = listener

    def join(self, member: str, node: MemberNode) -> None:
        self.leave()
        line = self._line = SimulatedSession(member, node)
        self._later(line, self._connect)

    def sure_for_s(self) -> float:
        """Return the port's `sure_for_s`: a heartbeat is up to a third of the timeout old."""
        line, service = self._line, self._service
        if line is None or not line.joined or line.over:
            return 0.0
        heartbeat_s = service.now if line.through else line.broken_s
        return heartbeat_s + service.session_s * 2 / 3 - service.now

    def announce(self, node: MemberNode) -> None:
        if self._line is not None:
            self._line.node = node
            self._later(self._line, self._write_node)

    def request_view(self) -> None:
        line = self._line
        if line is None or not line.through:
            return
        if line.reading:
            self._service.struck["changes seen as one"] += 1
            return
        line.reading = True
        service = self._service
        service.at(service.now + service.upto(service.faults.watch_s_max), lambda: self._read(line))

    def create_owner(self, shard: ShardId) -> None:
        self._request(shard, self._service.create)

    def remove_owner(self, shard: ShardId) -> None:
        self._request(shard, self._service.remove)

    def leave(self) -> None:
        """Leave as the port says; a session out of reach ends by its timeout."""
        line, self._line = self._line, None
        if line is not None:
            line.over = True
            if line.through:
                line.through = False
                self._service.end(line)

    # ---- what strikes ----

    def cut(self) -> None:
        """Cut the connection: nothing passes between this daemon and the service."""
        if not self._cut and not self.dead:
            self._cut = True
            self._service.struck["cut"] += 1
            self.broken()

    def heal(self) -> None:
        """Restore the connection; the client finds out what became of its session."""
        if self._cut and not self.dead:
            self._cut = False
            self.come_back()

    def expire(self) -> None:
        """End the session at the service."""
        if self._line is not None and self._line.alive and not self._service.paused:
            self._service.struck["expired"] += 1
            self._service.end(self._line)
            self.broken()
            self.come_back()

    def die(self) -> None:
        """End the process; its session stays until its timeout."""
        self.broken()
        self.dead = True
        if self._line is not None:
            self._line.over = True

    def broken(self) -> None:
        """Break the connection; the client notices after a while, unless it is restored before."""
        line = self._line
        if line is None or not line.through:
            return
        line.through = False
        line.broken_s = self._service.now
        line.breaks += 1
        noticed, service = line.breaks, self._service
        service.await_heartbeat(line)

        def notice() -> None:
            if line.breaks == noticed and not line.through and not line.over:
                self._report_state(line, SessionState.SUSPENDED)

        service.at(service.now + service.upto(service.session_s * 2 / 3), notice)

    def come_back(self) -> None:
        """Try to connect again, soon."""
        line = self._line
        if line is not None and not line.through and not self.dead:
            self._later(line, self._connect)

    # ---- between the two ends ----

    def _connect(self, line: SimulatedSession) -> None:
        service = self._service
        if line.over or line.through or self.dead or line is not self._line:
            return
        if self._cut or service.paused:
            if not line.joined:  # nothing else would retry
                service.at(service.now + RECONNECT_S, lambda: self._connect(line))
            return
        if not line.joined:
            service.begin(line)
        if not line.alive:
            self._report_state(line, SessionState.SUSPENDED)
            self._report_state(line, SessionState.LOST)
            return
        line.through = True
        line.breaks += 1
        self._write_node(line)
        self._report_state(line, SessionState.CONNECTED)
        line.connected_s = line.news_s
        self.request_view()

    def _write_node(self, line: SimulatedSession) -> None:
        service = self._service
        if line.through and service.members.get(line.member) != line.node:
            service.members[line.member] = line.node
            service.changed()

    def _read(self, line: SimulatedSession) -> None:
        line.reading = False
        service = self._service
        if line.through:
            members, owners = dict(service.members), dict(service.owners)
            self._send(line, MembershipView(line.member, service.changed_at, members, owners))

    def _request(self, shard: ShardId, do: Callable[[ShardId, str], NodeAnswer]) -> None:
        line, service = self._line, self._service
        if line is None:
            return
        inconclusive = NodeAnswer(line.member, shard, NodeOutcome.UNKNOWN)
        sent = line.breaks if line.through else -1

        def arrive(line: SimulatedSession) -> None:
            if line.over:
                return
            if line.breaks != sent:
                self._send(line, inconclusive, broken=inconclusive)
                return
            lost = service.stepper.chance.random() < service.faults.inconclusive
            if lost and service.stepper.chance.random() < 0.5:
                service.struck["request lost"] += 1
                self._send(line, inconclusive, broken=inconclusive)
                return
            answer = do(shard, line.member)
            service.struck["answer lost"] += lost
            self._send(line, inconclusive if lost else answer, broken=inconclusive)

        self._later(line, arrive)

    def _send(
        self, line: SimulatedSession, news: MembershipNews, *, broken: MembershipNews | None = None
    ) -> None:
        """Send news in order; `broken` replaces them if the connection breaks on the way."""
        service, sent = self._service, line.breaks

        def arrive() -> None:
            arrived = news if line.breaks == sent else broken
            if line.over or self.dead or arrived is None:
                return
            line.over = isinstance(arrived, Session) and arrived.state is SessionState.LOST
            self._listener(arrived)

        at_s = service.now + service.upto(service.faults.way_s_max)
        if isinstance(news, MembershipView):
            at_s += service.upto(service.faults.watch_s_max)
            line.views_s = at_s = max(line.views_s, line.connected_s, at_s)
        else:
            line.news_s = at_s = max(line.news_s, at_s)
        service.at(at_s, arrive)

    def _report_state(self, line: SimulatedSession, state: SessionState) -> None:
        if line.reported is not state:
            line.reported = state
            self._service.struck[state.value] += 1
            version = self._service.changed_at if state is SessionState.CONNECTED else 0
            session = Session(line.member, state, version)
            self._send(line, session, broken=session)

    def _later(self, line: SimulatedSession, do: Callable[[SimulatedSession], None]) -> None:
        service = self._service
        line.request_s = max(line.request_s, service.now + service.upto(service.faults.way_s_max))
        service.at(line.request_s, lambda: do(line))
