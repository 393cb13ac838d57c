"""A client of the simulated membership service: one daemon's end of its session.

Turns the port's calls into requests that take a while, and changes of the service into news that
arrive late; a broken connection is noticed late, too. The client is no kinder than a real one: it
learns of its session's end only after it has reconnected. It must not hold any truth: the ensemble
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from peloton.runtime.simulation.membership import Ensemble

RECONNECT_S = 0.5


class SimulatedSession:
    """One session, both ends of it."""

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
        self._tell: Callable[[MembershipNews], object] = lambda news: None

    # ---- the port ----

    def listen(self, tell: Callable[[MembershipNews], object]) -> None:
        self._tell = tell

    def join(self, member: str, node: MemberNode) -> None:
        self.leave()
        line = self._line = SimulatedSession(member, node)
        self._later(line, self._connect)

    def sure_for_s(self) -> float:
        """As the port says: a heartbeat is up to a third of the session timeout old."""
        line, service = self._line, self._service
        if line is None or not line.joined or line.over:
            return 0.0
        heartbeat_s = service.now if line.through else line.broken_s
        return heartbeat_s + service.session_s * 2 / 3 - service.now

    def announce(self, node: MemberNode) -> None:
        if self._line is not None:
            self._line.node = node
            self._later(self._line, self._write_node)

    def look(self) -> None:
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
        """As the port says; a session out of reach ends by its timeout."""
        line, self._line = self._line, None
        if line is not None:
            line.over = True
            if line.through:
                line.through = False
                self._service.end(line)

    # ---- what strikes ----

    def cut(self) -> None:
        """Nothing passes between this daemon and the service."""
        if not self._cut and not self.dead:
            self._cut = True
            self._service.struck["cut"] += 1
            self.broken()

    def heal(self) -> None:
        """The connection works again; the client finds out what became of its session."""
        if self._cut and not self.dead:
            self._cut = False
            self.come_back()

    def expire(self) -> None:
        """The session ends at the service."""
        if self._line is not None and self._line.alive and not self._service.paused:
            self._service.struck["expired"] += 1
            self._service.end(self._line)
            self.broken()
            self.come_back()

    def die(self) -> None:
        """The process is gone; its session stays until its timeout."""
        self.broken()
        self.dead = True
        if self._line is not None:
            self._line.over = True

    def broken(self) -> None:
        """The connection breaks; the client notices after a while, unless it is restored before."""
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
        self.look()

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
        unsure = NodeAnswer(line.member, shard, NodeOutcome.UNSURE)
        sent = line.breaks if line.through else -1

        def arrive(line: SimulatedSession) -> None:
            if line.over:
                return
            if line.breaks != sent:
                self._send(line, unsure, broken=unsure)
                return
            lost = service.stepper.chance.random() < service.faults.unsure
            if lost and service.stepper.chance.random() < 0.5:
                service.struck["request lost"] += 1
                self._send(line, unsure, broken=unsure)
                return
            answer = do(shard, line.member)
            service.struck["answer lost"] += lost
            self._send(line, unsure if lost else answer, broken=unsure)

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
            self._tell(arrived)

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
