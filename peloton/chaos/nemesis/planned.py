"""Steps of operators on a cluster under load, one after the other, each measured.

Turns names of steps into daemons that are added, removed, restarted one by one, upgraded and
downgraded, into shards that move away from a daemon that cannot serve them, and into a partitioned
pair; and each into figures: how long until the cluster was at rest again, and how long shards did
not answer meanwhile. A step ends only when the cluster is at rest, whatever a daemon reports: every
shard has the owner that all rank first, every shard that moved has a later epoch, and a client was
answered about each since.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from peloton.chaos.nemesis.census import Census
from peloton.chaos.nemesis.clients import SharedRecord
from peloton.chaos.nemesis.fleet import REPOSITORY, DaemonProcess, NemesisFleet
from peloton.chaos.nemesis.probe import Probe
from peloton.chaos.nemesis.storm import LEAVE_S_MAX, NemesisStorm
from peloton.runtime.ports import ShardId

REST_S_MAX = 120.0
"""The cluster must be at rest within so long; far more than it needs on a quiet machine."""
MIXED_S = 6.0
"""Daemons of two versions work side by side for so long, after each change of a version."""
PARTED_S = 3.0
COME_AGAIN_MAX = 5
"""An added daemon may by chance rank first for no shard; then it is removed and added again."""


class Figures(NamedTuple):
    """The figures of one step."""

    what: str
    seconds: float  # until the cluster was at rest
    moved: int
    silences: tuple[float, ...]  # of the job shards that moved; of all, where none did
    slowest_s: float  # the slowest call of any client


class PlannedStepFailed(Exception):
    """A step did not finish: figures of later steps would mean nothing."""


class Planned:
    """The steps, by their names."""

    def __init__(
        self,
        fleet: NemesisFleet,
        storm: NemesisStorm,
        *,
        record: SharedRecord,
        probe: Probe,
        census: Callable[[], Census | None],
    ) -> None:
        self.found: list[Figures] = []
        self.later = REPOSITORY
        """The folder of the version that `upgrade` brings."""
        self._fleet = fleet
        self._storm = storm
        self._record = record
        self._probe = probe
        self._census = census
        self._timeline = record.timeline

    def play(self, steps: Sequence[str]) -> None:
        """Play these steps; after one that failed the others are left out."""
        try:
            self._rest("the beginning")
            for step in steps:
                self._timeline.count(step, f"planned: {step}")
                STEPS[step](self)
        except PlannedStepFailed as failed:
            self._timeline.find(f"R15 {failed}")
        finally:
            for link in [link for each in self._fleet.daemons for link in each.links.values()]:
                link.mend()

    def summary(self) -> str:
        """Return the figures as text."""
        parts = []
        for what in dict.fromkeys(each.what for each in self.found):
            some = [each for each in self.found if each.what == what]
            silences = [s for each in some for s in each.silences]
            middle, worst = statistics.median(silences), max(silences)
            parts.append(
                f"{what}: {sum(each.moved for each in some)} shards in {len(some)} steps, "
                f"at rest after median {statistics.median(e.seconds for e in some):.1f} s, "
                f"worst {max(e.seconds for e in some):.1f} s; "
                f"no answer for median {middle:.1f} s, worst {worst:.1f} s; "
                f"slowest call {max(e.slowest_s for e in some):.1f} s"
            )
        return "; ".join(parts)

    # ---- steps ----

    def add(self) -> None:
        """Add a daemon that ranks first for some shards."""
        for _ in range(COME_AGAIN_MAX):
            added = self._fleet.resting()[0]
            if self._come(added, "add"):
                return
            self._timeline.log(f"{added.name} ranks first for no shard: it is added again")
            self._leave(added, "remove")
        raise PlannedStepFailed(f"nothing moved to a daemon that was added {COME_AGAIN_MAX} times")

    def remove(self) -> None:
        """Remove a daemon, which does not come back."""
        self._leave(self._busiest(), "remove")

    def roll(self) -> None:
        """Restart all daemons, one after another."""
        for daemon in self._fleet.wanted():
            self._leave(daemon, "roll")
            self._come(daemon, "return")

    def upgrade(self) -> None:
        """Restart all daemons as the later version, one after another, mixed meanwhile."""
        self._become(self.later, "upgrade")

    def downgrade(self) -> None:
        """Restart all daemons as the earlier version again."""
        self._become(REPOSITORY, "downgrade")

    def move(self) -> None:
        """Let a daemon that cannot reach the store give its shards up, and take them back later."""
        daemon = self._busiest()
        before, begun_s = self._rest("a move"), self._timeline.now_s
        daemon.links["cassandra"].silence()
        after = self._rest("a move", before, until=lambda now: _fled(now, daemon))
        self._note("move away", begun_s, moved=after.moved(before)[0])
        daemon.links["cassandra"].mend()
        self._rest("a return", until=lambda now: not now.unfit(daemon), settled=False)
        begun_s = self._timeline.now_s
        moved, _ = self._rest("a return", after).moved(after)
        self._note("move back", begun_s, moved=moved)

    def part(self) -> None:
        """Partition two daemons that both reach all else: no shard may move."""
        one, other = self._fleet.wanted()[:2]
        before, begun_s = self._rest("a parting"), self._timeline.now_s
        one.door.part(other.pid, silent=True)
        other.door.part(one.pid, silent=True)
        self._pass(PARTED_S)
        one.door.mend()
        other.door.mend()
        moved, _ = self._rest("a parting").moved(before)
        if moved:
            self._timeline.find(f"R3 {moved} moved though only two daemons were partitioned")
        self._note("part", begun_s, moved=moved)

    # ---- parts of steps ----

    def _become(self, code: Path, what: str) -> None:
        for daemon in self._fleet.wanted():
            self._leave(daemon, what)
            daemon.code = code
            self._come(daemon, "return")
            folder = Path(f"/proc/{daemon.pid}/cwd").resolve()
            if folder != code.resolve():
                self._timeline.find(f"{daemon.name} should run {code}, and runs {folder}")
            self._pass(MIXED_S)

    def _leave(self, daemon: DaemonProcess, what: str) -> None:
        """Let a daemon hand over its shards, and end without an error."""
        before, begun_s = self._rest(what), self._timeline.now_s
        daemon.resting = True
        daemon.leave()
        self._timeline.log(f"{what}: SIGTERM to {daemon.name} (pid {daemon.pid})")
        while daemon.alive and self._timeline.now_s < begun_s + LEAVE_S_MAX:
            self._storm.tick()
        if daemon.process is None or daemon.process.poll() != 0:
            raise PlannedStepFailed(
                f"{daemon.name} did not leave without an error: {daemon.last_line()}"
            )
        if "warning" in daemon.last_line():
            self._timeline.find(f"{daemon.name} left: {daemon.last_line()}")
        moved, _ = self._rest(what, before).moved(before)
        if moved != before.of(daemon):
            self._timeline.log(f"{daemon.name} had {before.of(daemon)}, and {moved} moved")
        self._note(what, begun_s, moved=moved)

    def _come(self, daemon: DaemonProcess, what: str) -> bool:
        """Let a daemon start and take its shards; return whether there are any."""
        before = self._rest(what, settled=False)
        daemon.start()
        self._timeline.log(f"{what}: {daemon.name} is started (pid {daemon.pid})")
        self._rest(what, until=lambda now: len(now.members) > len(before.members), settled=False)
        begun_s = self._timeline.now_s
        moved, _ = self._rest(what, before).moved(before)
        self._note(what, begun_s, moved=moved)
        return bool(moved)

    def _busiest(self) -> DaemonProcess:
        census = self._rest("a census")
        return max(
            self._fleet.wanted(),
            key=lambda each: (sum(s.group == "jobmgr" for s in census.of(each)), each.name),
        )

    def _rest(
        self,
        what: str,
        since: Census | None = None,
        *,
        until: Callable[[Census], bool] = lambda now: True,
        settled: bool = True,
    ) -> Census:
        """Wait until the cluster is at rest and `until` holds; check what moved `since`."""
        begun_s, why = self._timeline.now_s, ""
        while self._timeline.now_s < begun_s + REST_S_MAX:
            now = self._census()
            if now is None:
                why = "a server does not answer"
            elif not until(now):
                why = "the condition does not hold yet"
            elif not settled:
                return now
            else:
                wrong = now.moved(since)[1] if since is not None else []
                why = now.missing(self._fleet.wanted()) or " ".join(wrong)
                if not why and self._probe.answered_since(begun_s):
                    return now
            self._storm.tick()
        raise PlannedStepFailed(f"{what}: not at rest within {REST_S_MAX} s: {why or 'no answers'}")

    def _pass(self, seconds: float) -> None:
        until_s = self._timeline.now_s + seconds
        while self._timeline.now_s < until_s:
            self._storm.tick()

    def _note(self, what: str, begun_s: float, *, moved: Sequence[ShardId]) -> None:
        now_s = self._timeline.now_s
        silences = self._probe.silences(begun_s, now_s)
        of = [shard for shard in silences if shard in moved] or [*silences]
        slowest_s = max(
            (
                (now_s if each.ended_s is None else each.ended_s) - each.begun_s
                for each in [*self._record.history]
                if begun_s <= (now_s if each.ended_s is None else each.ended_s) <= now_s
            ),
            default=0.0,
        )
        some = tuple(silences[shard] for shard in of)
        found = Figures(what, now_s - begun_s, len(moved), some, slowest_s)
        self.found.append(found)
        self._timeline.log(
            f"{what}: {found.moved} shards moved, at rest after {found.seconds:.2f} s, "
            f"no answer for {max(some):.2f} s, slowest call {slowest_s:.2f} s"
        )


def _fled(now: Census, daemon: DaemonProcess) -> bool:
    """Return whether a daemon is unfit for some groups, and has given up their shards."""
    groups = now.unfit(daemon)
    return bool(groups) and not any(shard.group in groups for shard in now.of(daemon))


STEPS: Mapping[str, Callable[[Planned], None]] = {
    "roll": Planned.roll,
    "add": Planned.add,
    "remove": Planned.remove,
    "move": Planned.move,
    "part": Planned.part,
    "upgrade": Planned.upgrade,
    "downgrade": Planned.downgrade,
}
