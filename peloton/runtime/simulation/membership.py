"""A membership service in small: sessions, nodes that die with them, and watchers told late.

Turns the port's calls of several daemons on one stepper into what a real ensemble makes of them,
its unkind habits included: an answer that is lost after the deed, a view that comes late and skips
what lay between, a client that learns of its session's end only when it is back. It must not know
what daemons do with their nodes, nor be kinder than the real thing: an operation is never answered
twice, and no answer outruns an earlier one of its session, because there it cannot either.

    ensemble = begun(Ensemble(stepper))
    membership = Client(ensemble, "a")
    ensemble.storm(MembershipFaults(cuts_per_s=0.05))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from peloton.runtime.ports import (
    MemberNode,
    MembershipNews,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
    View,
)
from peloton.runtime.simulation.later import Later
from peloton.runtime.simulation.stepper import Stepper

STRIKE_EVERY_S = 1.0
RECONNECT_S = 0.5


class MembershipFaults(Struct, frozen=True):
    """How strong a storm is; everything that is drawn is drawn evenly up to its maximum."""

    way_s_max: float = 0.02
    """A request or an answer is under way for so long."""
    watch_s_max: float = 0.1
    """From a change to the reading of it; all changes in between are seen as one."""
    unsure: float = 0.0
    """Share of operations on owner nodes whose answer is lost, half of them after the deed."""
    cuts_per_s: float = 0.0
    cut_s_max: float = 30.0
    expiries_per_s: float = 0.0
    """Sessions that end though nothing is wrong."""
    pauses_per_s: float = 0.0
    """Of the whole ensemble."""
    pause_s_max: float = 30.0


CALM = MembershipFaults()


class Line:
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


class Ensemble(Later):
    """The service: the truth about nodes, and all that strikes between it and its clients."""

    def __init__(
        self, stepper: Stepper, *, faults: MembershipFaults = CALM, session_s: float = 10.0
    ) -> None:
        super().__init__("ensemble", stepper)
        self.faults = faults
        self.session_s = session_s
        self.version = 0
        self.members: dict[str, MemberNode] = {}
        self.owners: dict[ShardId, str] = {}
        self.clients: list[Client] = []
        self.lines: list[Line] = []
        self.struck: Counter[str] = Counter()
        self.paused = False
        self._quiet = True

    # ---- what a world does to it ----

    def storm(self, faults: MembershipFaults) -> None:
        """From now on these strengths."""
        self.faults = faults
        if self._quiet:
            self._quiet = False
            self.at(self.now, self._strike)

    def calm(self) -> None:
        """Nothing strikes any more, and everything that is cut or paused is mended."""
        self.faults, self._quiet = CALM, True
        self.resume()
        for client in self.clients:
            client.heal()

    def pause(self) -> None:
        """Nobody is answered, and no session ends, until it is resumed."""
        if not self.paused:
            self.paused = True
            self.struck["pause"] += 1
            for client in self.clients:
                client.broken()

    def resume(self) -> None:
        """A new leader gives every session its whole time again."""
        if self.paused:
            self.paused = False
            for line in self.lines:
                self.await_sign(line)
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

    def changed(self) -> None:
        """One more change; every watcher hears of it in its own time."""
        self.version += 1
        for client in self.clients:
            client.look()

    def begin(self, line: Line) -> None:
        """A new session."""
        line.joined = line.alive = True
        self.lines.append(line)

    def end(self, line: Line) -> None:
        """A session is over: all its nodes vanish in one change."""
        if line.alive:
            line.alive = False
            self.lines.remove(line)
            self.members.pop(line.member, None)
            self.owners = {s: owner for s, owner in self.owners.items() if owner != line.member}
            self.changed()

    def await_sign(self, line: Line) -> None:
        """The session ends then, unless its client is back; the last sign of life is up to a
        third of the time old already."""
        line.waits += 1
        waits = line.waits

        def end() -> None:
            if line.alive and not line.through and line.waits == waits and not self.paused:
                self.struck["timed out"] += 1
                self.end(line)

        self.at(self.now + self.session_s - self.upto(self.session_s / 3), end)

    def create(self, shard: ShardId, member: str) -> NodeAnswer:
        """The owner node, if there is none."""
        if shard not in self.owners:
            self.owners[shard] = member
            self.changed()
        owner = self.owners[shard]
        outcome = NodeOutcome.HELD if owner == member else NodeOutcome.TAKEN
        return NodeAnswer(member, shard, outcome, self.version, "" if owner == member else owner)

    def remove(self, shard: ShardId, member: str) -> NodeAnswer:
        """The owner node, if it is the asker's."""
        if self.owners.get(shard) == member:
            del self.owners[shard]
            self.changed()
        owner = self.owners.get(shard, "")
        return NodeAnswer(member, shard, NodeOutcome.GONE, self.version, owner)


class Client:
    """The port as one daemon holds it: its methods are described there.

    The daemon's process may die, and the client with it.
    """

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self.name = name
        self.dead = False
        self._service = ensemble
        ensemble.clients.append(self)
        self._cut = False
        self._line: Line | None = None
        self._tell: Callable[[MembershipNews], object] = lambda news: None

    # ---- the port ----

    def listen(self, tell: Callable[[MembershipNews], object]) -> None:
        self._tell = tell

    def join(self, member: str, node: MemberNode) -> None:
        self.leave()
        line = self._line = Line(member, node)
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

    def _connect(self, line: Line) -> None:
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

    def _write_node(self, line: Line) -> None:
        service = self._service
        if line.through and service.members.get(line.member) != line.node:
            service.members[line.member] = line.node
            service.changed()

    def _read(self, line: Line) -> None:
        line.reading = False
        service = self._service
        if line.through:
            members, owners = dict(service.members), dict(service.owners)
            self._say(line, View(line.member, service.version, members, owners))

    def _ask(self, shard: ShardId, do: Callable[[ShardId, str], NodeAnswer]) -> None:
        line, service = self._line, self._service
        if line is None:
            return
        unsure = NodeAnswer(line.member, shard, NodeOutcome.UNSURE)
        sent = line.breaks if line.through else -1

        def arrive(line: Line) -> None:
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
        self, line: Line, news: MembershipNews, *, broken: MembershipNews | None = None
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
        if isinstance(news, View):
            at_s += service.upto(service.faults.watch_s_max)
            line.views_s = at_s = max(line.views_s, line.connected_s, at_s)
        else:
            line.news_s = at_s = max(line.news_s, at_s)
        service.at(at_s, arrive)

    def _say_state(self, line: Line, state: SessionState) -> None:
        if line.told is not state:
            line.told = state
            self._service.struck[state.value] += 1
            version = self._service.version if state is SessionState.CONNECTED else 0
            session = Session(line.member, state, version)
            self._say(line, session, broken=session)

    def _later(self, line: Line, do: Callable[[Line], None]) -> None:
        service = self._service
        line.asked_s = max(line.asked_s, service.now + service.upto(service.faults.way_s_max))
        service.at(line.asked_s, lambda: do(line))
