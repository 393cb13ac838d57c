"""Storms over machines that exist once, whose updates fare as those of a Mesos cluster do.

Each fault alone over a small cluster, and what the link of these clusters does to single updates.
Drawn storms with many of them are in `test_fleet.py`; `script/planted` tells what they find.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import HostStates
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.storm import ClusterScenario, StormRun, draw, play, smaller
from peloton.chaos.cluster.work import agents
from peloton.chaos.cluster.world.cluster import NEED, ClusterSetup, SimulatedCluster, job_spec
from peloton.chaos.cluster.world.machines import (
    FAILURE,
    RESCINDED,
    SUCCESS,
    Fate,
    Machines,
    machine_report,
)
from peloton.chaos.cluster.world.subscription import MACHINES_ENGINE
from peloton.chaos.cluster.world.updates import AGAIN_S, HELD_S_MAX, UpdateFaults, Updates
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import LastingFault
from peloton.runtime.vocabulary import key

HOST = key("host", "h0")
RUN, OTHER = f"{'j':0>36}-0-1", f"{'j':0>36}-1-1"
OUTSIDE = ClusterSetup(outside=True)


def scenario_of(fault: str) -> ClusterScenario:
    """A few jobs over a cluster that is struck by this alone."""
    row = next(each for each in agents.FAULTS if each.name == fault)
    creations = [StormAction(at_s=at, name="create", count=4) for at in (0.5, 3.0, 6.0, 9.0)]
    stops = [StormAction(at_s=1 + 3 * job, name="stop", which=job) for job in (1, 2, 3)]
    cuts = [StormAction(at_s=at, name="host cut", which=at, for_s=1.0) for at in (4, 5, 7, 8)]
    strokes = [] if isinstance(row, LastingFault) else [StormAction(at_s=5, name=fault, for_s=14)]
    return ClusterScenario(
        seed=11,
        daemons=2,
        hosts=2,
        sizes={"jobmgr": 1, "resmgr": 1, "hostmgr": 1},
        outside=True,
        faults={} if strokes else {fault: 1.0},
        actions=tuple(sorted((*creations, *stops, *cuts, *strokes), key=lambda each: each.at_s)),
        storm_s=15.0,
        duration_s=6.0,
    )


@pytest.mark.parametrize("fault", [each.name for each in agents.FAULTS])
def test_each_fault_strikes_and_every_goal_is_reached(fault: str) -> None:
    played = play(scenario_of(fault))
    assert played.struck[fault]


def test_a_share_of_all_seeds_has_them_and_the_others_none() -> None:
    names = {each.name for each in agents.FAULTS}
    scenarios = [draw(seed) for seed in range(200)]
    drawn = [scenario for scenario in scenarios if scenario.outside]
    assert 10 < len(drawn) < 50
    for scenario in scenarios:
        here = names.intersection((*scenario.faults, *(action.name for action in scenario.actions)))
        assert scenario.outside or not here
    with_them = [draw(seed, outside=True) for seed in range(20)]
    assert all(scenario.outside for scenario in with_them)


def test_shrinking_tries_machines_of_each_daemon_first() -> None:
    scenario = scenario_of("updates lost")
    assert [each.outside for each in smaller(scenario)].count(False) == 1


# ---- single updates ----


class Told:
    """The link of one machine, and what its host is told."""

    def __init__(self, **faults: float) -> None:
        self.world = SimulatedCluster(seed=1, daemons=1, hosts=1).world
        self.machines = Machines(lambda run: Fate(None))
        self.heard: list[object] = []
        self.updates = Updates(self.world, self.machines, deliver=self._hear)
        self.updates.faults = UpdateFaults(**faults)

    def _hear(self, report: Envelope) -> None:
        self.heard.append(report.message)

    def tell(self, message: object) -> None:
        self.updates.pass_on(machine_report(HOST, message))  # type: ignore[arg-type]

    def wait(self, seconds: float) -> list[object]:
        """What is told within that time."""
        self.heard.clear()
        self.world.run_for(seconds)
        return [*self.heard]


def started(*runs: str) -> m.RunsStarted:
    return m.RunsStarted(runs)


def ended(run: str) -> m.RunsEnded:
    return m.RunsEnded((m.RunEnd(run, SUCCESS),))


def test_without_a_fault_reports_pass_as_they_are() -> None:
    told = Told()
    told.tell(started(RUN, OTHER))
    assert told.heard == [started(RUN, OTHER)], "at once, and whole"


def test_an_update_that_is_lost_comes_later_and_by_itself() -> None:
    told = Told(lost=1.0)
    told.tell(started(RUN, OTHER))
    assert told.wait(AGAIN_S / 2) == []
    assert told.wait(AGAIN_S) == [started(RUN), started(OTHER)]


def test_an_end_that_is_noted_meanwhile_is_not_told_again() -> None:
    told = Told(lost=1.0)
    told.machines.ended[RUN] = HOST, m.RunEnd(RUN, SUCCESS)
    told.tell(ended(RUN))
    told.tell(ended(OTHER))
    assert told.wait(2 * AGAIN_S) == [ended(RUN)]


def test_a_start_comes_behind_its_end_or_at_last_without_it() -> None:
    told = Told(reversed=1.0)
    told.tell(started(RUN, OTHER))
    assert told.wait(1.0) == []
    told.tell(ended(RUN))
    assert told.wait(1.0) == [ended(RUN), started(RUN)]
    assert told.wait(HELD_S_MAX) == [started(OTHER)]


def test_an_update_comes_again_and_with_it_an_old_one() -> None:
    told = Told(repeated=1.0)
    told.tell(ended(RUN))
    assert told.wait(60.0) == [ended(RUN), ended(RUN)]
    told.updates.faults = UpdateFaults(stale=1.0)
    told.tell(started(OTHER))
    assert told.wait(1.0) == [started(OTHER), ended(RUN)]


def test_an_older_list_comes_behind_a_newer_one() -> None:
    told = Told(lists_old=1.0)
    one, two = m.RunsListed((RUN,), (), 1.0), m.RunsListed((OTHER,), (), 2.0)
    told.tell(one)
    told.tell(two)
    assert told.wait(60.0) == [one, two, one]


def test_orders_lose_single_launches_and_kills() -> None:
    told = Told(dropped=1.0, unheard=1.0)
    spec = RunSpec(NEED, "x")
    launch = m.StartRuns(HOST, 1, (m.StartRun(RUN, spec),))
    assert told.updates.obeyed(launch) == (m.StartRuns(HOST, 1, ()), [])
    assert told.updates.obeyed(m.StopRuns(HOST, 1, (RUN,), 1.0)) == (
        m.StopRuns(HOST, 1, (), 1.0),
        [],
    )
    told.machines.started[RUN] = HOST
    assert told.updates.obeyed(launch) == (launch, []), "of what is there already it is a repeat"


def test_a_launch_that_was_rescinded_never_starts() -> None:
    told = Told(rescinded=1.0)
    launch = m.StartRuns(HOST, 1, (m.StartRun(RUN, RunSpec(NEED, "x")),))
    left, (report,) = told.updates.obeyed(launch)
    assert isinstance(left, m.StartRuns) and not left.runs
    assert [end.outcome for end in report.message.ends] == [RESCINDED]  # type: ignore[attr-defined]
    told.machines.receive(launch, 1.0)
    assert not told.machines.running, "a late repeat of the order starts nothing"


# ---- who is subscribed ----


def test_what_ended_while_nobody_was_subscribed_is_told_to_the_next() -> None:
    """The owner dies; the subscription of the next one is another, and no run is started twice."""
    cluster = CheckedCluster(
        daemons=2, hosts=2, setup=OUTSIDE._replace(fates=lambda run: Fate(20.0))
    )
    assert cluster.master is not None
    job = cluster.create_job(job_spec(4))
    cluster.run_until(lambda: len(cluster.machines.running) == 4)
    before = cluster.master.subscribed
    shard = cluster.world.sharding.shard_of(MACHINES_ENGINE)
    owner = next(each for each in cluster.world.living() if shard in each.shards())
    cluster.world.kill(owner)
    assert cluster.master.who() is None
    cluster.run_until(cluster.over, within_s=200)
    assert cluster.master.subscribed > before
    assert len(cluster.machines.results) == 4, "none was started again"
    assert cluster.job(job).summary.state == JobStates.SUCCEEDED
    cluster.run_for(40)
    cluster.check_quiet()


def test_an_overtaken_link_gives_no_orders() -> None:
    run = StormRun(scenario_of(agents.OVERTAKEN))
    played = run.play()
    master = run.cluster.master
    assert played.struck[agents.OVERTAKEN] and master is not None and master.subscribed > 1
    assert not run.cluster.machines.running


def test_runs_of_a_machine_that_began_anew_are_lost_and_placed_anew() -> None:
    cluster = CheckedCluster(hosts=1, setup=OUTSIDE._replace(fates=lambda run: Fate(5.0)))
    job = cluster.create_job(job_spec(2))
    cluster.run_until(lambda: len(cluster.machines.running) == 2)
    cluster.run_for(1.0)
    cluster.backend.renew(cluster.hosts[0])
    assert not cluster.machines.running
    cluster.run_until(cluster.over, within_s=400)
    assert cluster.counts(job) == {"SUCCEEDED": 2}
    assert len(cluster.machines.results) == 4


def test_a_run_begun_once_more_has_two_true_ends() -> None:
    """The end of the first time is under way when its machine begins anew, and counts."""
    fates = iter((Fate(1.0, SUCCESS), Fate(3.0, FAILURE)))
    cluster = CheckedCluster(hosts=1, setup=OUTSIDE._replace(fates=lambda run: next(fates)))
    cluster.backend.updates.faults = UpdateFaults(lost=1.0)
    job = cluster.create_job(job_spec(1))
    cluster.run_until(lambda: bool(cluster.machines.ended), within_s=AGAIN_S)
    cluster.backend.renew(cluster.hosts[0])
    cluster.run_until(lambda: bool(cluster.machines.running), within_s=AGAIN_S)
    cluster.run_until(lambda: not cluster.machines.running and cluster.over(), within_s=400)
    assert cluster.counts(job) == {"SUCCEEDED": 1}
    assert cluster.machines.first_results and SUCCESS not in cluster.machines.results.values()
    cluster.check_quiet()


def test_a_list_from_before_a_host_was_lost_does_not_bring_it_back() -> None:
    """What was given up may run there still, and is ended before anything else starts there."""
    setup = ClusterSetup(fates=lambda run: Fate(200.0), unreachable_timeout_s=10.0)
    cluster = CheckedCluster(hosts=2, setup=setup)
    host = cluster.hosts[0]
    old = machine_report(host, m.RunsListed((), (), cluster.world.now))
    cluster.run_for(1.0)
    cluster.create_job(job_spec(8))
    cluster.run_until(lambda: len(cluster.machines.running) == 8)
    cluster.run_for(1.0)
    cluster.cut(host)
    cluster.run_for(30.0)
    assert cluster.world.cells("host")[host].state == HostStates.LOST
    cluster.mend(host)
    cluster.backend.updates.pass_on(old)
    cluster.backend.updates.faults = UpdateFaults(lists_late_s=20.0)
    cluster.run_for(0.01)
    assert cluster.world.cells("host")[host].state == HostStates.RECONCILING
    cluster.run_for(60.0)
    assert cluster.world.cells("host")[host].state == HostStates.UP
    assert len(cluster.machines.running) == 8, "none runs twice"
