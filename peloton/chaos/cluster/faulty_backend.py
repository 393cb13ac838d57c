"""A daemon's hands on the machines of a simulated cluster: the backend that lies, delays, vanishes.

Turns orders of hosts into calls of the one truth about what runs (`Machines`), and its words into
mail through whichever daemon spoke to the machine last. The machines outlive all daemons. It must
not be kinder than a real backend: words are lost, late, said twice, or about runs nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.chaos.cluster.machines import Machines
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Message, key

MACHINE_BACKEND = key("backend", "machines")


class BackendFaults(NamedTuple):
    """How strong each fault is: shares of orders or words. All off is a calm."""

    order_delay_s: float = 0.0
    word_delay_s: float = 0.0
    lose_order: float = 0.0
    lose_word: float = 0.0
    repeat_word: float = 0.0
    foreign_run: float = 0.0  # listings that name a run nobody ever launched


CALM_BACKEND = BackendFaults()


class MachineLink:
    """Where the machines stand: what lies between them and the daemons."""

    def __init__(self, world: World, machines: Machines) -> None:
        self.world = world
        self.machines = machines
        self.faults = CALM_BACKEND
        self.struck: Counter[str] = Counter()
        self.foreign: dict[str, None] = {}
        self._spoke: dict[Key, SimulatedDaemon] = {}  # who asked a machine last
        self._wakes: dict[float, None] = {}
        self._still: dict[Key, list[Callable[[], None]]] = {}  # machines that stand still

    # ---- what a storm does ----

    def cut(self, host: Key) -> None:
        """The machine cannot be asked; what runs on it runs on."""
        if host not in self.machines.cut_off:
            self.struck["host cut"] += 1
            self.machines.cut_off[host] = None
            self._say(Envelope(host, m.BackendDown("out of reach")))

    def mend(self, host: Key) -> None:
        """It can be asked again."""
        if host in self.machines.cut_off:
            del self.machines.cut_off[host]
            self._say(Envelope(host, m.BackendUp()))

    def switch_off(self, host: Key) -> None:
        """The machine is gone, with all that runs on it; `mend` brings it back empty."""
        self.cut(host)
        self.machines.vanish(host)

    def stop(self, host: Key) -> None:
        """The machine stands still: orders and words wait, nobody is told."""
        self._still.setdefault(host, [])

    def go_on(self, host: Key) -> None:
        """It goes on with what waited."""
        for do in self._still.pop(host, []):
            do()

    def calm(self) -> None:
        """Nothing strikes any more, and every machine can be asked."""
        self.faults = CALM_BACKEND
        for host in [*self._still]:
            self.go_on(host)
        for host in [*self.machines.cut_off]:
            self.mend(host)

    # ---- what hands and machines do ----

    def order(self, daemon: SimulatedDaemon, message: Message) -> None:
        """A daemon orders; it takes a while, and may come to nothing."""
        if self._strikes("order lost", self.faults.lose_order):
            return
        after_s = self._upto(self.faults.order_delay_s)
        self.world.later.at(self.world.now + after_s, lambda: self._arrive(daemon, message))

    def _arrive(self, daemon: SimulatedDaemon, message: Message) -> None:
        host: Key = message.host  # type: ignore[attr-defined]
        if host in self._still:
            self._still[host].append(lambda: self._arrive(daemon, message))
            return
        if not self._obeys(host, message):
            return
        self._spoke[host] = daemon
        if isinstance(message, m.PingBackend):
            cut = host in self.machines.cut_off
            self._word(Envelope(host, m.BackendDown("out of reach") if cut else m.BackendUp()))
            return
        for word in self.machines.receive(message, self.world.now):
            self._word(self._lied(word))
        self._wake()

    def _obeys(self, host: Key, message: Message) -> bool:
        epoch = getattr(message, "epoch", None)
        return epoch is None or epoch >= self.machines.epochs.get(host, 0)

    def _wake(self) -> None:
        at_s = self.machines.wake_at
        if at_s is not None and at_s not in self._wakes:
            self._wakes[at_s] = None
            self.world.later.at(at_s, lambda: self._due(at_s))

    def _due(self, at_s: float) -> None:
        self._wakes.pop(at_s, None)
        for word in self.machines.due(self.world.now):
            self._word(word)
        self._wake()

    def _lied(self, word: Envelope) -> Envelope:
        listed = word.message
        if not isinstance(listed, m.RunsListed):
            return word
        if not self._strikes("foreign run", self.faults.foreign_run):
            return word
        foreign = f"{'0' * 35}f-0-{len(self.foreign) + 1}"
        self.foreign[foreign] = None
        return Envelope(
            word.to, m.RunsListed((*listed.running, foreign), listed.ends, listed.asked_at)
        )

    def _word(self, word: Envelope) -> None:
        if self._strikes("word lost", self.faults.lose_word):
            return
        for _ in range(2 if self._strikes("word repeated", self.faults.repeat_word) else 1):
            after_s = self._upto(self.faults.word_delay_s)
            self.world.later.at(self.world.now + after_s, lambda: self._say(word))

    def _say(self, word: Envelope) -> None:
        """Through who spoke last; a daemon that is no more hears nothing, and neither do we."""
        if word.to in self._still:
            self._still[word.to].append(lambda: self._say(word))
            return
        daemon = self._spoke.get(word.to)
        if daemon is not None and daemon.alive:
            daemon.region.tell((word,))

    def _upto(self, seconds: float) -> float:
        return self.world.chance.random() * seconds if seconds else 0.0

    def _strikes(self, name: str, share: float) -> bool:
        if not share or self.world.chance.random() >= share:
            return False
        self.struck[name] += 1
        return True


class FaultyBackend:
    """The soft machine of one life of a daemon; every order is a port call."""

    own_thread = False
    wake_at: float | None = None

    def __init__(self, floor: MachineLink, daemon: SimulatedDaemon) -> None:
        self._floor = floor
        self._daemon = daemon

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Orders of hosts."""
        for envelope in envelopes:
            self._order(envelope.message)
        return ()

    def reset(self) -> None:
        """Nothing is held here."""

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Machines do not care who we are: only for which epoch we speak."""

    def _order(self, message: Message) -> None:
        name = type(message).__name__
        self._daemon.call("backend", name, do=lambda: self._floor.order(self._daemon, message))
