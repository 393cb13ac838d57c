"""The group of tasks that a run of several containers becomes."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import Container, Port, RunSpec, SecretRef
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.run_messages import HealthCheck, HttpProbe
from peloton.backends.mesos.runs.group_info import CPU, MEMORY, group_info, split
from peloton.backends.mesos.runs.task_info import NotOnMesos
from peloton.backends.mesos.runs.words import Bundle, NotOffered, sum_of
from tests.backends.mesos.words import offer, scalar

RUN = "0e1f9a3c-1111-4222-8333-444455556666-7-2"
NEED = Resources(UNIT // 2, 96 * UNIT, 10 * UNIT)
TWO = (
    Container("web", "sleep 1", environment=(("A", "1"),)),
    Container("beside", "/bin/sleep", False, ("sleep", "2"), image="debian:12"),
)
LEAST = UNIT // 1000


def made(numbers: tuple[int, ...] = (), need: Resources = NEED, **spec: Any) -> Any:
    start = StartRun(RUN, RunSpec(need, **{"value": "", "containers": TWO, **spec}), numbers)
    return group_info(start, agent="S0", bundle=Bundle(offer("O")["resources"]))


def tasks(*words: Any, **spec: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made(*words, **spec)["task_group"]["tasks"]
    return found


def variables(task: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in task["command"]["environment"]["variables"]}


def test_an_executor_of_mesos_for_all_and_a_task_for_each() -> None:
    group = made()
    executor = group["executor"]
    assert (executor["type"], executor["executor_id"]) == ("DEFAULT", {"value": f"{RUN}.0.2"})
    assert "command" not in executor
    web, beside = group["task_group"]["tasks"]
    assert [one["task_id"]["value"] for one in (web, beside)] == [RUN, f"{RUN}.1.2"]
    assert [one["name"] for one in (web, beside)] == ["web", "beside"]
    assert {one["agent_id"]["value"] for one in (web, beside)} == {"S0"}
    assert web["command"]["value"] == "sleep 1" and web["command"]["shell"]
    assert "container" not in web
    assert beside["command"]["arguments"] == ["sleep", "2"]
    assert beside["container"]["mesos"]["image"]["docker"] == {"name": "debian:12"}
    assert web["labels"] == beside["labels"] and web["kill_policy"] == beside["kill_policy"]


def test_each_has_its_own_variables_and_those_of_the_run() -> None:
    http = Port("http", env="HTTP_PORT")
    web, beside = map(variables, tasks((31005,), ports=(http,), environment=(("NO", "1"),)))
    common = {"PELOTON_POD_ID": RUN, "HTTP_PORT": "31005"}
    assert common.items() <= web.items() and common.items() <= beside.items()
    assert (web["A"], web["PELOTON_CONTAINER_NAME"]) == ("1", "web")
    assert "A" not in beside and beside["PELOTON_CONTAINER_NAME"] == "beside"
    assert "NO" not in web


def test_the_first_has_the_ports() -> None:
    web, beside = tasks((31005,), ports=(Port("http"),))
    assert [one["name"] for one in web["resources"]][-1] == "ports"
    assert web["discovery"]["ports"]["ports"][0]["number"] == 31005
    assert "discovery" not in beside
    assert "ports" not in [one["name"] for one in beside["resources"]]


def test_the_one_that_is_checked_is() -> None:
    by_name = tasks(check=HealthCheck("true", container="beside"))
    assert ["health_check" in one for one in by_name] == [False, True]
    assert ["health_check" in one for one in tasks(check=HealthCheck("true"))] == [True, False]
    assert not [one for one in tasks() if "health_check" in one]
    ready = HealthCheck(readiness=HealthCheck("r", container="beside"), container="beside")
    assert ["check" in one for one in tasks(check=ready)] == [False, True]
    assert not [one for one in tasks(check=ready) if "health_check" in one]
    first, second = tasks(check=HealthCheck(http=HttpProbe(1)).beside(ready.readiness))
    assert "health_check" in first and "check" in second
    assert "check" not in first and "health_check" not in second


def test_all_together_have_what_the_run_was_promised() -> None:
    group = made()
    assert group["executor"]["resources"] == [
        scalar("cpus", 0.01), scalar("mem", 32.0), scalar("disk", 0.001)
    ]  # fmt: skip
    parts = [one["resources"] for one in (group["executor"], *group["task_group"]["tasks"])]
    assert sum_of(entry for part in parts for entry in part) == NEED


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "need",
    [
        NEED,
        Resources(UNIT, 100 * UNIT + 1, 5),
        Resources(3 * UNIT, 64 * UNIT, UNIT, gpu=2 * UNIT),
        Resources(0, 64 * UNIT, UNIT, slack=UNIT),
    ],
)
def test_shares(need: Resources, count: int) -> None:
    own, (first, *others) = split(need, count)
    total = own + first
    for other in others:
        total += other
        assert other == others[0] and other.gpu == 0
        assert not [kind for kind in Resources.KINDS if getattr(other, kind) % LEAST]
        assert (other.cpu or other.slack) and other.memory, "Mesos refuses a task of nothing"
    assert total == Resources(need.cpu, need.memory, max(need.disk, LEAST), need.gpu, need.slack)
    assert own == Resources(CPU if need.cpu else 0, MEMORY, LEAST, slack=0 if need.cpu else CPU)


def test_a_run_without_disk_has_the_least_of_it_more() -> None:
    group = made(need=Resources(UNIT, 64 * UNIT))
    assert group["executor"]["resources"][-1] == scalar("disk", 0.001)
    assert [
        [one["name"] for one in task["resources"]] for task in group["task_group"]["tasks"]
    ] == [["cpus", "mem"]] * 2


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": (Container("a", "true", init=True), *TWO)}, "init containers: "),
        ({"volume": VolumeConfig("data", 5)}, "volumes in a pod of several containers"),
        ({"secrets": (SecretRef("s", "token"),)}, "secrets in a pod of several containers"),
        ({"check": HealthCheck(readiness=HealthCheck(http=HttpProbe(1, "/", "https")))}, "https"),
        ({"need": Resources(CPU + 2 * LEAST - 1, NEED.memory)}, "a pod of 2 containers with 0.01"),
        ({"need": Resources(UNIT, MEMORY)}, "32 MB: of these Mesos' executor takes 0.01 cpu and"),
    ],
)
def test_what_there_is_not_on_mesos(spec: dict[str, Any], text: str) -> None:
    bundle = Bundle(offer("O")["resources"])
    before, need = bundle.amounts, spec.get("need", NEED)
    rest = {"containers": TWO, **{name: spec[name] for name in spec if name != "need"}}
    with pytest.raises(NotOnMesos, match=text):
        group_info(StartRun(RUN, RunSpec(need, "", **rest)), agent="S0", bundle=bundle)
    assert bundle.amounts == before


@pytest.mark.parametrize("cpus", [0.005, 0.2, 0.4])
def test_what_was_not_offered_is_not_taken_in_part(cpus: float) -> None:
    bundle = Bundle([scalar("cpus", cpus), scalar("mem", 4096.0), scalar("disk", 100.0)])
    before = bundle.amounts
    with pytest.raises(NotOffered):
        group_info(StartRun(RUN, RunSpec(NEED, "", containers=TWO)), agent="S0", bundle=bundle)
    assert bundle.amounts == before
