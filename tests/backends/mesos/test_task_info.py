"""The task of Mesos that a run becomes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import MesosWords, Port, RunSpec, SecretRef, Uri
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.run_messages import HealthCheck, HttpProbe
from peloton.backends.mesos.runs.task_info import NotOnMesos, task_info
from peloton.backends.mesos.runs.words import Bundle, NotOffered
from peloton.placement.messages import Label
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


def test_labels_of_the_spec_are_beside_ours() -> None:
    own = (Label("a", "1"), Label("a", "2"), Label("peloton.job_id", "another"), Label("b", ""))
    told = [(one["key"], one["value"]) for one in made(labels=own)["labels"]["labels"]]
    assert told == [
        ("peloton.job_id", JOB), ("peloton.instance_id", "7"), ("peloton.task_id", f"{JOB}-7"),
        ("a", "1"), ("a", "2"), ("b", ""),
    ]  # fmt: skip


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


def test_a_container_is_told_as_the_spec_says_it() -> None:
    docker = {"type": "DOCKER", "docker": {"image": "a", "privileged": True}}
    task = made(image="a", mesos=MesosWords(container=json.dumps(docker)))
    assert task["container"] == docker and "executor" not in task
    own = MesosWords('{"data":"AP8="}', json.dumps(docker))
    assert made(image="a", mesos=own)["executor"]["container"] == docker


def test_an_executor_of_its_own_has_command_and_container_of_its_task() -> None:
    own = MesosWords(executor='{"data":"AP8=","source":"here"}')
    plain, task = (
        made(image="debian:12", user="ann"),
        made(image="debian:12", user="ann", mesos=own),
    )
    assert task["executor"] == {
        "type": "CUSTOM", "executor_id": {"value": f"thermos-{RUN}"}, "name": "AuroraExecutor",
        "data": "AP8=", "source": "here",
        "command": plain["command"], "container": plain["container"],
    }  # fmt: skip
    assert task["data"] == "AP8=" and task["resources"] == plain["resources"]
    assert not {"command", "container"} & {*task}
    assert {*task} - {*plain} == {"executor", "data"}
    named = MesosWords(executor='{"data":"AP8=","name":"Own"}')
    assert made(mesos=named)["executor"]["name"] == "Own"


def test_the_grace_of_a_kill() -> None:
    grace = made(kill_grace_s=1.5)["kill_policy"]["grace_period"]
    assert grace == {"nanoseconds": 1_500_000_000}


TIMES = {"delay_seconds": 1.0, "interval_seconds": 2.0, "timeout_seconds": 3.0}
SOON = HealthCheck(initial_s=1.0, interval_s=2.0, timeout_s=3.0, max_failures=4)
READINESS = HealthCheck(readiness=HealthCheck("true"))
ENDING = {"consecutive_failures": 4, "grace_period_seconds": 0.0}


def test_checks_by_command_and_by_request() -> None:
    by_command = made(check=replace(SOON, command="true"))
    command = {"shell": True, "value": "/bin/sh -c true; exit $?"}
    assert by_command["health_check"] == {
        **TIMES, **ENDING, "type": "COMMAND", "command": command
    }  # fmt: skip
    assert "check" not in by_command
    probe = HttpProbe(8080, "/well", "https")
    by_request = made(check=replace(SOON, http=probe))["health_check"]
    http = {"scheme": "https", "port": 8080, "path": "/well"}
    assert by_request == {**TIMES, **ENDING, "type": "HTTP", "http": http}


def test_readiness_checks_by_command_and_by_request() -> None:
    by_command = made(check=HealthCheck(readiness=replace(SOON, command="it's up")))
    command = {"shell": True, "value": """/bin/sh -c 'it'"'"'s up'; exit $?"""}
    assert by_command["check"] == {**TIMES, "type": "COMMAND", "command": {"command": command}}
    assert "health_check" not in by_command
    readiness = replace(SOON, http=HttpProbe(8080, "/ready"))
    beside = made(check=HealthCheck("true").beside(readiness))
    http = {"port": 8080, "path": "/ready"}
    assert beside["check"] == {**TIMES, "type": "HTTP", "http": http}
    assert beside["health_check"]["type"] == "COMMAND"


def test_the_command_of_a_check_exits_whatever_becomes_of_it() -> None:
    """An executor of Mesos aborts, and its task with it, where a signal has ended the shell."""
    for own, code in (("kill -9 $$", 137), ("exit 3", 3), ("true", 0)):
        task = made(check=HealthCheck(own).beside(HealthCheck(own)))
        for command in (task["health_check"]["command"], task["check"]["command"]["command"]):
            shell = ["/bin/sh", "-c", command["value"]]
            assert subprocess.run(shell, check=False, stderr=subprocess.DEVNULL).returncode == code


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"volume": VolumeConfig("data", 5)}, "volumes"),
        (
            {"secrets": (SecretRef("s", "token"),)},
            "secrets together with batch_executor: command.*batch_executor: keeper",
        ),
        (
            {"check": READINESS, "mesos": MesosWords(executor='{"data":"AP8="}')},
            "readiness checks of a task with an executor of its own",
        ),
        (
            {"check": READINESS, "mesos": MesosWords(container='{"type":"DOCKER"}')},
            "readiness checks in a container of Docker",
        ),
        (
            {"check": HealthCheck(readiness=HealthCheck(http=HttpProbe(1, "/", "https")))},
            "readiness checks by https",
        ),
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
