"""Health checks of services on simulated clusters: what tasks believe, and what follows from it."""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.live.live_messages import RunChange, RunsChanged
from peloton.actors.job.slice.tally import NOT_READY_YET_TEXT, READY, UNREADY_TEXT
from peloton.actors.job.slice.task_config import Command
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.workflow.messages import ReplaceJob, WorkflowOptions, WorkflowStates
from peloton.actors.task.facts import HealthTold
from peloton.actors.task.messages import End
from peloton.actors.task.run_messages import UNHEALTHY, HealthCheck, LiveRun, TaskHealth, over_text
from peloton.backends.run_news import REPEAT_S
from peloton.backends.simulated_health import ILL, UNREADY
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.faulty_backend import BackendFaults
from peloton.chaos.cluster.world.machines import Fate, machine_report
from peloton.runtime.vocabulary import Key

COUNT = 4
CHECK = HealthCheck("check", initial_s=5.0, interval_s=2.0, max_failures=3)
WELL, NEW = TaskHealth.HEALTHY, TaskHealth.UNKNOWN
NEVER_WELL = 2.0
"""Half of so many runs are all: none is well even at first."""


def cluster_of(seed: int = 0, daemons: int = 1) -> CheckedCluster:
    setup = ClusterSetup(fates=lambda run: Fate(None))
    cluster = CheckedCluster(hosts=3, daemons=daemons, seed=seed, setup=setup)
    cluster.machines.start_s = 1.0
    return cluster


def service(command: str = "first", check: HealthCheck | None = CHECK) -> JobSpec:
    spec = msgspec.structs.replace(job_spec(COUNT), job_type="SERVICE")
    config = msgspec.structs.replace(
        spec.default, command=Command(command), health_check=check is not None, check=check
    )
    return msgspec.structs.replace(spec, default=config)


def health(cluster: CheckedCluster, job: Key) -> list[TaskHealth]:
    return [each.health for each in cluster.instances(job, COUNT)]


def up(cluster: CheckedCluster, job: Key) -> bool:
    return cluster.counts(job).get("RUNNING", 0) == COUNT


def begun(cluster: CheckedCluster) -> Key:
    """A service of which all instances run and are well."""
    job = cluster.create_job(service(), "s")
    cluster.run_until(lambda: health(cluster, job) == [WELL] * COUNT, within_s=60)
    return job


def test_a_run_is_healthy_once_its_first_check_has_passed() -> None:
    cluster = cluster_of()
    job = cluster.create_job(service(), "s")
    cluster.run_until(lambda: up(cluster, job), within_s=60)
    assert health(cluster, job) == [NEW] * COUNT
    found = cluster.instances(job, COUNT)[0]
    assert (found.code, found.because) == (
        "HEALTH",
        "runs, and its health has not been checked yet",
    )
    took_s = cluster.run_until(lambda: health(cluster, job) == [WELL] * COUNT, within_s=60)
    assert took_s <= CHECK.initial_s + 1
    found = cluster.instances(job, COUNT)[0]
    assert (found.code, found.because) == ("", "")
    cluster.run_for(600.0)
    assert cluster.written(HealthTold) <= COUNT, "only changes are told, of a set at a time"


def test_without_a_check_it_is_not_said_to_be_well() -> None:
    cluster = cluster_of()
    job = cluster.create_job(service(check=None), "s")
    cluster.run_until(lambda: up(cluster, job), within_s=60)
    cluster.run_for(60.0)
    assert health(cluster, job) == [TaskHealth.DISABLED] * COUNT
    assert cluster.written(HealthTold) == 0


def test_one_that_fails_too_often_is_ended_as_a_failure_and_runs_again() -> None:
    cluster = cluster_of()
    job = begun(cluster)
    cluster.machines.ill = 1.0
    cluster.ask(job, ReplaceJob(service("other"), options=WorkflowOptions(batch=1)))

    def told() -> bool:
        return TaskHealth.UNHEALTHY in health(cluster, job)

    cluster.run_until(told, within_s=60)
    sick = next(
        each for each in cluster.instances(job, COUNT) if each.health == TaskHealth.UNHEALTHY
    )
    assert sick.state == "RUNNING" and sick.checked is not None and sick.checked[0] == ILL
    assert (sick.code, sick.because) == ("HEALTH", f"runs, but its last health check failed: {ILL}")
    number = sick.instance

    def ended() -> bool:
        return cluster.instances(job, COUNT)[number].failures == 1

    cluster.run_until(ended, within_s=60)
    found = cluster.instances(job, COUNT)[number]
    assert found.outcome is not None and found.health == TaskHealth.DISABLED
    assert (found.outcome.end, found.outcome.reason) == (End.FAILED, UNHEALTHY)
    assert found.outcome.message == over_text(ILL)
    assert found.code == "RETRY", "a failure, after which it waits"
    cluster.machines.ill = 0.0
    cluster.run_until(lambda: health(cluster, job) == [WELL] * COUNT, within_s=900)


def test_an_update_waits_until_what_it_has_changed_is_healthy() -> None:
    cluster = cluster_of()
    job = begun(cluster)
    cluster.ask(job, ReplaceJob(service("other"), options=WorkflowOptions(batch=1)))
    least = COUNT

    def over() -> bool:
        nonlocal least
        least = min(least, health(cluster, job).count(WELL))
        return cluster.job(job).workflows[0].completed_at > 0

    cluster.run_until(over, within_s=900)
    assert least == COUNT - 1, "the next one goes down only once the last one is well"
    assert health(cluster, job) == [WELL] * COUNT


def test_an_update_to_what_is_never_well_fails_and_stops_there() -> None:
    cluster = cluster_of()
    job = begun(cluster)
    cluster.machines.ill = NEVER_WELL
    options = WorkflowOptions(batch=1, max_attempts=1, tolerated=1)
    never = msgspec.structs.replace(CHECK, initial_s=1.0, max_failures=1)
    cluster.ask(job, ReplaceJob(service("other", never), options=options))
    cluster.run_until(lambda: cluster.job(job).workflows[0].completed_at > 0, within_s=900)
    view = cluster.job(job).workflows[0]
    assert view.state == WorkflowStates.FAILED and view.failed == 1
    changed = [each.config_version for each in cluster.instances(job, COUNT)].count(2)
    assert changed <= 1 + view.done, "nobody else was touched"


def test_an_update_gets_past_runs_whose_check_nobody_carries_out() -> None:
    cluster = cluster_of()
    late = msgspec.structs.replace(CHECK, initial_s=36000.0)
    job = cluster.create_job(service(check=late), "s")
    told: dict[str, None] = {}

    def tell() -> None:
        for run, process in cluster.machines.running.items():
            if run in told or run not in cluster.machines.started:
                continue
            told[run] = None
            change = RunChange(run, 1, LiveRun(text="not checked", unchecked=True))
            report = machine_report(process.host, RunsChanged((change,)))
            cluster.world.living()[0].region.tell((report,))

    cluster.run_until(lambda: up(cluster, job), within_s=60)
    assert health(cluster, job) == [NEW] * COUNT
    tell()
    cluster.run_for(1.0)
    for found in cluster.instances(job, COUNT):
        assert found.health == TaskHealth.DISABLED and found.code == ""
        assert found.checked is not None and found.checked[0] == "not checked"
    cluster.ask(job, ReplaceJob(service("other", late), options=WorkflowOptions(batch=1)))
    for _ in range(60):
        cluster.run_for(5.0)
        tell()
    assert cluster.job(job).workflows[0].state == WorkflowStates.SUCCEEDED
    assert len(told) == 2 * COUNT


READINESS = HealthCheck("ready", initial_s=10.0, interval_s=2.0)


def test_an_update_waits_until_what_it_has_changed_is_ready() -> None:
    cluster = cluster_of()
    job = cluster.create_job(service(check=HealthCheck(readiness=READINESS)), "s")
    cluster.run_until(lambda: up(cluster, job), within_s=60)
    found = cluster.instances(job, COUNT)[0]
    assert (found.code, found.because) == (READY, NOT_READY_YET_TEXT)
    assert found.health == TaskHealth.DISABLED

    def ready() -> int:
        return [each.ready for each in cluster.instances(job, COUNT)].count(WELL)

    cluster.run_until(lambda: ready() == COUNT, within_s=60)
    order = ReplaceJob(service("other", HealthCheck(readiness=READINESS)))
    cluster.ask(job, msgspec.structs.replace(order, options=WorkflowOptions(batch=1)))
    least, began = COUNT, cluster.world.now
    while not cluster.job(job).workflows[0].completed_at:
        cluster.run_for(1.0)
        least = min(least, ready())
    assert least == COUNT - 1 and cluster.world.now - began >= COUNT * READINESS.initial_s
    assert cluster.job(job).workflows[0].state == WorkflowStates.SUCCEEDED


def test_one_that_is_not_ready_for_a_while_is_not_ended() -> None:
    cluster = cluster_of()
    cluster.machines.ill = NEVER_WELL  # all are late, or are not ready for a while
    job = cluster.create_job(service(check=HealthCheck(readiness=READINESS)), "s")
    seen: dict[int, None] = {}

    def ready() -> bool:
        found = cluster.instances(job, COUNT)
        for each in found:
            if each.ready == TaskHealth.UNHEALTHY:
                assert each.code == READY and each.because == f"{UNREADY_TEXT}: {UNREADY}"
                seen[each.instance] = None
        return len(seen) == COUNT and all(each.ready == WELL for each in found)

    cluster.run_until(ready, within_s=900)
    assert all((each.run, each.failures) == (1, 0) for each in cluster.instances(job, COUNT))


@pytest.mark.parametrize("seed", range(4))
def test_what_a_task_believes_comes_true_whatever_reports_are_lost(seed: int) -> None:
    cluster = cluster_of(seed)
    job = cluster.create_job(service(), "s")
    cluster.run_until(lambda: up(cluster, job), within_s=60)
    cluster.backend.faults = BackendFaults(
        lose_order=0.3, lose_report=0.5, repeat_report=0.3, report_delay_s=3.0, order_delay_s=1.0
    )
    cluster.run_for(20 * REPEAT_S)
    assert health(cluster, job) == [WELL] * COUNT


def test_checks_go_on_after_a_restart_of_the_daemon() -> None:
    """Which runs are checked, and how, is known to nobody else than the ledgers of the hosts."""
    cluster = cluster_of()
    cluster.machines.ill = NEVER_WELL
    job = cluster.create_job(service(), "s")
    cluster.run_until(lambda: up(cluster, job), within_s=60)
    assert health(cluster, job) == [NEW] * COUNT
    cluster.kill()
    cluster.run_until(
        lambda: all(each.failures for each in cluster.instances(job, COUNT)), within_s=300
    )
    assert {
        each.outcome.reason
        for each in cluster.instances(job, COUNT)
        if each.outcome is not None and not each.runs
    } <= {UNHEALTHY}
