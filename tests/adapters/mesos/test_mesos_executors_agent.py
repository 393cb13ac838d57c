"""Our executor at an agent that does what a real one does once in a year.

Whatever it does, no task is begun twice or left behind, and each end is told until it is
acknowledged. The executor and its tasks are processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peloton.actors.host.messages import StartRun
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.mesos.executor.agent_environment import (
    EDITION,
    EDITION_VARIABLE,
    IDLE_VARIABLE,
)
from peloton.backends.mesos.executor.guardian import SIGNAL_BASE
from peloton.backends.mesos.runs.keeper_tasks import default_command, keeper_data
from tests.adapters.mesos.test_mesos_executor import executor_processes
from tests.e2e.cluster import until_there
from tests.servers import leftovers
from tests.servers.held_secrets import held_secrets
from tests.servers.mesos import until
from tests.servers.scripted_executors_agent import ScriptedExecutorsAgent
from tests.servers.scripted_http import Event, Reply

A, B, C = "a-0-1", "b-0-1", "c-0-1"
NEED = Resources(UNIT // 10, 32 * UNIT)
EXIT_S_MAX = 60.0
pytestmark = pytest.mark.timeout(120)


class ExecutorRig:
    """An executor that its agent has started, and tasks that note their runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sandbox = folder, folder / "sandbox"
        self.sandbox.mkdir()
        self.agent = ScriptedExecutorsAgent()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> None:
        """Start it; `more` is said by its environment as well."""
        told = {
            "MESOS_FRAMEWORK_ID": "F", "MESOS_EXECUTOR_ID": "E", "MESOS_CHECKPOINT": "1",
            "MESOS_AGENT_ENDPOINT": self.agent.address, "MESOS_SANDBOX": str(self.sandbox),
            "MESOS_RECOVERY_TIMEOUT": "15mins", IDLE_VARIABLE: "600", "PATH": os.environ["PATH"],
            EDITION_VARIABLE: EDITION,
        }  # fmt: skip
        self.process = subprocess.Popen(
            default_command(), shell=True, cwd=self.sandbox, env=told | more,
            stdin=subprocess.DEVNULL, stderr=(self.folder / "errors").open("wb"),
        )  # fmt: skip

    def launch(self, *names: str) -> None:
        """Tasks that note their run, wait for their gate, and end with 3."""
        for name in names:
            value = f"echo {name} >> {self.folder}/ran; {until_there(self.gate(name))}; exit 3"
            self.agent.launch(name, keeper_data(StartRun(name, RunSpec(NEED, value))))

    def begun(self, *names: str) -> None:
        """The same, and they run, and have said so."""
        self.launch(*names)
        for name in names:
            self.agent.wait_update(name, "TASK_RUNNING")
            until(lambda name=name: name in self.noted() or None, f"{name} has noted nothing")  # type: ignore[misc]

    def noted(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def gate(self, name: str) -> Path:
        return self.folder / f"{name}.gate"

    def ends(self, *names: str) -> None:
        """Let these end, which they do as they must."""
        for name in names:
            self.gate(name).touch()
        for name in names:
            status = self.agent.wait_update(name, "TASK_FAILED")
            assert status["message"] == "exit code 3"

    def exits(self) -> str:
        """It ends by itself, and leaves nothing behind; its last words."""
        assert self.process is not None
        assert self.process.wait(EXIT_S_MAX) == 0
        until(lambda: not leftovers.below(self.folder) or None, "something is left")
        return (self.folder / "errors").read_text().splitlines()[-1]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        leftovers.end_below(self.folder)
        self.agent.__exit__()

    def each_ran_once(self, *names: str) -> None:
        assert sorted(self.noted()) == sorted(names)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ExecutorRig]:
    made = ExecutorRig(tmp_path.resolve())
    made.start()
    yield made
    made.close()


def names_of(tasks: list[Event]) -> list[str]:
    return [one["task_id"]["value"] for one in tasks]


def states_of(said: Event) -> list[tuple[str, str]]:
    """What a subscription says of tasks."""
    each = (update["status"] for update in said["unacknowledged_updates"])
    return [(status["task_id"]["value"], status["state"]) for status in each]


# ---- the stream ----

BREAKS: dict[str, tuple[Callable[[ScriptedExecutorsAgent], object], str]] = {
    "no JSON": (lambda agent: agent.send_record(b'{"type": "LAU'), "no JSON"),
    "no event": (lambda agent: agent.send_record(b"[1, 2]"), "AttributeError"),
    "an event without its parts": (lambda agent: agent.say("LAUNCH"), "KeyError"),
    "a length that is none": (lambda agent: agent.send_bytes(b"nonsense\n{}"), "no number"),
    "cut in a record": (lambda agent: agent.cut_in_record(), "closed the connection"),
    "dropped": (lambda agent: agent.drop_stream(), "closed the connection"),
    "ended": (lambda agent: agent.end_stream(), "has ended"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_stream_that_breaks_is_followed_by_another(rig: ExecutorRig, name: str) -> None:
    break_it, why = BREAKS[name]
    rig.begun(A)
    before = rig.agent.wait_subscribed()
    break_it(rig.agent)
    rig.agent.wait_subscribed(but=before)
    assert why in (rig.folder / "errors").read_text()
    rig.begun(B)
    rig.ends(A, B)
    rig.each_ran_once(A, B)


def test_a_call_that_is_refused_is_said_with_the_next_subscription(rig: ExecutorRig) -> None:
    rig.begun(A)
    before = rig.agent.wait_subscribed()
    rig.agent.reply("UPDATE", Reply(500, "not now"))
    rig.ends(A)
    rig.agent.wait_subscribed(but=before)
    assert "a call was refused: 500 not now" in (rig.folder / "errors").read_text()
    again = rig.agent.wait_calls("SUBSCRIBE", 2)[1]
    assert states_of(again) == [(A, "TASK_FAILED")] and not again["unacknowledged_tasks"]
    rig.begun(B)
    rig.ends(B)
    rig.each_ran_once(A, B)


def test_an_agent_that_recovers_is_asked_until_it_is_there(rig: ExecutorRig) -> None:
    rig.begun(A)
    before = rig.agent.wait_subscribed()
    rig.agent.reply("SUBSCRIBE", *[Reply(503, "Agent has not finished recovery")] * 2)
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    assert len(rig.agent.wait_calls("SUBSCRIBE")) == 4
    rig.ends(A)
    rig.each_ran_once(A)


# ---- updates ----


def test_what_was_not_acknowledged_goes_with_each_subscription(rig: ExecutorRig) -> None:
    rig.agent.acknowledgements = 0
    rig.begun(A, B)
    rig.ends(A)
    before = rig.agent.wait_subscribed()
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    again = rig.agent.wait_calls("SUBSCRIBE", 2)[1]
    assert names_of(again["unacknowledged_tasks"]) == [A, B]
    open_ = [(A, "TASK_RUNNING"), (A, "TASK_FAILED"), (B, "TASK_RUNNING")]
    assert states_of(again) == open_
    ids = [update["status"]["uuid"] for update in again["unacknowledged_updates"]]
    before, rig.agent.acknowledgements = rig.agent.wait_subscribed(), 1
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    third = rig.agent.wait_calls("SUBSCRIBE", 3)[2]
    assert [update["status"]["uuid"] for update in third["unacknowledged_updates"]] == ids
    rig.ends(B)
    before = rig.agent.wait_subscribed()
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    last = rig.agent.wait_calls("SUBSCRIBE", 4)[3]
    assert last == {"unacknowledged_tasks": [], "unacknowledged_updates": []}
    rig.each_ran_once(A, B)


def test_acknowledgements_that_come_twice_or_of_nobody_change_nothing(rig: ExecutorRig) -> None:
    rig.agent.acknowledgements = 2
    rig.begun(A, B)
    rig.agent.acknowledge(B, "AAAAAAAAAAAAAAAAAAAAAA==")
    rig.agent.acknowledge(C, "AAAAAAAAAAAAAAAAAAAAAA==")
    rig.ends(A, B)
    before = rig.agent.wait_subscribed()
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    assert not rig.agent.wait_calls("SUBSCRIBE", 2)[1]["unacknowledged_updates"]
    assert len(rig.agent.wait_calls("UPDATE", 4)) == 4, "each was told once"
    rig.begun(C)
    rig.ends(C)
    rig.each_ran_once(A, B, C)


# ---- secrets ----


def test_a_task_has_its_secret_and_nobody_is_told_of_it(rig: ExecutorRig) -> None:
    value, gate = f"canary-{uuid.uuid4()}", rig.gate(A)
    shell = f"cat sub/token > {rig.folder}/read; {until_there(gate)}"
    run = StartRun(A, RunSpec(NEED, shell))
    rig.agent.acknowledgements = 0
    rig.agent.launch(A, keeper_data(run, (RunSecret("sub/token", value.encode()),)))
    rig.agent.wait_update(A, "TASK_RUNNING")
    until(lambda: (rig.folder / "read").exists() or None, "it has read nothing")
    file = held_secrets()[value.encode()]
    assert not file.is_relative_to(rig.folder)
    assert (rig.sandbox / "runs" / A / "sub" / "token").resolve() == file
    before = rig.agent.wait_subscribed()
    rig.agent.drop_stream()
    rig.agent.wait_subscribed(but=before)
    (task,) = rig.agent.wait_calls("SUBSCRIBE", 2)[1]["unacknowledged_tasks"]
    assert task == {"name": A, "task_id": {"value": A}}, "without what it was told"
    gate.touch()
    rig.agent.wait_update(A, "TASK_FINISHED")
    assert (rig.folder / "read").read_text() == value and value.encode() not in held_secrets()
    (rig.folder / "read").unlink()
    written = [one for one in rig.folder.rglob("*") if one.is_file()]
    assert not [one for one in written if value.encode() in one.read_bytes()]
    assert not [call for call in rig.agent.calls if value in str(call)]
    rig.agent.say("SHUTDOWN")
    rig.exits()
    assert not file.parent.parent.exists(), "it leaves nothing"


def test_what_an_executor_that_is_killed_has_of_secrets_its_guardian_removes(
    rig: ExecutorRig,
) -> None:
    value = f"canary-{uuid.uuid4()}"
    run = StartRun(A, RunSpec(NEED, until_there(rig.gate(A))))
    rig.agent.launch(A, keeper_data(run, (RunSecret("token", value.encode()),)))
    rig.agent.wait_update(A, "TASK_RUNNING")
    file = held_secrets()[value.encode()]
    _, executor = executor_processes(rig.folder)
    os.kill(executor, signal.SIGKILL)
    assert rig.process is not None
    assert rig.process.wait(EXIT_S_MAX) == SIGNAL_BASE + signal.SIGKILL
    assert not file.exists() and not file.parent.parent.exists()


def test_a_secret_whose_place_is_taken_is_no_fault_of_the_program(rig: ExecutorRig) -> None:
    value = f"canary-{uuid.uuid4()}"
    secrets = tuple(RunSecret(path, value.encode()) for path in ("token", "token/below"))
    rig.agent.launch(A, keeper_data(StartRun(A, RunSpec(NEED, "true")), secrets))
    said = rig.agent.wait_update(A, "TASK_DROPPED")
    assert "its secrets" in said["message"] and value not in said["message"]
    assert value.encode() not in held_secrets()


# ---- orders ----


def test_a_launch_of_what_is_there_and_a_kill_of_what_is_not(rig: ExecutorRig) -> None:
    """Also after the end, while that is not acknowledged."""
    rig.begun(A)
    rig.agent.acknowledgements = 0
    rig.launch(A)
    rig.agent.kill(B)
    rig.ends(A)
    rig.launch(A)
    rig.agent.kill(A)
    rig.begun(C)
    rig.agent.kill(C)
    rig.agent.wait_update(C, "TASK_KILLED")
    assert len(rig.agent.wait_calls("UPDATE")) == 4, "two of each"
    rig.each_ran_once(A, C)


def test_a_shutdown_ends_it_and_its_tasks_are_lost(rig: ExecutorRig) -> None:
    rig.begun(A, B)
    rig.agent.say("SHUTDOWN")
    for name in (A, B):
        assert rig.agent.wait_update(name, "TASK_DROPPED")["message"] == "the agent said so"
    assert rig.exits().endswith("over: the agent said so")
    rig.each_ran_once(A, B)


def test_an_agent_that_does_not_know_it_ends_it(rig: ExecutorRig) -> None:
    rig.begun(A)
    rig.agent.reply("SUBSCRIBE", Reply(400, "Executor cannot be found"))
    rig.agent.drop_stream()
    assert "does not know this executor: status 400: Executor cannot be found" in rig.exits()


# ---- an agent that stays away ----


@pytest.fixture
def tied(tmp_path: Path) -> Iterator[ExecutorRig]:
    """One that is not started yet."""
    made = ExecutorRig(tmp_path.resolve())
    yield made
    made.close()


@pytest.mark.parametrize("reply", [Reply(0), Reply(503)], ids=["never answers", "never recovers"])
def test_an_agent_is_waited_for_as_long_as_it_said(tied: ExecutorRig, reply: Reply) -> None:
    tied.start(MESOS_RECOVERY_TIMEOUT="1secs")
    tied.begun(A)
    tied.agent.reply("SUBSCRIBE", *[reply] * 1000)
    tied.agent.drop_stream()
    assert tied.exits().endswith("over: the agent did not come back in time")
    tied.each_ran_once(A)


def test_where_nothing_is_checkpointed_it_ends_with_its_agent(tied: ExecutorRig) -> None:
    tied.start(MESOS_CHECKPOINT="0")
    tied.begun(A)
    tied.agent.drop_stream()
    assert tied.exits().endswith("over: the agent has left, and recovers nothing")
    assert len(tied.agent.wait_calls("SUBSCRIBE")) == 1
