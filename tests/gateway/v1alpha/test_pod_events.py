"""Events of instances that are deleted are shown to nobody, also after a restart."""

from __future__ import annotations

from pathlib import Path

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome, TaskGoals
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.translate_run import Translator
from peloton.runtime.vocabulary import Key
from tests.gateway.fleet_fixture import Deployment, default_config, named, refused, running
from tests.gateway.private.test_holds import CODE

RUNS = 3


def runs_shown(deployment: Deployment, job: str, instance: int = 0) -> list[int]:
    """The runs that have events, the newest first."""
    sent = task.GetPodEventsRequest(jobId=named(job), instanceId=instance, limit=100)
    names = [one.taskId.value for one in deployment.tasks.GetPodEvents(sent).result]
    return [*dict.fromkeys(int(name.rpartition("-")[2]) for name in names)]


def delete(deployment: Deployment, job: str, run: int, instance: int = 0) -> None:
    deployment.tasks.DeletePodEvents(
        task.DeletePodEventsRequest(jobId=named(job), instanceId=instance, runId=run)
    )


def failing(deployment: Deployment) -> str:
    """A job of two instances that have failed three times each."""
    config = default_config(code=1)
    config.restartPolicy.maxFailures = RUNS
    job = deployment.create(deployment.request(2, defaultConfig=config))
    deployment.ended(job)
    return job


def test_deleted_events_stay_away(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        job = failing(deployment)
        assert runs_shown(deployment, job) == [3, 2, 1]
        for run, left in ((0, [3, 2, 1]), (1, [3, 2]), (1, [3, 2]), (2, [3]), (2**63, [])):
            delete(deployment, job, run)
            assert runs_shown(deployment, job) == left
        assert runs_shown(deployment, job, 1) == [3, 2, 1], "of the other instance nothing is gone"
    with running(tmp_path) as deployment:
        assert runs_shown(deployment, job) == []
        assert runs_shown(deployment, job, 1) == [3, 2, 1]
        delete(deployment, job, 2, instance=1)  # from memory it is gone: it has ended
        assert runs_shown(deployment, job, 1) == [3]
        sent = task.GetRequest(jobId=named(job), instanceId=0)
        assert len(deployment.tasks.Get(sent).results) == RUNS, "the runs themselves are kept"
    with running(tmp_path) as deployment:
        assert (runs_shown(deployment, job), runs_shown(deployment, job, 1)) == ([], [3])


def test_what_happens_later_is_shown(deployment: Deployment) -> None:
    job = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    delete(deployment, job, 1)
    assert runs_shown(deployment, job) == []
    deployment.tasks.Stop(task.StopRequest(jobId=named(job)))
    deployment.ended(job)
    sent = task.GetPodEventsRequest(jobId=named(job), instanceId=0)
    deployment.until(lambda: deployment.tasks.GetPodEvents(sent).result)
    (event,) = deployment.tasks.GetPodEvents(sent).result
    assert event.actualState == "KILLED"


def test_events_of_nothing_are_not_deleted(deployment: Deployment) -> None:
    job = deployment.create(deployment.request(1))
    deployment.ended(job)
    call = deployment.tasks.DeletePodEvents
    unknown = "00000000-0000-4000-8000-000000000000"
    for sent in (
        task.DeletePodEventsRequest(jobId=named(unknown), runId=1),
        task.DeletePodEventsRequest(jobId=named(job), instanceId=1, runId=1),
        task.DeletePodEventsRequest(jobId=named(job), instanceId=2**32 - 1, runId=1),
    ):
        assert refused(call, sent)[0] is CODE.NOT_FOUND


def test_between_two_runs_the_last_end_is_shown_as_it_was() -> None:
    """The instance waits for its next attempt then, which is no state in which a run ends."""
    config = TaskConfig(resources=Resources(), command=Command("x"))
    spec = JobSpec(name="j", owner="o", pool=Key("respool/p"), instances=1, default=config)
    waiting = InstanceView(
        instance=0, state="PENDING", goal=TaskGoals.RUNNING, run=1, failures=1, host="host/a",
        created_at=1.0, launched_at=2.0, started_at=3.0, ended_at=4.0,
        outcome=RunOutcome(End.FAILED, 3, message="m"), runs=(), config=config,
    )  # fmt: skip
    events = Translator("job", spec).events(waiting, runs_max=1, only=None)
    assert (events[0].actualState, events[0].message) == ("FAILED", "m")
