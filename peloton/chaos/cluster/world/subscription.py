"""A cluster of machines that exists once: one daemon is subscribed, and all goes through its link.

Turns orders of the actor `engine/machines` into orders of machines, and reports into mail through
the daemon that is subscribed, as with a Mesos master: the last subscription ends the one before,
while nobody is subscribed nothing is reported, and ends that nobody has noted are reported again to
the next. The actor's owner decides which daemon should be subscribed.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.engine.messages import AskSubscription, BackendHere, Subscribe, link_of
from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted
from peloton.chaos.cluster.world.faulty_backend import MachineLink
from peloton.chaos.cluster.world.machines import machine_report
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.vocabulary import Key, Message, key

MACHINES_ENGINE = key("engine", "machines")
MACHINES_LINK = link_of(MACHINES_ENGINE)
NOT_SUBSCRIBED = "not subscribed at the master"
ASK_AGAIN_S = 2.0
"""A link whose subscription ended asks for another one after so long."""


class Master:
    """The subscription."""

    def __init__(self, machines: MachineLink, hosts: list[Key]) -> None:
        self.away = False
        self.subscribed = 0
        """How many subscriptions there were."""
        self._machines = machines
        self._hosts = hosts
        self._link: EngineLink | None = None

    def who(self) -> SimulatedDaemon | None:
        """Return the daemon through which machines are heard; None if nobody listens."""
        return self._link.daemon if self._link is not None and self._link.lives else None

    def subscribe(self, link: EngineLink) -> None:
        """Begin a subscription in place of another; unnoted ends are reported again."""
        if self.away:
            link.ended(NOT_SUBSCRIBED)
            return
        former, self._link = self._link, link
        self.subscribed += 1
        if former is not None and former is not link:
            former.overtaken()
        for host in self._hosts:
            self._machines.back(host)

    def leave(self) -> None:
        """Let the master fail: nobody is subscribed, and nobody can be until it is back."""
        self.away = True
        link, self._link = self._link, None
        if link is not None and link.lives:
            link.ended("the master is away")

    def come_back(self) -> None:
        """Let a master come back, or another one."""
        self.away = False

    def is_subscribed(self, link: EngineLink) -> bool:
        """Return whether this link may send anything to the master."""
        return self._link is link


class EngineLink(StatelessService):
    """The service `link/machines` of one life of a daemon; every order is a port call."""

    def __init__(
        self, machines: MachineLink, master: Master, *, daemon: SimulatedDaemon, hosts: list[Key]
    ) -> None:
        self.daemon = daemon
        self._machines = machines
        self._master = master
        self._hosts = hosts
        self._life = daemon.lives
        self._live = False
        """Whether a subscription was granted, and has not ended."""
        self._may_ask = True
        """Whether the actor has said, since we asked last, that its owner is here."""

    @property
    def lives(self) -> bool:
        """Whether the link's process lives."""
        return self.daemon.alive and self.daemon.lives == self._life

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take orders of hosts, and the actor's messages about subscriptions."""
        out: list[Envelope] = []
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, Subscribe):
                if not self._live:
                    self._live = True
                    self._call(message)
                continue
            self._may_ask = True
            if isinstance(message, BackendHere):
                continue
            if self._live:
                self._call(message)
            elif not isinstance(message, m.ForgetRuns | ChangesNoted):
                host: Key = message.host  # type: ignore[attr-defined]
                out.append(_of_engine(host, m.BackendDown(NOT_SUBSCRIBED)))
        if not self._live and self._may_ask:
            self._may_ask = False
            out.append(ASK)
        return out

    def overtaken(self) -> None:
        """Wait until the actor reports that its owner is here: another link has subscribed."""
        self._live = self._may_ask = False

    def ended(self, why: str) -> None:
        """Report the end of the stream to hosts, and ask for the next one."""
        self._live = False
        down = [_of_engine(host, m.BackendDown(why)) for host in self._hosts]
        self.daemon.region.tell(down)
        world = self._machines.world
        world.later.at(world.now + ASK_AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        if self.lives and not self._live:
            self.daemon.region.tell([ASK])

    def _call(self, message: Message) -> None:
        def do() -> None:
            if isinstance(message, Subscribe):
                self._master.subscribe(self)
            elif self._master.is_subscribed(self):
                self._machines.order(self.daemon, message)

        self.daemon.call("backend", type(message).__name__, do=do)


ASK = Envelope(MACHINES_ENGINE, AskSubscription(), sender=MACHINES_LINK)


def _of_engine(host: Key, message: Message) -> Envelope:
    """Return an envelope from the engine: hosts ignore the reports of others."""
    return machine_report(host, message, of=MACHINES_ENGINE)
