"""Which runs our own executor has, what they are as tasks, and how they end."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.run_spec import Container, MesosWords, RunSpec, Uri
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper.requests import run_of
from peloton.backends.mesos.executor.agent_environment import EDITION, EDITION_VARIABLE
from peloton.backends.mesos.executor.talk import EXECUTOR_LOST, HOST
from peloton.backends.mesos.runs.keeper_tasks import (
    CHOICE,
    COMMAND,
    EXECUTOR_NEED,
    FAILED_STARTS_MAX,
    KEEPER,
    PREFIX,
    START_AGAIN_S,
    KeeperAt,
    KeeperProgram,
    NotByKeeper,
    keeper_data,
)
from peloton.backends.mesos.runs.statuses import mesos_outcome
from peloton.backends.mesos.runs.task_info import task_info
from peloton.backends.mesos.runs.words import Bundle, NotOffered
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import HOST as H0
from tests.backends.mesos.bench import Talk, name, start
from tests.backends.mesos.words import Json, agent, offer, reserved, scalar, status

PROGRAM = KeeperProgram("exec keeper", "ann", 5.0)
ONE = Resources(UNIT, 64 * UNIT)
BY_KEEPER, BY_COMMAND = (Label(CHOICE, choice) for choice in (KEEPER, COMMAND))


def spec(**more: Any) -> RunSpec:
    return RunSpec(**{"resources": ONE, "value": "true", **more})


OBSTACLES: dict[str, dict[str, Any]] = {
    "an image": {"image": "debian:12"},
    "several containers": {"containers": (Container("a", "true"),)},
    "a volume": {"volume": VolumeConfig("data", 5)},
    "a check": {"check": HealthCheck("true")},
    "files to fetch": {"uris": (Uri("http://x"),)},
    "an executor of its own": {"mesos": MesosWords("{}")},
    "a container": {"mesos": MesosWords(container="{}")},
    "gpus": {"resources": Resources(UNIT, gpu=UNIT)},
    "revocable cpu": {"resources": Resources(slack=UNIT)},
    "another account": {"user": "bob"},
}


def test_batch_runs_are_for_it_and_services_are_not_unless_they_say_so() -> None:
    assert PROGRAM.runs(spec()) and PROGRAM.runs(spec(user="ann"))
    assert not PROGRAM.runs(spec(asks=True))
    assert PROGRAM.runs(spec(asks=True, labels=(BY_KEEPER,)))
    assert not PROGRAM.runs(spec(labels=(Label("a", "b"), BY_COMMAND)))


@pytest.mark.parametrize("what", OBSTACLES)
def test_what_it_cannot_give_is_run_by_mesos_or_refused_where_it_was_chosen(what: str) -> None:
    assert not PROGRAM.runs(spec(**OBSTACLES[what]))
    with pytest.raises(NotByKeeper, match=what):
        PROGRAM.runs(spec(**OBSTACLES[what], labels=(BY_KEEPER,)))


def test_a_choice_that_there_is_not() -> None:
    with pytest.raises(NotByKeeper, match="'docker'"):
        PROGRAM.runs(spec(labels=(Label(CHOICE, "docker"),)))


def test_the_data_is_a_request_that_the_keeper_reads() -> None:
    order = m.StartRun(name(3), spec(value="a", shell=False, arguments=("a", "b")))
    run = run_of(HOST, json.loads(base64.b64decode(keeper_data(order))))
    assert (run.run_id, run.memory_mb) == (name(3), 64.0)
    assert run.command == {
        "value": "a", "shell": False, "arguments": ["a", "b"],
        "environment": dict(order.environment),
    }  # fmt: skip
    with pytest.raises(NotByKeeper, match="bytes, more than"):
        keeper_data(m.StartRun(name(3), spec(value="x" * 5_000_000)))


def made(keeper: KeeperAt, bundle: Bundle, **more: Any) -> Json:
    order = m.StartRun(name(0), spec(**more))
    return task_info(order, agent="S0", bundle=bundle, keeper=keeper)


def test_the_first_task_brings_the_executor_and_all_carry_the_same() -> None:
    keeper, bundle = KeeperAt(PROGRAM), Bundle(offer("O")["resources"])
    first, second = made(keeper, bundle), made(keeper, bundle)
    info = first["executor"]
    assert info == second["executor"] and "command" not in first
    assert first["resources"] == second["resources"] == [scalar("cpus", 1.0), scalar("mem", 64.0)]
    assert info["resources"] == [scalar("cpus", 0.1), scalar("mem", 64.0)]
    assert (
        bundle.amounts == Resources(4 * UNIT, 4096 * UNIT, 100 * UNIT) - ONE - ONE - EXECUTOR_NEED
    )
    assert info["type"] == "CUSTOM" and info["executor_id"]["value"].startswith(PREFIX)
    command = info["command"]
    assert (command["shell"], command["value"]) == (True, "exec keeper")
    variables = {one["name"]: one["value"] for one in command["environment"]["variables"]}
    assert variables == {"PELOTON_EXECUTOR_IDLE_S": "5", EDITION_VARIABLE: EDITION}


def test_what_the_executor_cannot_have_nobody_takes() -> None:
    keeper, bundle = KeeperAt(PROGRAM), Bundle(offer("O", cpus=1.0)["resources"])
    before = bundle.amounts
    with pytest.raises(NotOffered):
        made(keeper, bundle)
    assert bundle.amounts == before
    assert made(keeper, bundle, resources=Resources(UNIT // 2))["executor"]


def test_its_id_differs_where_anything_of_it_does() -> None:
    def id_of(program: KeeperProgram, *entries: Json) -> str:
        given = entries or offer("O")["resources"]
        return str(KeeperAt(program).info(Bundle(given))["executor_id"]["value"])

    others = [
        id_of(PROGRAM),
        id_of(PROGRAM._replace(command="exec other")),
        id_of(PROGRAM._replace(idle_s=6.0)),
        id_of(PROGRAM, scalar("cpus", 1.0, **reserved("peloton")), scalar("mem", 64.0)),
    ]
    assert len({*others}) == 4 and id_of(PROGRAM) == others[0]


def test_one_that_the_master_lists_is_taken_over_as_it_is() -> None:
    first = KeeperAt(PROGRAM).info(Bundle(offer("O")["resources"]))
    keeper, empty = KeeperAt(PROGRAM), Bundle(())
    for stranger in ("default", f"{PREFIX}of-another-command"):
        keeper.listed({"executor_id": {"value": stranger}})
    with pytest.raises(NotOffered):
        keeper.info(empty)
    keeper.listed(first)
    assert keeper.info(empty) is first
    keeper.over("another")
    assert keeper.info(empty) is first
    keeper.over(first["executor_id"]["value"])
    with pytest.raises(NotOffered):
        keeper.info(empty)


# ---- ends ----


def said(end: Json) -> str:
    return base64.b64encode(json.dumps(end).encode()).decode()


OURS = {"executor_id": {"value": f"{PREFIX}1"}}
END = {
    "outcome": "FAILED", "exit_code": None, "signal": 9, "reason": "memory limit exceeded",
    "message": "80 MB resident, 64 MB asked for", "at": 9.0,
}  # fmt: skip


def test_what_the_executor_says_is_the_end() -> None:
    found = mesos_outcome(status("r", "FAILED", **OURS, data=said(END)))
    assert found == RunOutcome(
        End.FAILED, None, "SIGKILL", "memory limit exceeded", "80 MB resident, 64 MB asked for"
    )
    lost = said({**END, "outcome": "LOST", "signal": None})
    found = mesos_outcome(status("r", "DROPPED", **OURS, data=lost))
    assert (found.end, found.system, found.signal) == (End.LOST, True, "")
    assert (
        mesos_outcome(status("r", "FAILED", **OURS, data=said({**END, "signal": 40}))).signal
        == "SIG40"
    )


@pytest.mark.parametrize("data", ["", "?", said({}), said({**END, "outcome": "?"})])
def test_without_its_words_the_state_is_the_end(data: str) -> None:
    found = mesos_outcome(status("r", "FAILED", **OURS, data=data, message="exit code 3"))
    assert (found.end, found.system, found.message) == (End.FAILED, False, "exit code 3")


@pytest.mark.parametrize(
    "reason", ["EXECUTOR_TERMINATED", "EXECUTOR_REREGISTRATION_TIMEOUT", "CONTAINER_LAUNCH_FAILED"]
)
def test_the_loss_of_the_executor_is_not_the_fault_of_its_tasks(reason: str) -> None:
    more = {"source": "SOURCE_AGENT", "reason": f"REASON_{reason}", "message": "why"}
    found = mesos_outcome(status("r", "FAILED", **OURS, **more))
    assert (found.end, found.system, found.reason) == (End.LOST, True, EXECUTOR_LOST)
    asked = mesos_outcome(status("r", "KILLED", **OURS, **more))
    assert (asked.end, asked.system) == (End.KILLED, False)
    others = mesos_outcome(status("r", "FAILED", **more))
    assert (others.end, others.system) == (End.FAILED, False)


# ---- what hosts have ----


def begun() -> Talk:
    talk = Talk(keeper=PROGRAM)
    talk.subscribe(agent())
    talk.order(m.PingBackend(H0))
    return talk.clear()


def executors_of(talk: Talk) -> list[str]:
    """Of each task that was launched; empty for one by the command executor."""
    return [
        task.get("executor", {}).get("executor_id", {}).get("value", "")
        for each in talk.called("ACCEPT")
        for task in each["operations"][0]["launch"]["task_infos"]
    ]


def test_a_host_has_less_room_by_what_the_executor_takes() -> None:
    talk = Talk(keeper=PROGRAM)
    talk.subscribe(agent(), agent("S1", "h1", total_resources=[scalar("cpus", 0.05)]))
    (appeared,) = talk.told(m.HostAppeared)
    assert appeared.capacity == Resources(4 * UNIT, 4096 * UNIT) - EXECUTOR_NEED
    assert talk.told(m.HostAppeared, Key("host/east.h1"))[0].capacity == Resources()


def test_a_full_host_goes_on_with_the_executor_that_it_has() -> None:
    talk = begun()
    talk.start(start(0, cpus=3.9))
    talk.offer()
    talk.start(start(1))
    talk.offer(offer("O2", cpus=1.0))
    first, second = executors_of(talk)
    assert first == second != ""


def failure(talk: Talk, executor: str) -> None:
    talk.hear("FAILURE", agent_id={"value": "S0"}, executor_id={"value": executor}, status=0)


def test_after_its_end_the_next_task_brings_another_with_its_room() -> None:
    talk = begun()
    talk.start(start(0))
    talk.offer()
    (executor,) = executors_of(talk)
    talk.update(status(name(0), "RUNNING", executor_id={"value": executor}, uuid="u"))
    failure(talk, executor)
    talk.clear().start(start(1))
    talk.offer(offer("O2", cpus=1.0))
    assert executors_of(talk) == [], "it has no room for the executor"
    talk.offer(offer("O3", cpus=0.05), offer("O4", cpus=0.05))
    assert executors_of(talk) == [executor]


def test_a_launch_without_room_for_an_executor_that_has_just_ended_is_placed_anew() -> None:
    talk = begun()
    talk.start(start(0))
    talk.offer()
    text = "Total resources cpus:1.1 required by task and its executor is more than available cpus"
    invalid = {"source": "SOURCE_MASTER", "reason": "REASON_TASK_INVALID", "message": text}
    talk.update(status(name(0), "ERROR", **invalid))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.system) == (End.LOST, True)
    talk.clear().start(start(1))
    talk.offer(offer("O2", cpus=1.0))
    assert executors_of(talk) == [], "its room is asked for again"


def test_where_it_ends_before_it_says_anything_tasks_run_by_mesos() -> None:
    talk = begun()
    for number in range(FAILED_STARTS_MAX):
        assert talk.it.agents.keeper_problem == ""
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        failure(talk, executors_of(talk)[0])
    assert "does not start on east.h0:" in talk.it.agents.keeper_problem
    talk.clear().start(start(9))
    talk.offer()
    assert executors_of(talk) == [""]


def test_the_agent_says_why_it_does_not_start() -> None:
    talk = begun()
    path = "/var/lib/mesos/" + "x" * 500
    for number in range(FAILED_STARTS_MAX):
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        (executor,) = executors_of(talk)
        said = {
            "source": "SOURCE_AGENT",
            "reason": "REASON_CONTAINER_LAUNCH_FAILED",
            "executor_id": {"value": executor},
            "message": f"Failed to chown '{path}': No such user 'nobody'",
        }
        talk.update(status(name(number), "FAILED", **said, uuid="u"))
        failure(talk, executor)
    problem = talk.it.agents.keeper_problem
    assert "; the agent says: " in problem and problem.endswith("': No such user 'nobody'")
    assert len(problem) < 500, "the path is cut"


def listed(id_: str, on: str = "S0", *, cpus: float = 0.25) -> Json:
    """An executor of this framework, as the master lists it."""
    resources = [scalar("cpus", cpus), scalar("mem", 64.0)]
    info = {"executor_id": {"value": id_}, "resources": resources}
    return {"agent_id": {"value": on}, "executor_info": info}


def test_what_executors_of_another_description_take_the_host_has_not() -> None:
    talk = begun()
    talk.start(start(0))
    talk.offer()
    (ours,) = executors_of(talk)
    whole = Resources(4 * UNIT, 4096 * UNIT) - EXECUTOR_NEED
    two = [listed(f"{PREFIX}old-{each}") for each in range(2)]
    strange = [listed("run-of-mesos"), listed(f"{PREFIX}old", "S7")]
    for executors, less in (([listed(ours), *two, *strange], 2), ([listed(ours), two[0]], 1)):
        talk.clear().agents(agent(), executors=executors)
        (appeared,) = talk.told(m.HostAppeared)
        assert appeared.capacity == whole - Resources(UNIT // 4 * less, 64 * UNIT * less)
        talk.clear().agents(agent(), executors=executors)
        assert talk.told(m.HostAppeared) == [], "nothing is new"
    talk.clear().agents(agent(), executors=[listed(ours), *strange])
    assert [each.capacity for each in talk.told(m.HostAppeared)] == [whole]


def test_one_that_is_taken_over_takes_no_more_than_is_kept_for_it() -> None:
    first = KeeperAt(PROGRAM).info(Bundle(offer("O")["resources"]))
    talk = Talk(keeper=PROGRAM)
    told = {"agent_id": {"value": "S0"}, "executor_info": first}
    old = listed(f"{PREFIX}old", cpus=9.0)
    talk.it.subscribed(talk.now)
    talk.agents(agent(), agent("S1", "h1"), executors=[told, {**old, "agent_id": {"value": "S1"}}])
    (appeared,) = talk.told(m.HostAppeared)
    assert appeared.capacity == Resources(4 * UNIT, 4096 * UNIT) - EXECUTOR_NEED
    (other,) = talk.told(m.HostAppeared, Key("host/east.h1"))
    assert other.capacity.cpu == 0 and other.capacity.memory == (4096 - 128) * UNIT
    talk.order(m.PingBackend(H0))
    talk.clear().start(start(0))
    talk.offer(offer("O1", cpus=1.0))
    assert executors_of(talk) == [first["executor_id"]["value"]]


def failed_start(talk: Talk, number: int) -> str:
    """What runs this task: our executor, which ends before it says anything; or empty."""
    talk.clear().start(start(number))
    talk.offer(offer(f"O{number}"))
    (executor,) = executors_of(talk)
    if executor:
        failure(talk, executor)
    return executor


def test_a_start_whose_task_was_killed_before_it_counts_for_nothing() -> None:
    talk = begun()
    early = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_UNREGISTERED"}
    for number in range(FAILED_STARTS_MAX + 1):
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        (executor,) = executors_of(talk)
        ours = {"executor_id": {"value": executor}}
        talk.update(status(name(number), "KILLED", **early, **ours, uuid="u"))
        assert talk.ends()[-1].outcome.end == End.KILLED
        failure(talk, executor)
    assert executor and talk.it.agents.keeper_problem == ""
    for number in range(8, 8 + FAILED_STARTS_MAX):
        assert talk.it.agents.keeper_problem == "", "of each start it is known anew"
        failed_start(talk, number)
    assert talk.it.agents.keeper_problem


def test_a_kill_of_a_task_of_another_executor_excuses_nothing() -> None:
    talk = begun()
    early = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_UNREGISTERED"}
    for number in range(FAILED_STARTS_MAX):
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        (executor,) = executors_of(talk)
        for other in ({}, {"executor_id": {"value": f"{PREFIX}other"}}):
            talk.update(status(name(7), "KILLED", **early, **other))
        failure(talk, executor)
    assert talk.it.agents.keeper_problem


def test_after_a_while_it_is_tried_once_more() -> None:
    talk = begun()
    for number in range(FAILED_STARTS_MAX):
        failed_start(talk, number)
    for tried in (10, 20):
        since = talk.now
        talk.now = since + START_AGAIN_S - 1.0
        talk.agents(agent())
        assert talk.it.agents.keeper_problem and failed_start(talk, tried) == ""
        talk.now = since + START_AGAIN_S
        talk.agents(agent())
        assert talk.it.agents.keeper_problem == ""
        assert failed_start(talk, tried + 1), "it is started"
        assert talk.it.agents.keeper_problem and failed_start(talk, tried + 2) == ""


def test_where_it_can_be_started_after_all_it_is_well() -> None:
    talk = begun()
    for number in range(FAILED_STARTS_MAX):
        failed_start(talk, number)
    talk.now += START_AGAIN_S
    talk.agents(agent())
    talk.clear().start(start(10))
    talk.offer(offer("O10"))
    (executor,) = executors_of(talk)
    talk.update(status(name(10), "RUNNING", executor_id={"value": executor}, uuid="u"))
    failure(talk, executor)
    for number in range(11, 11 + FAILED_STARTS_MAX - 1):
        failed_start(talk, number)
    assert talk.it.agents.keeper_problem == "", "that one is forgotten"


def test_an_agent_that_left_is_named_no_more() -> None:
    talk = begun()
    for number in range(FAILED_STARTS_MAX):
        failed_start(talk, number)
    talk.agents()
    assert talk.it.agents.keeper_problem == ""
    talk.now += START_AGAIN_S
    talk.agents(agent("S1", "h1"))


def test_one_that_has_said_something_may_end_as_often_as_it_likes() -> None:
    talk = begun()
    for number in range(FAILED_STARTS_MAX + 1):
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        (executor,) = executors_of(talk)
        talk.update(status(name(number), "RUNNING", executor_id={"value": executor}, uuid="u"))
        failure(talk, executor)
    assert executor and talk.it.agents.keeper_problem == ""
