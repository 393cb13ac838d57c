"""The task of Mesos that a run becomes."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host.messages import (
    Port,
    RunSpec,
    SecretRef,
    StartRun,
    Uri,
    VolumeConfig,
)
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.health_messages import HealthCheck, HttpProbe
from peloton.backends.mesos.task_info import NotOnMesos, task_info
from peloton.backends.mesos.words import Bundle, NotOffered
from tests.backends.mesos.words import offer, scalar

JOB = "0e1f9a3c-1111-4222-8333-444455556666"
RUN = f"{JOB}-7-2"
NEED = Resources(UNIT // 2, 32 * UNIT)


def made(numbers: tuple[int, ...] = (), **spec: Any) -> dict[str, Any]:
    """The task of a run with this spec, on an offer of the usual."""
    start = StartRun(RUN, RunSpec(NEED, **{"value": "sleep 1", **spec}), numbers)
    return task_info(start, agent="S0", bundle=Bundle(offer("O", "S0")["resources"]))


def test_ids_resources_and_labels() -> None:
    task = made()
    assert (task["name"], task["task_id"], task["agent_id"]) == (
        RUN, {"value": RUN}, {"value": "S0"}
    )  # fmt: skip
    assert task["resources"] == [scalar("cpus", 0.5), scalar("mem", 32.0)]
    assert {one["key"]: one["value"] for one in task["labels"]["labels"]} == {
        "peloton.job_id": JOB, "peloton.instance_id": "7", "peloton.task_id": f"{JOB}-7"
    }  # fmt: skip
    assert not {"container", "discovery", "health_check"} & {*task}


def test_a_command_in_a_shell() -> None:
    command = made()["command"]
    assert (command["shell"], command["value"]) == (True, "sleep 1")
    assert not {"arguments", "user"} & {*command}


def test_files_to_fetch() -> None:
    assert "uris" not in made()["command"]
    uris = made(uris=(Uri("http://x"), Uri("hdfs:///a", True, False, True, "in/a")))
    assert uris["command"]["uris"] == [
        {"value": "http://x", "executable": False, "extract": True, "cache": False},
        {
            "value": "hdfs:///a", "executable": True, "extract": False, "cache": True,
            "output_file": "in/a",
        },
    ]  # fmt: skip


def test_the_arguments_of_a_program_begin_with_its_own_name() -> None:
    command = made(value="/bin/sleep", shell=False, arguments=("sleep", "1"))["command"]
    assert (command["shell"], command["value"]) == (False, "/bin/sleep")
    assert command["arguments"] == ["sleep", "1"]
    assert made(value="/bin/true", shell=False)["command"]["arguments"] == ["/bin/true"]


def test_variables_of_the_spec_of_the_run_and_of_its_ports() -> None:
    http = Port("http", env="HTTP_PORT")
    task = made((31005,), environment=(("A", "1"),), ports=(http,))
    found = {one["name"]: one["value"] for one in task["command"]["environment"]["variables"]}
    assert found == {
        "A": "1", "PELOTON_JOB_ID": JOB, "PELOTON_INSTANCE_ID": "7",
        "PELOTON_TASK_ID": f"{JOB}-7", "PELOTON_POD_ID": RUN, "HTTP_PORT": "31005",
    }  # fmt: skip


def test_the_user_where_one_is_named() -> None:
    assert made(user="ann")["command"]["user"] == "ann"


def test_ports_are_taken_and_can_be_discovered() -> None:
    task = made((31005, 31000), ports=(Port("http"), Port("admin")))
    listed = [{"begin": 31000, "end": 31000}, {"begin": 31005, "end": 31005}]
    assert task["resources"][-1]["ranges"] == {"range": listed}
    assert task["discovery"] == {
        "visibility": "CLUSTER", "name": RUN,
        "ports": {"ports": [
            {"number": 31005, "name": "http", "protocol": "tcp"},
            {"number": 31000, "name": "admin", "protocol": "tcp"},
        ]},
    }  # fmt: skip


def test_an_image_is_run_by_mesos_itself() -> None:
    image = {"type": "DOCKER", "docker": {"name": "debian:12"}}
    assert made(image="debian:12")["container"] == {"type": "MESOS", "mesos": {"image": image}}


def test_the_grace_of_a_kill() -> None:
    grace = made(kill_grace_s=1.5)["kill_policy"]["grace_period"]
    assert grace == {"nanoseconds": 1_500_000_000}


TIMES = {
    "delay_seconds": 1.0, "interval_seconds": 2.0, "timeout_seconds": 3.0,
    "consecutive_failures": 4, "grace_period_seconds": 0.0,
}  # fmt: skip


def test_checks_by_command_and_by_request() -> None:
    times = {"initial_s": 1.0, "interval_s": 2.0, "timeout_s": 3.0, "max_failures": 4}
    by_command = made(check=HealthCheck("true", **times))["health_check"]
    command = {"shell": True, "value": "true"}
    assert by_command == {**TIMES, "type": "COMMAND", "command": command}
    probe = HttpProbe(8080, "/well", "https")
    by_request = made(check=HealthCheck(http=probe, **times))["health_check"]
    http = {"scheme": "https", "port": 8080, "path": "/well"}
    assert by_request == {**TIMES, "type": "HTTP", "http": http}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"volume": VolumeConfig("data", 5)}, "volumes"),
        ({"secrets": (SecretRef("s", "token"),)}, "secrets"),
        ({"check": HealthCheck("true").beside(HealthCheck("true"))}, "readiness checks"),
        ({"check": HealthCheck(readiness=HealthCheck("true"))}, "readiness checks"),
    ],
)
def test_what_there_is_not_on_mesos(spec: dict[str, Any], text: str) -> None:
    bundle = Bundle(offer("O")["resources"])
    before = bundle.amounts
    with pytest.raises(NotOnMesos, match=f"^{text}$"):
        start = StartRun(RUN, RunSpec(NEED, "true", **spec))
        task_info(start, agent="S0", bundle=bundle)
    assert bundle.amounts == before


def test_what_was_not_offered() -> None:
    with pytest.raises(NotOffered, match="port 9 is missing"):
        made((9,), ports=(Port("http"),))


def test_mesos_chooses_the_devices_of_gpus_itself() -> None:
    entries = [*offer("O")["resources"], scalar("gpus", 2.0)]
    start = StartRun(RUN, RunSpec(NEED + Resources(gpu=UNIT), "true"), devices=(1,))
    task = task_info(start, agent="S0", bundle=Bundle(entries))
    assert task["resources"][-1] == scalar("gpus", 1.0)
