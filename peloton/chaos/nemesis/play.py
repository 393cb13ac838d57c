"""One storm over real daemons from beginning to end: `script/nemesis`.

Turns a length and a seed into a verdict and a last line. It ends after all processes that it
started, and does not report "nothing found" for a storm in which nothing happened.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from peloton.actors.job.messages import job_key
from peloton.chaos.cluster.world.history import Asked
from peloton.chaos.nemesis import operations
from peloton.chaos.nemesis.census import take
from peloton.chaos.nemesis.clients import NemesisClient as Recorded
from peloton.chaos.nemesis.clients import SharedRecord, WantedJob
from peloton.chaos.nemesis.fleet import KEYSPACE, SHARDS, NemesisFleet, NemesisServers
from peloton.chaos.nemesis.journal import JournalWatch
from peloton.chaos.nemesis.planned import Planned
from peloton.chaos.nemesis.probe import Probe
from peloton.chaos.nemesis.process_table import ProcessTable
from peloton.chaos.nemesis.storm import Menu, NemesisStorm
from peloton.chaos.nemesis.takeovers import Takeovers
from peloton.chaos.nemesis.timeline import Timeline
from peloton.chaos.nemesis.verdict import Inspected, verdict_of
from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_session import CassandraSettings, connect
from peloton.runtime.adapters.cassandra_store import CassandraRows
from peloton.runtime.vocabulary import Absent
from peloton.sdk.client import Client
from peloton.sdk.errors import AlreadyExists, PelotonError

CLIENTS = 5
BOOT_S_MAX = 120.0
CALM_S_MAX = 150.0
DATA_CENTRE = "dc1"
JOIN_S_MAX = 90.0
ASK_S = 5.0
RECHECK_S = 2.0
PATIENT_S = 10.0
WHY_CHARS = 300


class NemesisScenario(NamedTuple):
    """The options of one storm."""

    seed: int
    minutes: float
    daemons: int = 3
    session_s: float = 6.0
    menu: Menu = Menu()
    planned: tuple[str, ...] = ()
    """Instead of a storm: steps of operators, one after the other."""
    later: Path | None = None
    """The folder of another version, which daemons may run."""


class NeverReady(Exception):
    """The cluster did not come up, so there was no storm."""


def play(
    scenario: NemesisScenario, folder: Path, *, outside: NemesisServers
) -> tuple[list[str], str]:
    """Play a storm; return the findings, and the last line. The timeline is in `folder`."""
    timeline = Timeline(folder / "timeline.log")
    settings = CassandraSettings(port=outside.cassandra.port, keyspace=KEYSPACE)
    with contextlib.closing(connect(settings, keyspace=False)) as connected:
        cassandra_schema.apply(connected, KEYSPACE, replication={DATA_CENTRE: 1})
    with contextlib.ExitStack() as stack:
        fleet = NemesisFleet(
            folder, outside, daemons=scenario.daemons, session_s=scenario.session_s
        )
        stack.callback(timeline.close)
        stack.callback(fleet.close)
        rows = CassandraRows.open(settings)
        stack.callback(rows.close)
        stage = NemesisRun(scenario, fleet, timeline=timeline, watch=JournalWatch(rows, timeline))
        stack.callback(stage.close)
        return stage.play()


class NemesisRun:
    """The participants of one storm."""

    def __init__(
        self,
        scenario: NemesisScenario,
        fleet: NemesisFleet,
        *,
        timeline: Timeline,
        watch: JournalWatch,
    ) -> None:
        self._scenario = scenario
        self._fleet = fleet
        self._timeline = timeline
        self._watch = watch
        self._record = SharedRecord([each.address for each in fleet.daemons], timeline)
        self._record.open = lambda: [each.address for each in fleet.wanted()]
        self._takeovers = Takeovers(fleet, timeline, sharding=watch.sharding)
        chance = random.Random(f"{scenario.seed} storm")
        self._probe = Probe(fleet, timeline)
        self._table = ProcessTable(fleet.ground.run_of)
        self._storm = NemesisStorm(
            fleet, timeline, chance=chance, takeovers=self._takeovers, menu=scenario.menu
        )
        self._storm.clocks_moved = lambda: setattr(watch, "clocks_differ", True)
        self._takeovers.others = lambda: self._storm.troubled
        self._planned = Planned(
            fleet,
            self._storm,
            record=self._record,
            probe=self._probe,
            census=lambda: take(fleet.outside, watch.epochs),
        )
        if scenario.later is not None:
            self._planned.later = scenario.later
            fleet.codes.append(scenario.later)
        names = [f"c{number}" for number in range(CLIENTS)]
        self._clients = [
            Recorded(name, self._record, chance=random.Random(f"{scenario.seed} {name}"))
            for name in names
        ]
        chance = random.Random(f"{scenario.seed} last")
        self._last = Recorded("last", self._record, chance=chance, patient_s=PATIENT_S)
        self._threads = [threading.Thread(target=c.work, daemon=True) for c in self._clients]

    def play(self) -> tuple[list[str], str]:
        """Begin, storm, calm, judge."""
        threading.excepthook = self._died
        self._begin()
        if self._scenario.planned:
            self._probe.start(self._takeovers.canaries)
            self._planned.play(self._scenario.planned)
            self._probe.stop()
        else:
            self._timeline.log(
                f"storm of {self._scenario.minutes} minutes, seed {self._scenario.seed}"
            )
            self._storm.rage(self._timeline.now_s + self._scenario.minutes * 60)
        self._timeline.log("calm")
        self._storm.calm()
        calm_s = self._timeline.now_s
        self._record.over.set()
        self._tend(lambda: not any(t.is_alive() for t in self._threads), JOIN_S_MAX)
        self._settle()
        self._timeline.log(f"all answered {self._timeline.now_s - calm_s:.1f} s after the calm")
        self._takeovers.stop()
        self._watch.stop()
        self._watch.poll()
        if not self._timeline.counts:
            self._timeline.find("the nemesis did nothing, so nothing is proved")
        history = "".join(f"{operation}\n" for operation in self._record.history)
        self._fleet.keeper.with_name("history.log").write_text(history)
        self._table.stop()
        inspected = verdict_of(
            self._record, self._watch, notes=self._fleet.ground.notes(), seen=self._table.seen
        )
        return self._timeline.findings, self._line(inspected)

    def close(self) -> None:
        """Close everything but the daemons."""
        self._record.over.set()
        for client in (*self._clients, self._last):
            client.close()

    # ---- acts ----

    def _begin(self) -> None:
        for daemon in self._fleet.wanted():
            daemon.start()
        self._make_pool()
        self._watch.start()
        self._table.start()
        self._takeovers.start()
        chance = random.Random(f"{self._scenario.seed} canaries")
        self._record.kept += self._takeovers.choose(chance)
        for job_id in self._record.kept:
            self._last.create(job_id, 1, lasts_s=0.1)
        every = sum(SHARDS.values())
        self._tend(lambda: self._takeovers.owned >= every, BOOT_S_MAX)
        for thread in self._threads:
            thread.start()

    def _make_pool(self) -> None:
        failure, until_s = "", self._timeline.now_s + BOOT_S_MAX
        with Client(self._fleet.daemons[0].address, timeout_s=ASK_S) as peloton:
            while self._timeline.now_s < until_s:
                try:
                    # With a new request key each time: until all hosts are known the pool's limit
                    # may exceed the capacity, and a request key keeps its first answer.
                    peloton.pools.create(operations.POOL, operations.pool_spec())
                    break
                except AlreadyExists:
                    break  # by an earlier try, whose answer was lost
                except PelotonError as error:
                    failure = error.message
                    self._storm.tick()
            else:
                raise NeverReady(f"no pool within {BOOT_S_MAX} s: {failure}")
        self._timeline.log("there is a pool")

    def _settle(self) -> None:
        """Stop jobs that would run long, and poll every job until it is at its goal."""
        until_s = self._timeline.now_s + CALM_S_MAX
        left = [*self._record.wanted_jobs]
        for wanted_job in self._record.active():
            if wanted_job.lasts_s > 10 and wanted_job.job_id not in self._record.stopped:
                self._last.stop(wanted_job.job_id)
        while left and self._timeline.now_s < until_s:
            left = [job_id for job_id in left if not self._is_over(job_id, until_s)]
            if left:
                why = " ".join(self._last.why(left[0]).split())
                self._timeline.log(f"{len(left)} jobs to go; {left[0]}: {why[:WHY_CHARS]}")
                self._tend(lambda: False, RECHECK_S)
        if left:
            self._timeline.find(f"R15 not at their goals {CALM_S_MAX} s after the calm: {left[:5]}")
            return
        for job_id in self._record.wanted_jobs:
            self._last.get(job_id)
        self._last.list_jobs()
        for wanted_job, there in self._counted():
            if there not in (None, wanted_job.instances):
                self._timeline.find(
                    f"R1 {wanted_job.job_id} has {there} of {wanted_job.instances} instances"
                )

    def _counted(self) -> Iterator[tuple[WantedJob, int | None]]:
        """Yield how many instances there are of each job whose id was used only once."""
        created = Counter(each.job for each in self._record.history if each.what is Asked.CREATE)
        for wanted_job in self._record.wanted_jobs.values():
            if created[job_key(wanted_job.job_id)] == 1:
                yield wanted_job, self._last.instances(wanted_job.job_id)

    def _is_over(self, job_id: str, until_s: float) -> bool:
        """Return whether a job is at its goal; it is not polled any more once the time is over."""
        if self._timeline.now_s >= until_s:
            return False
        answer = self._last.get(job_id).answer
        return isinstance(answer, Absent) or operations.has_ended(answer)

    def _tend(self, done: Callable[[], bool], within_s: float) -> None:
        """Keep the daemons running until the condition holds or the time is over."""
        until_s = self._timeline.now_s + within_s
        while not done() and self._timeline.now_s < until_s:
            self._storm.tick()

    def _died(self, args: threading.ExceptHookArgs) -> None:
        """Record a finding: a thread that died unnoticed would only make the storm milder."""
        name = args.thread.name if args.thread is not None else "?"
        self._timeline.find(
            f"{name} of the nemesis died: {args.exc_type.__name__} {args.exc_value}"
        )

    # ---- the last line ----

    def _line(self, inspected: Inspected) -> str:
        history, findings = self._record.history, self._timeline.findings
        done = ", ".join(f"{count} {what}" for what, count in self._timeline.counts.items())
        unknown = sum(not each.known for each in history)
        lost = sum("R1 " in text for text in findings)
        figures = self._planned.summary() or f"takeover {self._takeovers.summary()}"
        kinds = [f"{self._watch.foreign()} of a later version"] if self._scenario.later else []
        if self._watch.clocks_differ:
            kinds.append(f"{self._watch.of_moved_clocks()} by moved clocks")
        later = f" ({', '.join(kinds)})" if kinds else ""
        return (
            f"nemesis: {done or 'nothing done'}; {len(history)} operations ({unknown} unknown), "
            f"{inspected.jobs} jobs, {inspected.runs} runs, {inspected.frames} frames{later}; "
            f"{lost} lost, {len(findings)} findings; {figures}"
        )
