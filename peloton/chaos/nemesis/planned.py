"""What operators do to a cluster under load, one thing after the other, each measured.

Turns words into daemons that are added, taken out, restarted one by one, upgraded and taken back,
into shards that move away from a daemon that cannot serve them, and into a pair that is parted;
and each into figures: how long until the cluster was at rest again, and how long nobody answered
meanwhile. It must not go on before the cluster is at rest, and not take that from a daemon's word:
every shard has the owner that all rank first, every shard that moved has a later epoch, and a
client was answered about each since.
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
"""So long a cluster may need to come to rest; far more than it does on a quiet machine."""
MIXED_S = 6.0
"""So long daemons of two versions work side by side, after each that changed its version."""
PARTED_S = 8.0
COME_AGAIN_MAX = 5
"""One who comes may by chance be first for no shard; then it leaves and comes again."""


class Figures(NamedTuple):
    """Of one step."""

    what: str
    seconds: float  # until the cluster was at rest
    moved: int
    silences: tuple[float, ...]  # of the job shards that moved; of all, where none did
    slowest_s: float  # the slowest call of any client


class PlannedStepFailed(Exception):
    """A step did not come to its end: those after it would say nothing."""


class Planned:
    """The steps, by their words."""

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

    def play(self, words: Sequence[str]) -> None:
        """All of them; after one that failed the others are left out."""
        try:
            self._rest("the beginning")
            for word in words:
                self._timeline.count(word, f"planned: {word}")
                WORDS[word](self)
        except PlannedStepFailed as failed:
            self._timeline.find(f"R15 {failed}")
        finally:
            for link in [link for each in self._fleet.daemons for link in each.links.values()]:
                link.mend()

    def told(self) -> str:
        """The figures, in words."""
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

    # ---- words ----

    def add(self) -> None:
        """A daemon more, which is first for some shards."""
        for _ in range(COME_AGAIN_MAX):
            added = self._fleet.resting()[0]
            if self._come(added, "add"):
                return
            self._timeline.say(f"{added.name} is first for no shard: it comes again")
            self._leave(added, "remove")
        raise PlannedStepFailed(f"nothing moved to a daemon that was added {COME_AGAIN_MAX} times")

    def remove(self) -> None:
        """A daemon less: it does not come back."""
        self._leave(self._busiest(), "remove")

    def roll(self) -> None:
        """All are restarted, one after another."""
        for daemon in self._fleet.wanted():
            self._leave(daemon, "roll")
            self._come(daemon, "return")

    def upgrade(self) -> None:
        """All become of the later version, one after another, and work together meanwhile."""
        self._become(self.later, "upgrade")

    def downgrade(self) -> None:
        """And all become of the earlier one again."""
        self._become(REPOSITORY, "downgrade")

    def move(self) -> None:
        """One that cannot reach the store gives its shards up, and takes them back later."""
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
        """Two do not reach each other, and both reach all else: that is no reason to move."""
        one, other = self._fleet.wanted()[:2]
        before, begun_s = self._rest("a parting"), self._timeline.now_s
        one.door.part(other.pid, silent=True)
        other.door.part(one.pid, silent=True)
        self._pass(PARTED_S)
        one.door.mend()
        other.door.mend()
        moved, _ = self._rest("a parting").moved(before)
        if moved:
            self._timeline.find(f"R3 {moved} moved though only two daemons were parted")
        self._note("part", begun_s, moved=moved)

    # ---- what they are made of ----

    def _become(self, code: Path, what: str) -> None:
        for daemon in self._fleet.wanted():
            self._leave(daemon, what)
            daemon.code = code
            self._come(daemon, "return")
            place = Path(f"/proc/{daemon.pid}/cwd").resolve()
            if place != code.resolve():
                self._timeline.find(f"{daemon.name} should be of {code}, and is of {place}")
            self._pass(MIXED_S)

    def _leave(self, daemon: DaemonProcess, what: str) -> None:
        """It hands over what it owns, and ends well."""
        before, begun_s = self._rest(what), self._timeline.now_s
        daemon.resting = True
        daemon.leave()
        self._timeline.say(f"{what}: SIGTERM to {daemon.name} (pid {daemon.pid})")
        while daemon.alive and self._timeline.now_s < begun_s + LEAVE_S_MAX:
            self._storm.tick()
        if daemon.process is None or daemon.process.poll() != 0:
            raise PlannedStepFailed(f"{daemon.name} did not leave well: {daemon.last_words()}")
        if "warning" in daemon.last_words():
            self._timeline.find(f"{daemon.name} left: {daemon.last_words()}")
        moved, _ = self._rest(what, before).moved(before)
        if moved != before.of(daemon):
            self._timeline.say(f"{daemon.name} had {before.of(daemon)}, and {moved} moved")
        self._note(what, begun_s, moved=moved)

    def _come(self, daemon: DaemonProcess, what: str) -> bool:
        """It starts, and takes what it is first for; whether that is anything."""
        before = self._rest(what, settled=False)
        daemon.start()
        self._timeline.say(f"{what}: {daemon.name} is started (pid {daemon.pid})")
        self._rest(what, until=lambda now: len(now.members) > len(before.members), settled=False)
        begun_s = self._timeline.now_s
        moved, _ = self._rest(what, before).moved(before)
        self._note(what, begun_s, moved=moved)
        return bool(moved)

    def _busiest(self) -> DaemonProcess:
        census = self._rest("a look")
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
        """Wait until the cluster is at rest, and `until` is so. What moved `since` is looked at."""
        begun_s, why = self._timeline.now_s, ""
        while self._timeline.now_s < begun_s + REST_S_MAX:
            now = self._census()
            if now is None:
                why = "a server does not answer"
            elif not until(now):
                why = "what is waited for is not so yet"
            elif not settled:
                return now
            else:
                wrong = now.moved(since)[1] if since is not None else []
                why = now.missing(self._fleet.wanted()) or " ".join(wrong)
                if not why and self._probe.answered_since(begun_s):
                    return now
            self._storm.tick()
        raise PlannedStepFailed(
            f"{what}: not at rest within {REST_S_MAX} s: {why or 'nobody answers'}"
        )

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
        self._timeline.say(
            f"{what}: {found.moved} shards moved, at rest after {found.seconds:.2f} s, "
            f"no answer for {max(some):.2f} s, slowest call {slowest_s:.2f} s"
        )


def _fled(now: Census, daemon: DaemonProcess) -> bool:
    """Whether it is unfit for some groups, and has none of the shards of theirs that it had."""
    groups = now.unfit(daemon)
    return bool(groups) and not any(shard.group in groups for shard in now.of(daemon))


WORDS: Mapping[str, Callable[[Planned], None]] = {
    "roll": Planned.roll,
    "add": Planned.add,
    "remove": Planned.remove,
    "move": Planned.move,
    "part": Planned.part,
    "upgrade": Planned.upgrade,
    "downgrade": Planned.downgrade,
}
