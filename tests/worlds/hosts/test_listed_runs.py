"""Machines that list their runs as real backends do, and what hosts make of it."""

from __future__ import annotations

from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import crowd_key
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.nemeses import Nemesis
from peloton.chaos.cluster.world.cluster import NEED, ClusterSetup, SimulatedCluster, job_spec
from peloton.chaos.cluster.world.machines import MACHINE_BACKEND, Fate, Machines
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, key, kind_of

HOST = key("host", "h0")
JOB = "j".rjust(36, "0")
CROWD = crowd_key(JOB, 0)
SLOW = ClusterSetup(fates=lambda run: Fate(20.0))


def test_hosts_of_a_recovered_shard_compare() -> None:
    cluster = CheckedCluster(daemons=2, hosts=2, setup=SLOW)
    cluster.create_job(job_spec(6))
    cluster.run_until(lambda: len(cluster.machines.running) == 6)
    cluster.run_for(2.0)
    for host in cluster.hosts:
        cluster.crash_shard(host)
    for host in cluster.hosts:
        cluster.cut(host)
        cluster.mend(host)
    cluster.run_until(cluster.over)
    assert cluster.machines.listed_sets
    assert len(cluster.machines.results) == 6, "none was started again"
    cluster.run_for(40)
    cluster.check_quiet()


# ---- machines ----


def machines(*members: int) -> Machines:
    """One machine that runs these members of a crowd."""
    found = Machines(lambda run: Fate(None))
    spec = RunSpec(NEED, "x")
    runs = tuple(m.StartRun(f"{JOB}-{member}-1", spec) for member in members)
    found.receive(m.StartRuns(HOST, 1, runs), 0.0)
    return found


def listed(found: Machines, *sets: KnownSet) -> m.RunsListed:
    """What the machine lists when it is asked for these."""
    (report,) = found.receive(m.ListRuns(HOST, 1, 5.0, sets), 1.0)
    assert report.sender == MACHINE_BACKEND and isinstance(report.message, m.RunsListed)
    return report.message


def test_a_machine_lists_as_sets_what_it_was_asked_for_as_sets() -> None:
    found = machines(0, 1, 2)
    asked = KnownSet(CROWD, 1, Bits.of(1, 2, 3), 0.0)
    answer = listed(found, asked)
    assert answer.sets == (m.RunningSet(CROWD, 1, Bits.of(1, 2)),), "3 does not run"
    assert answer.running == (f"{JOB}-0-1",), "the host did not know that it runs"
    assert answer.asked_at == 5.0
    other_run = KnownSet(CROWD, 2, Bits.of(1), 0.0)
    assert not listed(found, other_run).sets


def test_a_machine_that_is_asked_by_name_lists_names() -> None:
    answer = listed(machines(0, 1))
    assert answer.running == (f"{JOB}-0-1", f"{JOB}-1-1") and not answer.sets


class Senders(Nemesis):
    """Collects who sends to hosts without being a shard."""

    def __init__(self) -> None:
        self.found: dict[str, set[Any]] = {}

    def filtered(self, daemon: Any, envelopes: list[Envelope], *, stamp: Any) -> list[Envelope]:
        for each in envelopes:
            if stamp is None and kind_of(each.to) == "host":
                name = type(each.message).__name__
                self.found.setdefault(name, set()).add(each.sender)
        return envelopes


def test_every_report_names_its_backend() -> None:
    """Hosts ignore reports of another backend than their own (`host/configuring.py`)."""
    senders = Senders()
    cluster = SimulatedCluster(seed=3, daemons=1, hosts=2, setup=SLOW)
    senders.attach(cluster)
    cluster.world.run_until(cluster.ready, within_s=60)
    cluster.create(4)
    cluster.world.run_for(10)
    cluster.backend.faults = cluster.backend.faults._replace(foreign_run=1.0)
    cluster.backend.cut(HOST)
    cluster.backend.mend(HOST)
    cluster.world.run_for(2)
    cluster.backend.calm()
    cluster.world.run_until(cluster.over, within_s=600)
    assert cluster.backend.foreign, "lists were falsified"
    reports = ("BackendDown", "BackendUp", "RunsEnded", "RunsListed", "RunsStarted")
    assert {name: senders.found[name] for name in reports} == {
        name: {MACHINE_BACKEND} for name in reports
    }


def test_a_falsified_list_keeps_the_sets_of_the_true_one() -> None:
    setup = ClusterSetup(fates=lambda run: Fate(None), host_capacity=Resources(*(10**9,) * 4))
    cluster = SimulatedCluster(seed=1, daemons=1, hosts=1, setup=setup)
    link = cluster.backend
    link.faults = link.faults._replace(foreign_run=1.0)
    known = m.RunningSet(CROWD, 1, Bits.of(0))
    true = Envelope(HOST, m.RunsListed(("a",), (), 1.0, sets=(known,)), sender=MACHINE_BACKEND)
    first, second = (link._falsified(true) for _ in range(2))
    assert first.sender == second.sender == MACHINE_BACKEND
    assert first.message.running == ("a",) and first.message.sets[0] == known
    assert len(first.message.sets) == 2, "the foreign run is a set"
    assert second.message.sets == (known,) and len(second.message.running) == 2
