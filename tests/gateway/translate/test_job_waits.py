"""Labels of jobs that wait for others, have a deadline, or want their name for themselves."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from peloton.actors.job.spec import After, Deadline, Throttle
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.job_labels import AFTER_MAX, fields_of
from peloton.ops.v1 import ops_pb2 as ops
from tests.gateway.fleet_fixture import Deployment, default_config, named

ID = "5bd4ab6a-39f5-4a0c-8d2c-6a8e7f0b7a51"
OTHER = "0c9c5f0e-6a51-4b8e-9d3f-5f0a3b1c2d4e"


def label(key: str, value: str) -> peloton_pb2.Label:
    return peloton_pb2.Label(key=f"peloton.{key}", value=value)


def fields(key: str, value: str, name: str = "n") -> dict[str, Any]:
    return fields_of([label(key, value)], name=name)


def test_labels_become_fields() -> None:
    after = f"{ID}, {OTHER.upper()}:ended"
    assert fields("after", after) == {"after": (After(f"job/{ID}"), After(f"job/{OTHER}", "ENDED"))}
    assert fields("deadline", "1h30m") == {"deadline": Deadline("1h30m", 5400.0)}
    moment = "2030-01-31T18:00:00Z"
    assert fields("deadline", moment) == {"deadline": Deadline(moment, at=1896112800.0)}
    assert fields("throttle", "200/m") == {"throttle": Throttle("200/m", 200, 60.0)}
    assert fields("name_unique", "true") == {"unique": True}
    assert fields("healthy_after", "2m") == {"healthy_after_s": 120.0}
    assert fields("other", "x") == {}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("after", "", "'' is not the id of a job"),
        ("after", "train", "'train' is not the id of a job"),
        ("after", f"{ID}:DONE", "'DONE' is not one of SUCCEEDED"),
        ("after", f"{ID},{ID}:FAILED", "is named twice"),
        ("after", ",".join(str(uuid.UUID(int=n)) for n in range(AFTER_MAX + 1)), "the limit is"),
        ("deadline", "", "is not a length of time"),
        ("deadline", "5", "is not a length of time"),
        ("deadline", "0s", "is not above 0"),
        ("deadline", "-2h", "is not a length of time"),
        ("deadline", "99999999h", "is not above 0 and at most"),
        ("deadline", "2030-01-31", "is not a length of time"),
        ("deadline", "2030-01-31T18:00:00", "is not a length of time"),
        ("throttle", "", "is not N/s, N/m or N/h"),
        ("throttle", "10", "is not N/s, N/m or N/h"),
        ("throttle", "0/s", "from 1 to"),
        ("throttle", "1.5/s", "is not N/s, N/m or N/h"),
        ("throttle", "-1/s", "is not N/s, N/m or N/h"),
        ("throttle", "10/d", "is not N/s, N/m or N/h"),
        ("throttle", "100001/h", "from 1 to 100000"),
        ("throttle", "10/s\n", "is not N/s, N/m or N/h"),
        ("name_unique", "yes", "neither true nor false"),
    ],
)
def test_a_bad_value_is_refused_with_its_label(key: str, value: str, says: str) -> None:
    with pytest.raises(BadField) as caught:
        fields(key, value)
    assert str(caught.value).startswith(f"config.labels[0]: peloton.{key}: ")
    assert says in str(caught.value)


def test_a_label_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BadField, match=r"labels\[1\]: peloton.deadline: is given twice"):
        fields_of([label("deadline", "1h"), label("deadline", "2h")], name="n")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_a_name_that_cannot_be_held_is_refused(name: str) -> None:
    with pytest.raises(BadField, match="the job needs a name"):
        fields("name_unique", "true", name)
    assert fields("name_unique", "false", name) == {"unique": False}


# ---- through the gateway ----


def request(deployment: Deployment, seconds: float = 0.0, **labels: str) -> job.CreateRequest:
    config = default_config(seconds=seconds) if seconds else default_config()
    made = [label(key, value) for key, value in labels.items()]
    return deployment.request(1, defaultConfig=config, labels=made, name=str(uuid.uuid4()))


def invalid(deployment: Deployment, sent: job.CreateRequest, **options: Any) -> str:
    return str(deployment.jobs.Create(sent, **options).error.invalidConfig.message)


def stop(deployment: Deployment, job_id: str) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))


def why(deployment: Deployment, job_id: str) -> list[tuple[str, str]]:
    reasons = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
    return [(one.code, one.text) for one in reasons]


def test_a_job_waits_and_says_for_what(deployment: Deployment) -> None:
    first = deployment.create(request(deployment, 60.0))
    second = deployment.create(request(deployment, after=f"{first}:KILLED"))
    assert why(deployment, second) == [("not-asked", f"waits for job {first} to be KILLED")]
    assert deployment.job(second).runtime.state == job.INITIALIZED
    stop(deployment, first)
    assert deployment.ended(second).state == "SUCCEEDED"
    third = deployment.create(request(deployment, after=first))
    assert deployment.ended(third).state == "KILLED"
    said = f"job {first} did not end as SUCCEEDED"
    assert any(said in text for _, text in why(deployment, third))


def test_a_job_after_one_that_does_not_exist_is_refused(deployment: Deployment) -> None:
    said = invalid(deployment, request(deployment, after=ID))
    assert said == f"config.labels: peloton.after: there is no job {ID}"


def test_a_deadline_kills_and_is_named(deployment: Deployment) -> None:
    made = deployment.create(request(deployment, 60.0, deadline="1s"))
    assert deployment.ended(made).state == "KILLED"
    assert all("its deadline (1s)" in text for _, text in why(deployment, made))
    said = invalid(deployment, request(deployment, deadline="2001-01-01T00:00:00Z"))
    assert "peloton.deadline: 2001-01-01T00:00:00Z has passed" in said


def test_an_array_with_a_throttle_says_what_it_waits_for(deployment: Deployment) -> None:
    sent = request(deployment, throttle="2/h")
    sent.config.instanceCount = 3
    made = deployment.create(sent)

    def waits() -> ops.Reason | None:
        reasons = deployment.ops.Why(ops.WhyRequest(job_id=made)).reasons
        return next((one for one in reasons if "next at" in one.text), None)

    reason = deployment.until(waits)
    assert reason.code == "throttle" and reason.text.startswith("waits for the throttle: 2/h, next")
    deployment.until(lambda: deployment.job(made).runtime.taskStats["SUCCEEDED"] == 2)
    assert deployment.job(made).runtime.taskStats["INITIALIZED"] == 1
    stop(deployment, made)
    assert deployment.ended(made).state == "KILLED"
    said = invalid(deployment, request(deployment, throttle="fast"))
    assert said.startswith("config.labels[0]: peloton.throttle: 'fast' is not N/s, N/m or N/h")


def test_a_name_is_one_jobs_until_it_ends(deployment: Deployment) -> None:
    sent = request(deployment, 60.0, name_unique="true")
    key = (("peloton-request-key", str(uuid.uuid4())),)
    made = deployment.create(sent, metadata=key)
    assert "peloton.name_unique: another job of the pool" in invalid(deployment, sent)
    assert deployment.create(sent, metadata=key) == made, "a repeat gets its answer"
    other = deployment.request(1, defaultConfig=default_config(), name=sent.config.name)
    deployment.ended(deployment.create(other))  # who does not ask for it may have it as well
    stop(deployment, made)
    deployment.ended(made)
    again = deployment.until(lambda: deployment.jobs.Create(sent).jobId.value or None)
    stop(deployment, again)
    deployment.ended(again)
    assert deployment.create(sent, metadata=key) == made
    last = deployment.until(lambda: deployment.jobs.Create(sent).jobId.value or None)
    stop(deployment, last)
