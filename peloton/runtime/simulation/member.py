"""A client of the simulated membership service: one daemon's end of its session.

Turns the port's calls into requests that take a while, and what the service does into news that
come late; a break between the two is noticed late too. The client is no kinder than a real one: it
learns of its session's end only when it is back. It must not hold any truth: the ensemble does.
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
        self.through = False  # requests pass, both ends agree
        self.breaks = 0  # what was under way at an earlier one is lost
        self.told: SessionState | None = None
        self.waits = 0  # for a sign of life
        self.broken_s = 0.0  # when the last sign of life was heard, if nothing passes
        self.over = False  # the client is told nothing more
        self.reading = False  # a view, soon
        self.asked_s = 0.0  # no request is done before an earlier one
        self.news_s = 0.0  # no answer outruns earlier ones
        self.connected_s = 0.0
        self.views_s = 0.0  # nor a view earlier views; but an answer may


class SimulatedMembership:
    """The port as one daemon holds it: its methods are described there.

    The daemon's process may die, and the client with it.
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
        """As the port says: a sign of life is up to a third of the session's time old."""
        line, service = self._line, self._service
        if line is None or not line.joined or line.over:
            return 0.0
        heard_s = service.now if line.through else line.broken_s
        return heard_s + service.session_s * 2 / 3 - service.now

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
        self._ask(shard, self._service.create)

    def remove_owner(self, shard: ShardId) -> None:
        self._ask(shard, self._service.remove)

    def leave(self) -> None:
        """As the port says; a session that cannot be reached ends by its own time."""
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
        """It passes again; the client finds out what became of its session."""
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
        """The process is gone; its session stays for its time."""
        self.broken()
        self.dead = True
        if self._line is not None:
            self._line.over = True

    def broken(self) -> None:
        """The connection is gone; the client finds out in a while, if it is not mended before."""
        line = self._line
        if line is None or not line.through:
            return
        line.through = False
        line.broken_s = self._service.now
        line.breaks += 1
        noticed, service = line.breaks, self._service
        service.await_sign(line)

        def notice() -> None:
            if line.breaks == noticed and not line.through and not line.over:
                self._say_state(line, SessionState.SUSPENDED)

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
            if not line.joined:  # nobody else will try again
                service.at(service.now + RECONNECT_S, lambda: self._connect(line))
            return
        if not line.joined:
            service.begin(line)
        if not line.alive:
            self._say_state(line, SessionState.SUSPENDED)
            self._say_state(line, SessionState.LOST)
            return
        line.through = True
        line.breaks += 1
        self._write_node(line)
        self._say_state(line, SessionState.CONNECTED)
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
            self._say(line, MembershipView(line.member, service.changed_at, members, owners))

    def _ask(self, shard: ShardId, do: Callable[[ShardId, str], NodeAnswer]) -> None:
        line, service = self._line, self._service
        if line is None:
            return
        unsure = NodeAnswer(line.member, shard, NodeOutcome.UNSURE)
        sent = line.breaks if line.through else -1

        def arrive(line: SimulatedSession) -> None:
            if line.over:
                return
            if line.breaks != sent:
                self._say(line, unsure, broken=unsure)
                return
            lost = service.stepper.chance.random() < service.faults.unsure
            if lost and service.stepper.chance.random() < 0.5:
                service.struck["request lost"] += 1
                self._say(line, unsure, broken=unsure)
                return
            answer = do(shard, line.member)
            service.struck["answer lost"] += lost
            self._say(line, unsure if lost else answer, broken=unsure)

        self._later(line, arrive)

    def _say(
        self, line: SimulatedSession, news: MembershipNews, *, broken: MembershipNews | None = None
    ) -> None:
        """In order; `broken` is said where a break meets the news under way."""
        service, sent = self._service, line.breaks

        def arrive() -> None:
            said = news if line.breaks == sent else broken
            if line.over or self.dead or said is None:
                return
            line.over = isinstance(said, Session) and said.state is SessionState.LOST
            self._tell(said)

        at_s = service.now + service.upto(service.faults.way_s_max)
        if isinstance(news, MembershipView):
            at_s += service.upto(service.faults.watch_s_max)
            line.views_s = at_s = max(line.views_s, line.connected_s, at_s)
        else:
            line.news_s = at_s = max(line.news_s, at_s)
        service.at(at_s, arrive)

    def _say_state(self, line: SimulatedSession, state: SessionState) -> None:
        if line.told is not state:
            line.told = state
            self._service.struck[state.value] += 1
            version = self._service.changed_at if state is SessionState.CONNECTED else 0
            session = Session(line.member, state, version)
            self._say(line, session, broken=session)

    def _later(self, line: SimulatedSession, do: Callable[[SimulatedSession], None]) -> None:
        service = self._service
        line.asked_s = max(line.asked_s, service.now + service.upto(service.faults.way_s_max))
        service.at(line.asked_s, lambda: do(line))
