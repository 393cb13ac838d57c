"""The backend of a simulated cluster: it delays, loses and falsifies orders and reports.

Turns orders of hosts into calls of `Machines`, the truth about runs, and its reports into mail
through the daemon that ordered something of that machine last. The machines outlive all daemons.
The backend must not be kinder than a real one, or faults would be hidden: reports are lost, late,
repeated, or name unknown runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.task.messages import RunOutcome, crowd_key
from peloton.chaos.cluster.world.machines import MACHINE_BACKEND, Machines, machine_report
from peloton.chaos.cluster.world.updates import CALM_UPDATES, Updates
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.draws import FaultDraws
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Bits, Key, Message

FOREIGN_JOB = f"{'0' * 35}f"
"""Of runs that nobody ever launched."""


class BackendFaults(NamedTuple):
    """The strength of each fault: shares of orders or reports. All off is a calm."""

    order_delay_s: float = 0.0
    report_delay_s: float = 0.0
    lose_order: float = 0.0
    lose_report: float = 0.0
    repeat_report: float = 0.0
    foreign_run: float = 0.0  # listings that name a run nobody ever launched


CALM_BACKEND = BackendFaults()


class MachineLink:
    """The connection between all machines and all daemons, with its faults."""

    def __init__(self, world: World, machines: Machines) -> None:
        self.world = world
        self.machines = machines
        self.faults = CALM_BACKEND
        self.updates = Updates(world, machines, deliver=self._deliver)
        self.address = MACHINE_BACKEND
        """The backend that hosts know."""
        self.carrier: Callable[[], SimulatedDaemon | None] | None = None
        """Where the machines exist once: the daemon that is subscribed to them."""
        self._draws = FaultDraws(world.chance)
        self.struck = self._draws.struck
        self.foreign: dict[str, None] = {}
        self._last: dict[Key, SimulatedDaemon] = {}  # which daemon gave a machine its last order
        self._wakes: dict[float, None] = {}
        self._frozen: dict[Key, list[Callable[[], None]]] = {}  # machines, and what waits there

    # ---- what a storm does ----

    def cut(self, host: Key) -> None:
        """Cut the machine off; its runs continue."""
        if host not in self.machines.cut_off:
            self.struck["host cut"] += 1
            self.machines.cut_off[host] = None
            self._deliver(machine_report(host, m.BackendDown("out of reach")))

    def mend(self, host: Key) -> None:
        """Let the machine be reached again."""
        if host in self.machines.cut_off:
            del self.machines.cut_off[host]
            self._deliver(machine_report(host, m.BackendUp()))

    def switch_off(self, host: Key) -> None:
        """Let the machine fail with all its runs; `mend` brings it back empty."""
        self.cut(host)
        self.machines.vanish(host)

    def renew(self, host: Key) -> None:
        """Renew the machine under another name, without its runs, and tell nobody."""
        self.machines.vanish(host)
        if host not in self.machines.cut_off:
            self._deliver(machine_report(host, m.BackendUp()))

    def back(self, host: Key) -> None:
        """Let the host compare, and report again the ends that nobody noted."""
        if host in self.machines.cut_off:
            return
        self._report(machine_report(host, m.BackendUp()))
        for at, end in [*self.machines.ended.values()]:
            if at == host:
                self._report(machine_report(host, m.RunsEnded((end,))))

    def end(self, run: str, outcome: RunOutcome) -> None:
        """End a run now, whatever its fate was."""
        self.machines.end(run, outcome, self.world.now)
        self._wake()

    def freeze(self, host: Key) -> None:
        """Freeze the machine: orders and reports wait, and no fault is reported."""
        self._frozen.setdefault(host, [])

    def thaw(self, host: Key) -> None:
        """Thaw the machine, with all that waited."""
        for do in self._frozen.pop(host, []):
            do()

    def calm(self) -> None:
        """End all faults: every machine is in reach, and runs that begin now stay healthy."""
        self.faults, self.machines.ill = CALM_BACKEND, 0.0
        self.updates.faults = CALM_UPDATES
        for host in [*self._frozen]:
            self.thaw(host)
        for host in [*self.machines.cut_off]:
            self.mend(host)

    # ---- orders and reports ----

    def order(self, daemon: SimulatedDaemon, message: Message) -> None:
        """Take a daemon's order, which arrives after a delay or is lost."""
        if self._draws.strikes("order lost", self.faults.lose_order):
            return
        after_s = self._draws.up_to(self.faults.order_delay_s)
        self.world.later.at(self.world.now + after_s, lambda: self._arrive(daemon, message))

    def _arrive(self, daemon: SimulatedDaemon, message: Message) -> None:
        host: Key = message.host  # type: ignore[attr-defined]
        if host in self._frozen:
            self._frozen[host].append(lambda: self._arrive(daemon, message))
            return
        if not self._is_current(host, message):
            return
        self._last[host] = daemon
        if isinstance(message, m.PingBackend):
            cut = host in self.machines.cut_off
            answer = m.BackendDown("out of reach") if cut else m.BackendUp()
            self._report(machine_report(host, answer))
            return
        refused: list[Envelope] = []
        if host not in self.machines.cut_off:
            message, refused = self.updates.obeyed(message)
        for report in (*refused, *self.machines.receive(message, self.world.now)):
            self._report(self._falsified(report))
        self._wake()

    def _is_current(self, host: Key, message: Message) -> bool:
        """Return whether no younger owner has given this machine an order."""
        epoch = getattr(message, "epoch", None)
        return epoch is None or epoch >= self.machines.epochs.get(host, 0)

    def _wake(self) -> None:
        at_s = self.machines.wake_at
        if at_s is not None and at_s not in self._wakes:
            self._wakes[at_s] = None
            self.world.later.at(at_s, lambda: self._due(at_s))

    def _due(self, at_s: float) -> None:
        self._wakes.pop(at_s, None)
        for report in self.machines.due(self.world.now):
            self._report(report)
        self._wake()

    def _falsified(self, report: Envelope) -> Envelope:
        listed = report.message
        if not isinstance(listed, m.RunsListed):
            return report
        if not self._draws.strikes("foreign run", self.faults.foreign_run):
            return report
        run = len(self.foreign) + 1
        foreign = f"{FOREIGN_JOB}-0-{run}"
        self.foreign[foreign] = None
        running, sets = listed.running, listed.sets
        if sets and run % 2:
            sets = (*sets, m.RunningSet(crowd_key(FOREIGN_JOB, 0), run, Bits.of(0)))
        else:
            running = (*running, foreign)
        falsified = m.RunsListed(running, listed.ends, listed.asked_at, sets=sets)
        return machine_report(report.to, falsified)

    def _report(self, report: Envelope) -> None:
        draws, faults = self._draws, self.faults
        if draws.strikes("report lost", faults.lose_report):
            return
        for _ in range(2 if draws.strikes("report repeated", faults.repeat_report) else 1):
            after_s = draws.up_to(faults.report_delay_s)
            self.world.later.at(self.world.now + after_s, lambda: self.updates.pass_on(report))

    def _deliver(self, report: Envelope) -> None:
        """Deliver a report through the daemon that ordered last, or is subscribed."""
        if report.to in self._frozen:
            self._frozen[report.to].append(lambda: self._deliver(report))
            return
        daemon = self._last.get(report.to) if self.carrier is None else self.carrier()
        if daemon is not None and daemon.alive:
            daemon.region.tell((Envelope(report.to, report.message, sender=self.address),))


class FaultyBackend(StatelessService):
    """The backend service of one life of a daemon; every order is a port call."""

    def __init__(self, link: MachineLink, daemon: SimulatedDaemon) -> None:
        self._link = link
        self._daemon = daemon

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take orders of hosts."""
        for envelope in envelopes:
            self._order(envelope.message)
        return ()

    def _order(self, message: Message) -> None:
        name = type(message).__name__
        self._daemon.call("backend", name, do=lambda: self._link.order(self._daemon, message))
