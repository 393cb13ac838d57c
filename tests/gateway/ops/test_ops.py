"""Ops: why, wait, story, and what was set aside."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.ops.ops import Ops, signal_code
from peloton.gateway.server.calls import CallContext
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.core.entities.records import MessageDeadLettered, Quarantined
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.vocabulary import Bits, Key
from tests.gateway.fleet_fixture import (
    HOSTS,
    WAIT_S_MAX,
    Deployment,
    default_config,
    named,
    pool_config,
    running,
)


def stop(deployment: Deployment, job_id: str) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def test_why_a_pool_is_waited_for(deployment: Deployment) -> None:
    narrow = deployment.make_pool("narrow", cpu=0.2)
    request = deployment.request(5, defaultConfig=default_config(seconds=60))
    request.config.respoolID.value = narrow
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 2)

    def held_up() -> Any:
        reasons = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        return reasons if [one.code for one in reasons] == ["pool-limit"] else None

    (reason,) = deployment.until(held_up)
    assert (reason.code, reason.instances, reason.position) == ("pool-limit", 3, 1)
    assert reason.text.startswith("3 instances: ")
    assert "limit of pool /narrow reached: cpu" in reason.text
    only = deployment.ops.Why(ops.WhyRequest(job_id=job_id, instance=4)).reasons
    assert [(one.instance, one.instances, one.position) for one in only] == [(4, 1, 3)]
    waiting = deployment.task(job_id, 4).result.runtime
    assert (waiting.state, waiting.reason) == (task.PENDING, "pool-limit")
    assert "limit of pool /narrow reached" in waiting.message
    running = next(
        info.instanceId
        for info in deployment.tasks.List(
            task.ListRequest(jobId=named(job_id))
        ).result.value.values()
        if info.runtime.state == task.RUNNING
    )
    (runs,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id, instance=running)).reasons
    assert (runs.code, runs.state) == ("running", "RUNNING")
    assert runs.text.startswith("runs on ")
    assert "; queue position " in waiting.message
    stop(deployment, job_id)


def test_why_a_pool_will_never_admit_it(deployment: Deployment) -> None:
    shrunk = deployment.make_pool("shrunk", cpu=5.0)

    def create(cpus: float) -> str:
        config = default_config(seconds=60)
        config.resource.cpuLimit = cpus
        request = deployment.request(1, defaultConfig=config)
        request.config.respoolID.value = shrunk
        return deployment.create(request)

    def only(job_id: str) -> ops.Reason:
        return deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons[0]

    holder = create(3.0)
    deployment.until(lambda: only(holder).code == "running")
    waits = create(4.0)
    deployment.until(lambda: only(waits).code == "pool-limit")
    assert f"; job {holder} holds 3" in only(waits).text
    update = respool.UpdateRequest(config=pool_config("shrunk", cpu=3.5))
    update.id.value = shrunk
    assert not deployment.pools.UpdateResourcePool(update).HasField("error")
    deployment.until(lambda: only(waits).code == "can-never-run")
    never = "requested 4 cpu, but the limit of pool /shrunk is 3.5: it can never be admitted"
    assert only(waits).text.startswith(never) and not only(waits).HasField("position")
    behind = create(0.5)
    deployment.until(lambda: only(behind).code == "running")
    for job_id in (holder, waits, behind):
        stop(deployment, job_id)


def test_a_job_that_its_pool_could_never_admit_waits_with_a_warning(
    deployment: Deployment,
) -> None:
    narrow = deployment.make_pool("one-cpu", cpu=1.0)

    def never_runs(job_id: str) -> list[str]:
        """The states of its instances that can never run; others of the job may."""
        reasons = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        return [reason.state for reason in reasons if reason.code == "can-never-run"]

    def warning(request: job.CreateRequest) -> str:
        request.config.respoolID.value = narrow
        answer, call = deployment.jobs.Create.with_call(request)
        assert not answer.HasField("error")
        if call.trailing_metadata():
            states = deployment.until(lambda: never_runs(answer.jobId.value))
            assert states == ["PENDING"]
        stop(deployment, answer.jobId.value)
        return "".join(value.decode() for _, value in call.trailing_metadata())

    config = default_config()
    config.resource.cpuLimit = 1.5
    assert warning(deployment.request(2, defaultConfig=config)) == (
        "config.defaultConfig.resource.cpuLimit: requested 1.5, the limit of pool /one-cpu is 1: "
        "it can never be admitted"
    )
    own = {1: config}
    assert warning(deployment.request(2, instanceConfig=own)).startswith(
        "config.instanceConfig[1]."
    )
    # Nobody runs the default: what it wants does not matter.
    small = {0: default_config(), 1: default_config()}
    assert warning(deployment.request(2, defaultConfig=config, instanceConfig=small)) == ""


def test_who_fits_no_host_holds_no_room_of_its_pool(deployment: Deployment) -> None:
    tight = deployment.make_pool("tight", cpu=6.0)
    big = default_config()
    big.resource.cpuLimit = 5.0
    small = default_config(seconds=0.05)
    small.resource.cpuLimit = 2.0
    requests = [
        deployment.request(1, defaultConfig=big),
        deployment.request(3, defaultConfig=small),
    ]
    for request in requests:
        request.config.respoolID.value = tight
    first, second = [deployment.create(request) for request in requests]
    assert deployment.ended(second).state == "SUCCEEDED"
    (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=first)).reasons
    assert (reason.code, reason.state) == ("can-never-run", "PENDING")
    stop(deployment, first)


def test_a_job_that_may_run_two_at_once(deployment: Deployment) -> None:
    request = deployment.request(5, defaultConfig=default_config(seconds=60))
    request.config.sla.maximumRunningInstances = 2
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 2)
    (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    assert (reason.code, reason.state, reason.instances) == ("job-limit", "INITIALIZED", 3)
    assert "2 of at most 2 instances are active" in reason.text
    some = task.StopRequest(jobId=named(job_id))
    some.ranges.add(**{"from": 0, "to": 1})
    deployment.tasks.Stop(some)
    third = deployment.until(
        lambda: deployment.task(job_id, 2).result.runtime.state == task.RUNNING
    )
    assert third and deployment.task(job_id, 3).result.runtime.state == task.INITIALIZED
    stop(deployment, job_id)
    assert dict(deployment.job(job_id).runtime.taskStats)["KILLED"] == 5


def test_why_an_instance_was_killed(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(3, defaultConfig=default_config(seconds=60)))
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 3)
    some = task.StopRequest(jobId=named(job_id))
    some.ranges.add(**{"from": 0, "to": 1})
    deployment.tasks.Stop(some, metadata=[("rpc-caller", "tool"), ("username", "ann")])
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["KILLED"] == 1)
    (killed,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    assert (killed.code, killed.state, killed.instances) == ("killed", "KILLED", 1)
    assert killed.text.startswith("stopped on request by ann (unverified): ")
    only = deployment.ops.Why(ops.WhyRequest(job_id=job_id, instance=0)).reasons
    assert " on " in only[0].text and only[0].text.endswith("Z")
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)), metadata=[("rpc-caller", "tool")])
    deployment.ended(job_id)
    texts = [one.text for one in deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons]
    assert len(texts) == 2
    assert texts[0] == killed.text, "who stopped it first stays"
    assert texts[1].startswith("2 instances: stopped on request by tool (unverified): ")


def test_why_a_job_that_went_well(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2))
    deployment.ended(job_id)
    (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    assert (reason.code, reason.instances, reason.text) == (
        "succeeded", 2, "2 instances: succeeded"
    )  # fmt: skip


def test_why_no_host_fits(deployment: Deployment) -> None:
    config = default_config()
    config.resource.cpuLimit = 5.0
    job_id = deployment.create(deployment.request(2, defaultConfig=config))

    def counted() -> Any:
        found = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        return found if found and sum(found[0].counts.values()) == len(HOSTS) else None

    (reason,) = deployment.until(counted)
    assert (reason.code, reason.instances, reason.state) == ("can-never-run", 2, "PENDING")
    lacks = "no host fits: 3 of 3 hosts lack cpu (requested 5, the largest host has 4)"
    assert lacks in reason.text
    assert 0 <= reason.age_s < 60
    stop(deployment, job_id)


def test_why_a_job_failed(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(3, defaultConfig=default_config(code=4)))
    deployment.ended(job_id)
    (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    assert (reason.code, reason.instances, reason.state) == ("failed", 3, "FAILED")
    assert "4" in reason.text


def test_waiting_ends_with_the_time(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(1, defaultConfig=default_config(seconds=60)))
    for timeout_s in (0.2, 0.0, -5.0, float("nan")):
        sent = ops.WaitJobRequest(job_id=job_id, timeout_s=timeout_s)
        assert not deployment.ops.WaitJob(sent, timeout=WAIT_S_MAX).done
    stop(deployment, job_id)


NOBODY = "9f6b1c1e-0d5c-4b7e-8a6f-1f2e3d4c5b6a"


@pytest.mark.parametrize("name", [NOBODY, "x", ""])
def test_unknown_jobs(deployment: Deployment, name: str) -> None:
    for call, sent in (
        (deployment.ops.Why, ops.WhyRequest(job_id=name)),
        (deployment.ops.WaitJob, ops.WaitJobRequest(job_id=name, timeout_s=5)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(sent)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_story(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2))
    deployment.ended(job_id)
    lines = deployment.ops.Story(ops.StoryRequest(key=f"job/{job_id}")).lines
    assert lines[0].cause.startswith("CreateJob")
    assert "JobMade" in lines[0].facts
    lines = deployment.ops.Story(ops.StoryRequest(key=f"task/{job_id}/1")).lines
    assert any("RunEnded" in line.facts for line in lines)


@pytest.mark.parametrize(
    "key",
    [
        "", "x", "shoe/1", "job/", "job/x", f"job/{NOBODY}/0", f"slice/{NOBODY}",
        f"slice/{NOBODY}/x", f"task/{NOBODY}/x", "task/x/0", f"task/{NOBODY}/{'9' * 5000}",
        f"task/{NOBODY}/4294967296", f"lot/{NOBODY}/0", f"lot/{NOBODY}/0/zz", f"lot/{NOBODY}/x/0",
        "inventory/x", "inventory/-1", "inventory/1/2", "inventory/\u0661", "host/a/b",
        "respool/" + "x" * 5000,
    ],
)  # fmt: skip
def test_a_key_that_no_actor_can_have(deployment: Deployment, key: str) -> None:
    for call, sent in (
        (deployment.ops.Story, ops.StoryRequest(key=key)),
        (deployment.ops.Redrive, ops.RedriveRequest(key=key)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(sent)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_key_in_another_spelling_is_the_same_actor(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(1))
    deployment.ended(job_id)
    for name in ("job/{}", "slice/{}/0", "task/{}/0"):
        lower, upper = (
            deployment.ops.Story(ops.StoryRequest(key=name.format(spelled))).lines
            for spelled in (job_id, job_id.upper())
        )
        assert [line.cause for line in lower] == [line.cause for line in upper] != []


def test_the_story_of_a_job_ends_with_its_end(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config(code=3)))
    deployment.ended(job_id)
    lines = deployment.ops.Story(ops.StoryRequest(key=f"job/{job_id}")).lines
    assert lines[-1].because == "the job ended as FAILED"


def test_who_does_not_exist_has_no_story(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2))
    there = (f"slice/{job_id}/0", f"task/{job_id}/1", "host/a", "respool/root", "inventory/0")
    for name in there:
        deployment.ops.Story(ops.StoryRequest(key=name))
    for name in (
        f"job/{NOBODY}", f"task/{NOBODY}/0", f"task/{job_id}/2", f"slice/{job_id}/1",
        f"lot/{NOBODY}/0/0", f"lot/{job_id}/0/99", "host/nobody", "respool/nobody", "inventory/2",
        "schedule/nobody",
    ):  # fmt: skip
        with pytest.raises(grpc.RpcError) as caught:
            deployment.ops.Story(ops.StoryRequest(key=name))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND, name


def test_how_the_pools_stand(deployment: Deployment) -> None:
    """What the config promises, and what the division of the capacity entitles to."""
    config = pool_config("standing")
    config.resources[0].reservation, config.resources[0].type = 2.0, respool.STATIC
    created = deployment.pools.CreateResourcePool(respool.CreateRequest(config=config)).result.value
    try:
        pools = {one.path: one for one in deployment.ops.ListPools(ops.ListPoolsRequest()).pools}
    finally:
        path = respool.ResourcePoolPath(value="/standing")
        deployment.pools.DeleteResourcePool(respool.DeleteRequest(path=path))
    assert [kind.entitlement for kind in pools["/"].kinds] == [12.0, 6144.0, 60000.0, 0.0]
    cpu = pools["/standing"].kinds[0]
    assert pools["/standing"].id == created and cpu.type == "STATIC"
    assert (cpu.kind, cpu.reservation, cpu.demand, cpu.allocation) == ("cpu", 2.0, 0.0, 0.0)
    assert 2.0 <= cpu.entitlement <= cpu.limit == config.resources[0].limit


def test_the_hosts(deployment: Deployment) -> None:
    hosts = deployment.ops.ListHosts(ops.ListHostsRequest()).hosts
    assert [(host.name, host.state, host.capacity.cpu) for host in hosts] == [
        ("a", "UP", 4.0), ("b", "UP", 4.0), ("c", "UP", 4.0),
    ]  # fmt: skip
    assert dict(hosts[0].attributes) == {"rack": "r1"}
    job_id = deployment.create(deployment.request(1, defaultConfig=default_config(seconds=60)))
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 1)

    def busy() -> Any:
        return [
            host for host in deployment.ops.ListHosts(ops.ListHostsRequest()).hosts if host.runs
        ]

    # The inventory is told by the hosts, and may be behind them by a moment.
    deployment.until(lambda: [host.free.cpu for host in busy()] == [3.9])
    stop(deployment, job_id)


@pytest.mark.parametrize(
    ("name", "code"), [("SIGSEGV", 139), ("SIGKILL", 137), ("SIG40", 168), ("", 0), ("SIGX", 0)]
)
def test_a_signal_has_the_code_that_a_shell_gives_it(name: str, code: int) -> None:
    assert signal_code(name) == code


def test_nothing_is_set_aside(deployment: Deployment) -> None:
    assert not deployment.ops.ListQuarantine(ops.ListQuarantineRequest()).quarantined
    with pytest.raises(grpc.RpcError) as caught:
        deployment.ops.Redrive(ops.RedriveRequest(key=f"job/{uuid.uuid4()}"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


JOB = str(uuid.uuid4())
CROWD = Key(f"task/{JOB}/2")


class Ward:
    """A cluster where two messages are set aside, and one actor is left alone."""

    def __init__(self) -> None:
        task_aside = MessageDeadLettered(3, b"", "", "boom", 3, 7.0, Bits.of(5, 6).pack())
        self.facts = [(CROWD, task_aside), (Key(f"job/{JOB}"), Quarantined())]
        self.redriven: list[Key] = []

    def quarantine(self) -> Future[Any]:
        return answered(self.facts)

    def message_name(self, key: Key, number: int) -> str:
        return f"no. {number} of {key.partition('/')[0]}"

    def redrive(self, key: Key) -> Future[Any]:
        self.redriven.append(key)
        return answered(None)

    def story(self, key: Key, member: int | None = None) -> Future[Any]:
        return answered([StoryLine(1.0, key, 0, "Admitted", (), f"member {member}")])


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_what_is_set_aside_is_listed_by_instance_and_given_back() -> None:
    ward = Ward()
    service = Ops(ClusterClient(ward), ClusterFeed(ward))  # type: ignore[arg-type]
    listed = service.ListQuarantine(ops.ListQuarantineRequest(), CallContext()).quarantined
    assert [(one.key, one.message, one.error) for one in listed] == [
        (f"job/{JOB}", "", "in quarantine: accepts only goals and queries"),
        (f"task/{JOB}/2005", "no. 3 of task", "boom"),
        (f"task/{JOB}/2006", "no. 3 of task", "boom"),
    ]
    assert listed[1].story[0].because == "member 5"
    service.Redrive(ops.RedriveRequest(key=listed[1].key, message="no. 3 of task"), CallContext())
    assert ward.redriven == [CROWD]


def test_why_names_every_blocker_with_numbers_and_what_would_help(deployment: Deployment) -> None:
    slim = deployment.make_pool("slim", cpu=0.2)
    first, second = (deployment.request(3, defaultConfig=default_config(60)) for _ in range(2))
    for request in (first, second):
        request.config.respoolID.value = slim
    holder = deployment.create(first)
    deployment.until(lambda: deployment.job(holder).runtime.taskStats["RUNNING"] == 2)
    behind = deployment.create(second)

    def whole() -> Any:
        (reason, *more) = deployment.ops.Why(ops.WhyRequest(job_id=behind)).reasons
        found = [blocker.code for blocker in reason.blockers]
        return reason if found == ["pool-limit", "queue"] else None

    reason = deployment.until(whole)
    limit, queue = reason.blockers
    assert (limit.pool, limit.resource, limit.limit) == ("/slim", "cpu", 0.2)
    assert (limit.used, limit.wanted) == pytest.approx((0.2, 0.1))
    assert limit.missing == pytest.approx(0.1) and not limit.never
    assert "raise the limit to 0.3 cpu" in limit.change and "0.5 for all of it" in limit.change
    assert (queue.queue.tasks, queue.queue.head_job) == (1, holder)
    assert not reason.estimate.HasField("after_s")
    assert reason.estimate.basis == "no task in pool /slim has released cpu lately"
    some = task.StopRequest(jobId=named(holder))
    some.ranges.add(**{"from": 0, "to": 1})
    deployment.tasks.Stop(some)

    def estimated() -> Any:
        (reason, *_) = deployment.ops.Why(ops.WhyRequest(job_id=behind)).reasons
        return reason.estimate if reason.estimate.HasField("after_s") else None

    assert deployment.until(estimated).after_s > 0
    for job_id in (holder, behind):
        stop(deployment, job_id)


def test_why_a_job_limit_and_a_deadline_are_in_the_way(deployment: Deployment) -> None:
    request = deployment.request(4, defaultConfig=default_config(seconds=60))
    request.config.sla.maximumRunningInstances = 2
    request.config.labels.add(key="peloton.deadline", value="1h")
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 2)
    (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    limit, deadline = reason.blockers
    assert (limit.code, limit.limit, limit.used, limit.missing) == ("job-limit", 2, 2, 1)
    assert "at least 3; to 4 for all 2" in limit.change
    assert deadline.code == "deadline" and deadline.at > time.time() + 3000
    assert reason.estimate.basis == "no instance of this job has ended yet"
    stop(deployment, job_id)


def test_never_has_a_proof(deployment: Deployment) -> None:
    config = default_config()
    config.resource.cpuLimit = 5.0
    job_id = deployment.create(deployment.request(1, defaultConfig=config))

    def counted() -> Any:
        found = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        return found if found and sum(found[0].counts.values()) == len(HOSTS) else None

    (reason,) = deployment.until(counted)
    proof, hosts = reason.blockers
    assert (proof.code, proof.never) == ("no-host-ever", True)
    assert "each of the 3 hosts was checked as if it were empty" in proof.proof
    assert (hosts.rule, hosts.hosts) == ("insufficient_offer_resources", 3)
    assert "too little free for cpu 5" in hosts.text and not reason.estimate.HasField("after_s")
    stop(deployment, job_id)


def test_what_waits_for_its_pool_and_fits_no_host_either_says_both(deployment: Deployment) -> None:
    both = deployment.make_pool("both", cpu=6.0)

    def create(cpus: float) -> str:
        config = default_config(seconds=60)
        config.resource.cpuLimit = cpus
        request = deployment.request(1, defaultConfig=config)
        request.config.respoolID.value = both
        return deployment.create(request)

    holder = create(3.0)
    deployment.until(lambda: deployment.job(holder).runtime.taskStats["RUNNING"] == 1)
    waits = create(5.0)

    def known() -> Any:
        (reason, *_) = deployment.ops.Why(ops.WhyRequest(job_id=waits)).reasons
        return reason if reason.code == "pool-limit" else None

    reason = deployment.until(known)
    codes = [blocker.code for blocker in reason.blockers]
    assert codes[0] == "pool-limit" and codes[-2:] == ["no-host-ever", "hosts"]
    assert reason.blockers[-2].never and "3 of 3 hosts lack cpu" in reason.blockers[-2].text
    for job_id in (holder, waits):
        stop(deployment, job_id)


def test_what_its_job_holds_back_is_told_what_comes_after(deployment: Deployment) -> None:
    later = deployment.make_pool("later", cpu=6.0)
    config = default_config(seconds=60)
    config.resource.cpuLimit = 3.5
    request = deployment.request(2, defaultConfig=config)
    request.config.sla.maximumRunningInstances = 1
    request.config.respoolID.value = later
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 1)

    def known() -> Any:
        (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        codes = [blocker.code for blocker in reason.blockers]
        return reason if codes == ["job-limit", "pool-limit"] else None

    limit = deployment.until(known).blockers[1]
    assert (limit.pool, limit.limit, limit.used, limit.missing) == ("/later", 6, 3.5, 1)
    stop(deployment, job_id)


def test_hosts_that_are_not_up_are_counted_by_their_state(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        hosts = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname="a"))
        asked = host_svc_pb2.QueryHostsRequest(host_states=[host_pb2.HOST_STATE_DOWN])
        deployment.until(lambda: hosts.QueryHosts(asked).host_infos)
        config = default_config(seconds=60)
        config.resource.cpuLimit = 3.0
        job_id = deployment.create(deployment.request(3, defaultConfig=config))

        def known() -> Any:
            reasons = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
            found = {each.rule: each for reason in reasons for each in reason.blockers}
            return found.get("mismatch_status")

        blocker = deployment.until(known)
        assert blocker.hosts == 1
        assert blocker.text == ("1 host: not up, draining, or just refused it; of all hosts 1 DOWN")
        stop(deployment, job_id)
