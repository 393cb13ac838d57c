"""Ends of jobs that are owed to the notifier, on simulated clusters: none is forgotten.

The notifier here is a list. What counts is what was told.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, StartInstances, StopJob
from peloton.actors.job.notice_messages import NOTIFIER, NoticeHandled, PostNotice
from peloton.actors.job.spec import JobSpec, Notify
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, Fate
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.daemon import SimulatedDaemon

URL = "https://hook/"
SHORT = Fate(2.0)


class Listed:
    """A notifier that writes down what it is to tell, and answers if it may."""

    own_thread = False
    wake_at: float | None = None

    def __init__(self, cluster: TellingCluster) -> None:
        self._cluster = cluster

    def receive(self, envelopes: list[Envelope], now: float) -> list[Envelope]:
        answers = []
        for envelope in envelopes:
            order = envelope.message
            assert isinstance(order, PostNotice)
            self._cluster.told.append(order)
            self._cluster.listener.told.append(order)  # for the checks
            if self._cluster.answers:
                handled = NoticeHandled(order.notice.number, True)
                answers.append(Envelope(order.job, handled, sender=NOTIFIER))
        return answers

    def reset(self) -> None: ...

    def rename(self, member: str, *, number: int, count: int) -> None: ...


class TellingCluster(CheckedCluster):
    """A cluster whose daemons have such a notifier."""

    def __init__(self, fate: Fate = SHORT) -> None:
        self.told: list[PostNotice] = []
        self.answers = True
        setup: dict[str, Any] = {
            "fates": lambda run: fate,
        }
        super().__init__(hosts=3, setup=ClusterSetup(**setup))

    def furnish(self, daemon: SimulatedDaemon) -> None:
        super().furnish(daemon)
        daemon.region.register_service(NOTIFIER, Listed(self), outward=True)

    @property
    def ends(self) -> list[tuple[int, JobStates]]:
        return [(order.notice.number, order.notice.state) for order in self.told]


def wanted(*states: str, instances: int = 2) -> JobSpec:
    return msgspec.structs.replace(job_spec(instances), notify=Notify(URL, states))


@pytest.mark.parametrize(
    ("fate", "end"), [(SHORT, JobStates.SUCCEEDED), (Fate(2.0, FAILURE), JobStates.FAILED)]
)
def test_an_end_is_told_once(fate: Fate, end: JobStates) -> None:
    cluster = TellingCluster(fate)
    job = cluster.create_job(wanted())
    cluster.run_until(cluster.over)
    cluster.run_for(30.0)
    assert cluster.ends == [(1, end)]
    (order,) = cluster.told
    assert (order.job, order.url, order.instances) == (job, URL, 2)
    assert order.notice.counts == ((end.name, 2),)
    summary = cluster.job(job).summary
    assert order.notice.completed_at == summary.completed_at
    cluster.check_quiet()


def test_other_ends_are_not_told() -> None:
    cluster = TellingCluster()
    cluster.create_job(wanted("FAILED", "KILLED"))
    cluster.run_until(cluster.over)
    cluster.run_for(30.0)
    assert cluster.ends == []
    cluster.check_quiet()


def test_a_killed_job_is_told() -> None:
    cluster = TellingCluster(Fate(None))
    job = cluster.create_job(wanted("KILLED"))
    cluster.run_for(5.0)
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    assert cluster.ends == [(1, JobStates.KILLED)]


def test_an_end_that_is_not_answered_is_told_again_also_after_a_crash() -> None:
    cluster = TellingCluster()
    cluster.answers = False
    job = cluster.create_job(wanted())
    cluster.run_until(lambda: bool(cluster.told))
    first = len(cluster.told)
    cluster.crash_shard(job)
    cluster.run_until(lambda: len(cluster.told) > first)
    cluster.answers = True
    cluster.run_until(cluster.over)
    cluster.run_for(30.0)
    told = len(cluster.told)
    cluster.crash_shard(job)
    cluster.run_for(60.0)
    assert len(cluster.told) == told, "its answer is journaled"
    assert {*cluster.ends} == {(1, JobStates.SUCCEEDED)}


def test_each_end_of_a_job_that_is_started_again_is_told() -> None:
    cluster = TellingCluster(Fate(None))
    job = cluster.create_job(wanted())
    for number in (1, 2):
        cluster.run_for(5.0)
        cluster.ask(job, StopJob())
        cluster.run_until(lambda number=number: len(cluster.ends) == number)
        cluster.run_for(5.0)
        cluster.ask(job, StartInstances())
    assert cluster.ends == [(1, JobStates.KILLED), (2, JobStates.KILLED)]


def test_a_deleted_job_goes_once_its_end_is_told() -> None:
    cluster = TellingCluster()
    cluster.answers = False
    job = cluster.create_job(wanted())
    cluster.run_until(lambda: bool(cluster.told))
    cluster.ask(job, DeleteJob())
    cluster.run_for(60.0)
    assert job in cluster.cells("job")
    cluster.answers = True
    cluster.run_until(lambda: job not in cluster.cells("job"))


def test_a_job_deleted_before_its_end_tells_nothing() -> None:
    cluster = TellingCluster(Fate(None))
    job = cluster.create_job(wanted())
    cluster.run_for(5.0)
    cluster.ask(job, DeleteJob(force=True))
    cluster.run_until(lambda: job not in cluster.cells("job"))
    assert cluster.ends == []
