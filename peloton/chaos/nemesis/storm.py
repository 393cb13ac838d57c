"""A nemesis of real daemons and their servers, drawn from a seed.

Turns a seed and a clock into kills, pauses, restarts, expired sessions and cuts, each with a target
and an end; and into actions of operators meanwhile: daemons are added, removed, and restarted one
after another, as another version if there are two. The storm runs in the main thread only, because
a process that it starts ends with the thread that started it.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from peloton.chaos.nemesis.fleet import (
    EXIT_CANNOT_START,
    LINKS,
    DaemonProcess,
    NemesisFleet,
)
from peloton.chaos.nemesis.ground import MESOS_ENGINE, OnKeeper, OnMesos
from peloton.chaos.nemesis.servers import ServerStrikes
from peloton.chaos.nemesis.takeovers import HAND_OVER, Takeovers
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.vocabulary import Key

TICK_S = 0.1
GAP_S = (1.0, 6.0)
"""Between two actions, in s; many last longer, so some overlap."""
ALONE_S = 8.0
"""After an action that is measured alone, in s: the daemon that came back takes its shards back."""
TROUBLED_MAX = 2
"""Targets at a time; with more, the cluster does no work that a fault could disturb."""
NEMESIS_ACTIONS = {
    "kill": 5,
    "pause": 4,
    "expire": 2,
    "restart": 2,
    "cut": 4,
    "part": 2,
    "add": 2,
    "remove": 1,
    "roll": 1,
    "zookeeper pause": 1,
    "zookeeper restart": 1,
    "cassandra pause": 1,
    "cassandra restart": 1,
    "clock": 1,
}
"""What there is on any ground."""
KEEPER_ACTIONS = {**NEMESIS_ACTIONS, **OnKeeper.actions}
MESOS_ACTIONS = {**NEMESIS_ACTIONS, **OnMesos.actions}
PAUSE_S = (0.5, 30.0)
SERVER_PAUSE_S = (0.5, 12.0)
CUT_S = (1.0, 20.0)
DOWN_S = (0.2, 6.0)
EXPIRED_S = (1.0, 4.0)
FULL_S = (0.5, 8.0)
CLOCKS_S = (-86400.0, -3600.0, -60.0, 0.0, 60.0, 3600.0, 86400.0)
"""How far a clock may be from the machine's: until it is moved again, also after the storm."""
LEAVE_S_MAX = 45.0


class Menu(NamedTuple):
    """The actions of a storm, with their shares; `alone`: one at a time, with a recovery each.

    `times`: each action so often, in turn, and then the storm is over.
    """

    actions: Mapping[str, int] = MappingProxyType(KEEPER_ACTIONS)
    alone: bool = False
    times: int = 0


class NemesisStorm:
    """Actions and their ends, in the order of their times."""

    def __init__(
        self,
        fleet: NemesisFleet,
        timeline: Timeline,
        *,
        chance: random.Random,
        takeovers: Takeovers,
        menu: Menu = Menu(),  # noqa: B008
    ) -> None:
        self._fleet = fleet
        self._timeline = timeline
        self._chance = chance
        self._takeovers = takeovers
        self._menu = menu
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._busy: dict[str, None] = {}
        self._strikes = ServerStrikes(fleet.servers, timeline, until=self._until)
        self.clocks_moved: Callable[[], None] = lambda: None
        """Notified when a clock is moved."""

    @property
    def troubled(self) -> bool:
        """Whether any fault is on now."""
        return bool(self._busy)

    def rage(self, until_s: float) -> None:
        """Act until that time; actions that have not ended by then end in `calm`."""
        next_s = self._timeline.now_s + self._chance.uniform(*GAP_S)
        turns = itertools.cycle(self._menu.actions)
        left = self._menu.times * len(self._menu.actions)
        while self._timeline.now_s < until_s:
            self.tick()
            if self._menu.alone and (self._busy or self._takeovers.waiting):
                next_s = self._timeline.now_s + ALONE_S
            elif self._timeline.now_s < next_s:
                continue
            elif not self._menu.times:
                self._act(
                    *self._chance.choices([*self._menu.actions], [*self._menu.actions.values()])
                )
                next_s = self._timeline.now_s + self._chance.uniform(*GAP_S)
            elif left:
                self._act(next(turns))
                left -= 1
            else:
                return

    def calm(self) -> None:
        """End all actions now, also those that wait for something; then everything runs."""
        while self._later:
            _, _, end = heapq.heappop(self._later)
            end()
            threading.Event().wait(TICK_S)
        self.tick()

    def tick(self) -> None:
        """Wait a little: end what is due, and restart daemons that ended by themselves."""
        threading.Event().wait(TICK_S)
        while self._later and self._later[0][0] <= self._timeline.now_s:
            _, _, end = heapq.heappop(self._later)
            end()
        for daemon in self._fleet.daemons:
            if not daemon.alive and not daemon.resting and daemon.name not in self._busy:
                self._ended(daemon)

    def _ended(self, daemon: DaemonProcess) -> None:
        """Handle a daemon that ended by itself: right only if it found no server at its start."""
        code = daemon.process.returncode if daemon.process is not None else None
        text = f"{daemon.name} ended by itself with {code}: {daemon.last_line()}"
        if code == EXIT_CANNOT_START:
            self._timeline.count("vain starts", text)
        else:
            self._timeline.find(f"R18 {text}")
        self._start(daemon)

    # ---- actions ----

    def _act(self, what: str) -> None:
        daemon = self._chance.choice(self._fleet.wanted())
        if what == "engine kill":
            what, daemon = "kill", self._takeovers.owner_of(Key(MESOS_ENGINE)) or daemon
        seconds = self._chance.random()
        link = self._chance.choice(LINKS)
        target = what.split()[0] if " " in what else daemon.name
        target += f" {link}" if what == "cut" else ""
        if target in self._busy or len(self._busy) >= TROUBLED_MAX:
            return
        if what == "kill":
            self._kill(daemon, _between(DOWN_S, seconds))
        elif what == "pause":
            self._pause(daemon, _between(PAUSE_S, seconds**2), what="pause")
        elif what == "expire":
            rest_s = _between(EXPIRED_S, seconds)
            self._pause(daemon, self._fleet.session_s + rest_s, what="expired session")
        elif what == "restart":
            self._restart(daemon)
        elif what == "cut":
            self._cut(daemon, link, seconds=_between(CUT_S, seconds))
        elif what == "part":
            self._part(daemon, _between(CUT_S, seconds))
        elif what in PLANNED:
            PLANNED[what](self, daemon)
        elif what == "clock":
            self._move_clock(daemon, _between(DOWN_S, seconds))
        elif what == "keeper kill":
            self._kill_keeper()
        elif what == "disk full":
            self._fill_disk(_between(FULL_S, seconds))
        elif what.endswith("pause"):
            self._strikes.pause(target, _between(SERVER_PAUSE_S, seconds**2))
        else:
            self._strikes.restart(target, _between(DOWN_S, seconds))

    def _kill(self, daemon: DaemonProcess, down_s: float) -> None:
        daemon.kill()
        self._takeovers.lost(daemon, "kill")  # not before: it would still answer itself
        text = f"kill -9 {daemon.name} (pid {daemon.pid}), down {down_s:.1f} s"
        self._timeline.count("kills", text)
        self._until(down_s, daemon.name, end=lambda: self._start(daemon))

    def _pause(self, daemon: DaemonProcess, seconds: float, *, what: str) -> None:
        daemon.freeze()
        if seconds > self._fleet.session_s:
            self._takeovers.lost(daemon, "pause")
        self._timeline.count(f"{what}s", f"{what}: {daemon.name} is frozen for {seconds:.1f} s")

        def end() -> None:
            daemon.thaw()
            self._timeline.log(f"{daemon.name} continues")

        self._until(seconds, daemon.name, end=end)

    def _restart(self, daemon: DaemonProcess, *, then: Sequence[DaemonProcess] = ()) -> None:
        """Restart a daemon with a hand-over; then those after it, one after another."""

        def end() -> None:
            daemon.code = self._chance.choice(self._fleet.codes)
            self._start(daemon)
            for at, other in enumerate(then):
                if other.alive and other.name not in self._busy:
                    self._restart(other, then=then[at + 1 :])
                    break

        self._leave(daemon, "restarts", end=end)

    def _leave(self, daemon: DaemonProcess, what: str, *, end: Callable[[], None]) -> None:
        self._takeovers.lost(daemon, HAND_OVER)
        daemon.leave()
        self._timeline.count(what, f"SIGTERM to {daemon.name} (pid {daemon.pid})")
        begun_s = self._timeline.now_s

        def poll() -> None:
            late = self._timeline.now_s - begun_s > LEAVE_S_MAX
            if daemon.alive and not late:
                self._until(TICK_S, daemon.name, end=poll)
                return
            if late:
                self._timeline.find(f"{daemon.name} did not leave within {LEAVE_S_MAX} s")
                daemon.kill()
            code = daemon.process.returncode if daemon.process is not None else None
            self._timeline.log(f"{daemon.name} has left with {code}")
            end()

        self._until(TICK_S, daemon.name, end=poll)

    def _roll(self, first: DaemonProcess) -> None:
        others = [each for each in self._fleet.wanted() if each is not first]
        self._timeline.count("rolls", f"all are restarted, {first.name} first")
        self._restart(first, then=others)

    def _remove(self, daemon: DaemonProcess) -> None:
        if len(self._fleet.wanted()) > self._fleet.daemons_min:
            daemon.resting = True
            self._leave(daemon, "removals", end=lambda: None)

    def _add(self, daemon: DaemonProcess) -> None:  # noqa: ARG002
        spares = [each for each in self._fleet.resting() if each.name not in self._busy]
        if spares:
            added = self._chance.choice(spares)
            added.code = self._chance.choice(self._fleet.codes)
            self._start(added)
            self._timeline.count("additions", f"{added.name} is a member now")

    def _part(self, one: DaemonProcess, seconds: float) -> None:
        """Partition two daemons: they do not reach each other, all others reach both."""
        others = [each for each in self._fleet.living() if each is not one]
        if not others or not one.alive:
            return
        other, silent = self._chance.choice(others), self._chance.random() < 0.5
        target = f"{one.name} {other.name}"
        if target in self._busy:
            return
        one.door.part(other.pid, silent=silent)
        other.door.part(one.pid, silent=silent)
        how = "silently" if silent else "openly"
        text = f"{one.name} and {other.name} are parted {how} for {seconds:.1f} s"
        self._timeline.count("partings", text)

        def end() -> None:
            one.door.mend()
            other.door.mend()
            self._timeline.log(f"{one.name} and {other.name} reach each other")

        self._until(seconds, target, end=end)

    def _cut(self, daemon: DaemonProcess, name: str, *, seconds: float) -> None:
        silent = self._chance.random() < 0.5
        link = daemon.links[name]
        if silent:
            link.silence()
        else:
            link.cut()
        how = "silent" if silent else "cut"
        text = f"link of {daemon.name} with {name} is {how} for {seconds:.1f} s"
        self._timeline.count("cuts", text)

        def end() -> None:
            link.mend()
            self._timeline.log(f"link of {daemon.name} with {name} is mended")

        # The daemon itself may be struck meanwhile.
        self._until(seconds, f"{daemon.name} {name}", end=end)

    def _move_clock(self, daemon: DaemonProcess, down_s: float) -> None:
        """Move a daemon's clock, by a restart: the wall clock is read at the start."""
        daemon.clock_s = self._chance.choice(CLOCKS_S)
        self._timeline.count("moved clocks", f"{daemon.name}: its clock is {daemon.clock_s:+.0f} s")
        self.clocks_moved()
        self._kill(daemon, down_s)

    def _kill_keeper(self) -> None:
        """Kill the keeper. A daemon starts the next one, which takes over the live runs."""
        pid = self._fleet.machine.kill_keeper()
        if pid:
            self._timeline.count("keeper kills", f"kill -9 the keeper (pid {pid})")

    def _fill_disk(self, seconds: float) -> None:
        how = self._fleet.machine.fill()
        text = f"the keeper cannot write for {seconds:.1f} s: {how}"
        self._timeline.count("full disks", text)

        def end() -> None:
            self._fleet.machine.empty()
            self._timeline.log("the keeper can write again")

        self._until(seconds, "disk", end=end)

    # ---- inside ----

    def _start(self, daemon: DaemonProcess) -> None:
        daemon.start()
        self._timeline.log(f"{daemon.name} is started (pid {daemon.pid})")

    def _until(self, seconds: float, target: str, *, end: Callable[[], None]) -> None:
        """Mark the target busy for so long; then call `end`, which may mark it again."""
        self._busy[target] = None

        def over() -> None:
            del self._busy[target]
            end()

        due_s = self._timeline.now_s + seconds
        heapq.heappush(self._later, (due_s, next(self._numbers), over))


PLANNED: Mapping[str, Callable[[NemesisStorm, DaemonProcess], None]] = {
    "add": NemesisStorm._add,
    "remove": NemesisStorm._remove,
    "roll": NemesisStorm._roll,
}
"""What an operator does, by the action's name."""


def _between(bounds: tuple[float, float], share: float) -> float:
    return bounds[0] + share * (bounds[1] - bounds[0])
