"""The cluster in the test's process: hosts, time, scripts, crashes, and calls of a real client."""

from __future__ import annotations

import pytest

from peloton.sdk.errors import BadSpec, NotFound, ServiceUnavailable, TimedOut
from peloton.testing.assertions import (
    assert_counts,
    assert_runs_on,
    assert_state,
    assert_waits_because,
)
from peloton.testing.behaviour import Attempt, Behaviour, calls, dies, fails, runs, succeeds
from peloton.testing.cluster import Cluster
from peloton.testing.served_world import ClusterShape
from peloton.testing.virtual_time import WaitsForEver


def test_two_hundred_tasks_run_and_end(cluster: Cluster) -> None:
    cluster.add_hosts(10, cpu=8)
    job = cluster.submit(instances=200, cpu=0.25, does=succeeds(after=30))
    cluster.advance(10)
    assert_state(job, "RUNNING")
    assert_counts(job, RUNNING=200)
    took = cluster.run_until(lambda: job.has_ended)
    assert 19 < took < 30
    assert_counts(job, SUCCEEDED=200)


def test_time_passes_only_as_it_is_told(cluster: Cluster) -> None:
    begun = cluster.now
    cluster.add_host()
    cluster.submit()
    assert cluster.now == begun
    cluster.advance(60)
    assert cluster.now == begun + 60


def test_a_client_waits_in_virtual_time(cluster: Cluster) -> None:
    cluster.add_host()
    job, begun = cluster.submit(does=succeeds(after=3600)), cluster.now
    ended = cluster.client.ops.wait(job.id)
    assert (ended.state, ended.done) == ("SUCCEEDED", True)
    assert 3600 <= cluster.now - begun < 3700
    late = cluster.client.ops.wait(cluster.submit(does=runs()).id, timeout_s=100)
    assert not late.done


def test_a_stream_is_read_as_it_comes(cluster: Cluster) -> None:
    cluster.add_host()
    job = cluster.submit(does=succeeds(after=5))
    facts = []
    for message in cluster.client.ops.watch(job=job.id):
        facts += [fact for event in message.events for fact in event.facts]
        if any("TaskStarted" in fact for fact in facts):
            break
    assert_state(job, "RUNNING")


def test_a_call_that_nothing_ends_is_an_error_of_the_test(cluster: Cluster) -> None:
    cluster.add_host()
    job = cluster.submit(does=runs())
    with pytest.raises(WaitsForEver, match="21600 virtual seconds"):
        cluster.client.ops.wait(job.id)


def test_a_condition_that_never_holds_says_what_waits(cluster: Cluster) -> None:
    cluster.add_host(cpu=1)
    job = cluster.submit(cpu=2)
    with pytest.raises(AssertionError, match=r"within 30 virtual seconds(.|\n)*2 cpu"):
        cluster.run_until(lambda: job.has_ended, within_s=30)


def test_tasks_do_what_they_are_scripted_to(cluster: Cluster) -> None:
    cluster.add_host()
    often = cluster.submit(retries=2, does=[fails(3), dies("SIGKILL"), succeeds()])
    once = cluster.submit(does=fails(7))

    def by_instance(attempt: Attempt) -> Behaviour:
        return runs() if attempt.instance else succeeds()

    each = cluster.submit(instances=2, does=by_instance)
    cluster.advance(30)
    assert_state(often, "SUCCEEDED")
    task = cluster.client.tasks.get(often.id, 0)
    assert [one.runtime.state for one in task.results][1:] or task.result.runtime.failureCount == 2
    assert_state(once, "FAILED")
    assert_waits_because(once, "status 7")
    assert_counts(each, SUCCEEDED=1, RUNNING=1)


def test_a_script_by_name_is_for_jobs_of_raw_calls(cluster: Cluster) -> None:
    cluster.add_host()
    cluster.script("mine", fails(9))
    spec = {
        "name": "mine",
        "instanceCount": 1,
        "defaultConfig": {"resource": {"cpuLimit": 1}, "command": {"value": "x", "shell": True}},
    }
    made = cluster.client.jobs.create("/default", spec)
    assert cluster.client.ops.wait(made.jobId.value).exit_code == 9


def test_a_task_may_call_a_function_that_calls_the_cluster(cluster: Cluster) -> None:
    cluster.add_host()
    seen: list[tuple[Attempt, str]] = []

    def work(attempt: Attempt) -> None:
        seen.append((attempt, cluster.client.jobs.get(attempt.job).jobInfo.config.name))

    job = cluster.submit(instances=2, name="called", does=calls(work, after=2))
    job.until("SUCCEEDED")
    assert [name for _, name in seen] == ["called", "called"]
    assert {attempt.instance for attempt, _ in seen} == {0, 1}


def test_a_function_that_raises_fails_its_task(cluster: Cluster) -> None:
    cluster.add_host()

    def work(attempt: Attempt) -> None:
        raise LookupError(f"nothing for {attempt.instance}")

    job = cluster.submit(does=calls(work))
    job.until("FAILED")
    assert_waits_because(job, "LookupError: nothing for 0")


def test_a_script_that_raises_is_an_error_of_the_test(cluster: Cluster) -> None:
    cluster.add_host()
    cluster.submit(does=[])
    with pytest.raises(TypeError, match="has to get a Behaviour"):
        cluster.advance(10)


def test_a_lost_host_is_found_out_as_a_real_one_is(cluster: Cluster) -> None:
    first = cluster.add_host(cpu=2)
    job = cluster.submit(cpu=2, retries=1, does=runs())
    job.until("RUNNING")
    assert_runs_on(job, first)
    second = cluster.add_host(cpu=2)
    cluster.lose_host(first)
    cluster.advance(30)
    assert_runs_on(job, first)
    cluster.run_until(lambda: job.host_of(0) == second, within_s=120)
    cluster.run_until(lambda: job.state == "RUNNING")
    cluster.return_host(first)
    cluster.advance(30)
    states = {host.name: host.state for host in cluster.client.ops.hosts().hosts}
    assert states == {first: "UP", second: "UP"}


@pytest.mark.peloton_cluster(daemons=1)
def test_a_crash_loses_nothing_that_was_answered(cluster: Cluster) -> None:
    cluster.add_host()
    job = cluster.submit(instances=3, does=succeeds(after=120))
    job.until("RUNNING")
    cluster.crash()
    with pytest.raises(ServiceUnavailable):
        _ = job.state
    cluster.advance(60)
    cluster.restart()
    assert_state(job, "RUNNING")
    cluster.run_until(lambda: job.has_ended)
    assert_counts(job, SUCCEEDED=3)
    assert [
        one.runtime.failureCount for one in cluster.client.tasks.list(job.id).result.value.values()
    ] == [0, 0, 0]


@pytest.mark.peloton_cluster(daemons=3)
def test_of_several_daemons_the_others_take_over(cluster: Cluster) -> None:
    cluster.add_hosts(2)
    job = cluster.submit(instances=4, does=succeeds(after=90))
    cluster.crash("d1")
    cluster.run_until(lambda: job.has_ended)
    assert_counts(job, SUCCEEDED=4)


def test_a_call_under_way_ends_with_its_daemon(cluster: Cluster) -> None:
    cluster.add_host()

    def work(attempt: Attempt) -> None:
        cluster.crash()

    job = cluster.submit(does=calls(work))
    with pytest.raises(ServiceUnavailable):
        cluster.client.ops.wait(job.id, timeout_s=30)
        raise ServiceUnavailable("it was not answered")


def test_a_deadline_is_virtual(cluster: Cluster) -> None:
    cluster.add_host()
    job, begun = cluster.submit(does=runs()), cluster.now
    wire = cluster.client.ops._wire
    from peloton.ops.v1 import ops_pb2
    from peloton.sdk.ops import method

    request = ops_pb2.WaitJobRequest(job_id=job.id, timeout_s=100)
    with pytest.raises(TimedOut):
        wire.call(method("WaitJob"), request, timeout_s=7).send(None)
    assert cluster.now == pytest.approx(begun + 7)


def history(cluster: Cluster) -> str:
    cluster.add_hosts(3)
    jobs = [cluster.submit(instances=5, does=succeeds(after=9)) for _ in range(3)]
    cluster.lose_host("host-2")
    cluster.run_until(lambda: all(job.has_ended for job in jobs))
    return cluster.inside.world.stepper.trace()


def test_a_seed_gives_the_same_history() -> None:
    found = []
    for seed in (1, 1, 2):
        with Cluster(ClusterShape(seed=seed)) as cluster:
            found.append(history(cluster))
    assert found[0] == found[1] != found[2]


BAD = [
    (lambda c: c.add_host(cpu=-1), BadSpec, "cpu: must be a number ≥ 0, got -1"),
    (lambda c: c.add_host(cpus=1), BadSpec, "cpus: no such word"),
    (lambda c: c.add_host(gpu=0.5), BadSpec, "gpu: must be a whole number"),
    (lambda c: (c.add_host("a"), c.add_host("a")), BadSpec, "name: there is a host 'a' already"),
    (lambda c: c.lose_host("b"), NotFound, "no host 'b'"),
    (lambda c: c.advance(-1), ValueError, "seconds: must be"),
    (lambda c: c.crash("d9"), ValueError, "daemon: there is d1, got 'd9'"),
    (lambda c: c.submit(cpus=1), TypeError, "a job has no cpus"),
    (lambda c: c.submit({}, cpu=1), TypeError, "either a spec or a shape"),
    (lambda c: fails(0), ValueError, "code: must not be 0"),
    (lambda c: succeeds(after=-1), ValueError, "after: must be ≥ 0"),
]


@pytest.mark.parametrize(("do", "kind", "text"), BAD, ids=lambda one: "")
def test_bad_input_is_refused_at_once(cluster: Cluster, do, kind, text) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=text):
        do(cluster)
