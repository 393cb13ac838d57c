"""Our executor at a real agent: exact ends, kills, and what survives which death.

The tasks' own notes say how often each ran.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.messages import RunEnd, StartRun
from peloton.actors.resources import UNIT
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.keeper.kinds import OVER_MEMORY
from peloton.backends.mesos.executor.talk import EXECUTOR_LOST
from peloton.backends.mesos.runs.keeper_tasks import (
    CHOICE,
    COMMAND,
    EXECUTOR_NEED,
    FAILED_STARTS_MAX,
    PREFIX,
    default_command,
)
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key
from tests.adapters.mesos.mesos_jobs import running
from tests.e2e.cluster import until_there
from tests.servers.mesos import Mesos, ask, until
from tests.servers.mesos_hosts import MesosHosts, framework, order

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    with running(tmp_path / "mesos", agents=1) as found:
        yield found


@pytest.fixture
def hosts(mesos: Mesos) -> Iterator[MesosHosts]:
    with MesosHosts(framework(mesos.address)) as found:
        yield found


def executors(mesos: Mesos) -> list[str]:
    """The ids of the executors of agent 1 that live, as it says."""
    state: Any = until(lambda: ask(mesos.agents[0].port, "/state"), "the agent said nothing")
    return [one["id"] for each in state["frameworks"] for one in each["executors"]]


def processes_of(text: str) -> list[int]:
    """Those with this in their command line, the oldest first."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if text in words:
                    found.append(int(folder.name))
            except OSError:  # it has ended
                continue
    return sorted(found)


def executor_processes(folder: Path) -> tuple[int, int]:
    """The guardian, and the executor itself, of the one agent in this folder."""
    mine = []
    for pid in processes_of("mesos/executor/__main__.py"):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode()
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # one of another folder that has ended
            continue
        if f"{folder}/" in environment:
            mine.append((pid, int(parent)))
    pids = {pid for pid, _ in mine}
    (inner,) = [pid for pid, parent in mine if parent in pids]
    (outer,) = [parent for pid, parent in mine if pid == inner]
    return outer, inner


def noting(folder: Path, gate: Path, code: int) -> StartRun:
    """A run that notes itself, waits for the gate, and ends with this code."""
    return order(f"echo $PELOTON_POD_ID >> {folder}/ran; {until_there(gate)}; exit {code}")


def placed(hosts: MesosHosts, value: str) -> RunEnd:
    """The end of a run that is placed anew as long as it is lost with an executor that ends: the
    master, the agent and we learn of that one behind the other."""
    while True:
        (end,) = hosts.wait_ended(hosts.start(hosts.host(), order(value)))
        if not end.outcome.system:
            return end
        assert end.outcome.reason == EXECUTOR_LOST


def each_ran_once(folder: Path, names: list[str]) -> None:
    assert sorted((folder / "ran").read_text().split()) == sorted(names)


def test_ends_are_exact_and_one_executor_has_all(mesos: Mesos, hosts: MesosHosts) -> None:
    host = hosts.host()
    names = hosts.start(
        host,
        order("exit 0"),
        order("exit 130"),
        order("kill -TERM $$"),
        order('[ "$A" = 1 ] && [ "$PWD" = "$MESOS_SANDBOX" ]', environment=(("A", "1"),)),
        order("no-such-program", shell=False),
        order("echo out; echo err >&2"),
    )
    ends = [end.outcome for end in hosts.wait_ended(names)]
    assert ends[:4] == [
        RunOutcome(End.SUCCEEDED, 0, reason="exited", message="exit code 0"),
        RunOutcome(End.FAILED, 130, reason="exited", message="exit code 130"),
        RunOutcome(
            End.FAILED, None, "SIGTERM", "ended by a signal", "signal 15 (SIGTERM)"
        ),
        RunOutcome(End.SUCCEEDED, 0, reason="exited", message="exit code 0"),
    ]  # fmt: skip
    assert (ends[4].end, ends[4].exit_code) == (End.FAILED, 127)
    (running,) = executors(mesos)
    assert running.startswith(PREFIX)
    logs = [*mesos.folder.glob(f"agent1/work/slaves/**/{running}/runs/*/runs/{names[5]}/std*")]
    assert {one.name: one.read_text() for one in logs} == {"stdout": "out\n", "stderr": "err\n"}


def test_a_kill_waits_for_its_grace_and_no_longer(hosts: MesosHosts, tmp_path: Path) -> None:
    host, gate = hosts.host(), tmp_path / "gate"
    waits = f"touch {tmp_path}/$PELOTON_POD_ID; {until_there(gate)}"
    good, bad = hosts.start(
        host, order(f"trap 'exit 7' TERM; {waits}"), order(f"trap '' TERM; {waits}")
    )
    until(lambda: all((tmp_path / one).exists() for one in (good, bad)) or None, "traps")
    hosts.stop(host, good, grace_s=60.0)
    hosts.stop(host, bad, grace_s=0.1)
    obeyed, forced = (end.outcome for end in hosts.wait_ended([good, bad]))
    assert (obeyed.end, obeyed.exit_code, obeyed.signal) == (End.KILLED, 7, "")
    assert (forced.end, forced.exit_code, forced.signal) == (End.KILLED, None, "SIGKILL")


def test_a_task_with_too_much_memory_ends_and_its_neighbour_goes_on(
    hosts: MesosHosts, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    code = "import time; kept = b'x' * (200 << 20); time.sleep(1000)"
    host, greedy = hosts.host(), f"exec {sys.executable} -S -c {shlex.quote(code)}"
    names = hosts.start(host, order(greedy), noting(tmp_path, gate, 3))
    (end,) = hosts.wait_ended(names[:1])
    assert (end.outcome.end, end.outcome.reason) == (End.FAILED, OVER_MEMORY)
    gate.touch()
    assert hosts.wait_ended(names)[1].outcome.exit_code == 3


def test_an_agent_that_recovers_loses_and_doubles_no_run(
    mesos: Mesos, hosts: MesosHosts, tmp_path: Path
) -> None:
    host, first, second = hosts.host(), tmp_path / "first", tmp_path / "second"
    early = hosts.start(host, *(noting(tmp_path, first, number % 3) for number in range(6)))
    late = hosts.start(host, *(noting(tmp_path, second, number % 3) for number in range(6)))
    hosts.wait_started([*early, *late])
    before = executors(mesos)
    mesos.agents[0].kill()
    first.touch()  # these end while there is no agent
    mesos.restart(mesos.agents[0])
    ends = hosts.wait_ended(early)
    assert [end.outcome.exit_code for end in ends] == [number % 3 for number in range(6)]
    assert executors(mesos) == before
    second.touch()
    ends = hosts.wait_ended(late)
    assert [end.outcome.exit_code for end in ends] == [number % 3 for number in range(6)]
    more = hosts.start(host, order("exit 5"))
    assert hosts.wait_ended(more)[0].outcome.exit_code == 5
    assert executors(mesos) == before
    each_ran_once(tmp_path, [*early, *late])


def test_at_an_agent_that_began_anew_nothing_of_before_runs_on(
    mesos: Mesos, hosts: MesosHosts, tmp_path: Path
) -> None:
    host, agent = hosts.host(), mesos.agents[0]
    names = hosts.start(host, order(f"echo $$ > {tmp_path}/pid; sleep 1000"))
    note = tmp_path / "pid"
    until(lambda: note.exists() and note.read_text() or None, "no note")
    agent.kill()
    for part in ("work/meta", "run"):
        shutil.rmtree(agent.folder / part)
    mesos.restart(agent)
    pid = int(note.read_text())
    until(lambda: not Path(f"/proc/{pid}/exe").exists() or None, "it runs on")
    assert not hosts.ends.keys() & {*names} or hosts.ends[names[0]].outcome.end is End.LOST


def test_a_kill_before_the_executor_is_there_is_no_loss(hosts: MesosHosts) -> None:
    host = hosts.host()
    names = hosts.start(host, order("sleep 1000"))
    hosts.stop(host, *names, grace_s=0.1)
    assert hosts.wait_ended(names)[0].outcome.end is End.KILLED


def test_starts_that_kills_made_needless_are_no_failures(mesos: Mesos, tmp_path: Path) -> None:
    """Each time the agent ends it when it is there, as it has no task left."""
    gate = tmp_path / "gate"
    slow = f"{until_there(gate)}; {default_command()}"
    with MesosHosts(framework(mesos.address, command=slow)) as hosts:
        host = hosts.host()
        for _ in range(FAILED_STARTS_MAX + 2):
            names = hosts.start(host, order("exit 0"))
            (running,) = until(lambda: executors(mesos) or None, "no executor")
            assert running.startswith(PREFIX)
            hosts.stop(host, *names, grace_s=0.1)
            assert hosts.wait_ended(names)[0].outcome.end is End.KILLED
            gate.touch()
            until(lambda: not executors(mesos) or None, "the executor stays")
            gate.unlink()
        assert not hosts.problem


@pytest.mark.parametrize("which", ["guardian", "executor"])
def test_what_a_killed_executor_had_is_lost_and_the_next_goes_on(
    mesos: Mesos, hosts: MesosHosts, tmp_path: Path, which: str
) -> None:
    host, gate = hosts.host(), tmp_path / "never"
    escape = f"setsid sh -c 'echo $$ > {tmp_path}/far; exec sleep 1000' & {until_there(gate)}"
    names = hosts.start(host, order(escape), order(f"echo $$ > {tmp_path}/near; sleep 1000"))
    notes = tmp_path / "far", tmp_path / "near"
    until(lambda: all(one.exists() and one.read_text() for one in notes) or None, "no notes")
    guardian, executor = executor_processes(mesos.folder)
    os.kill(guardian if which == "guardian" else executor, signal.SIGKILL)
    for end in hosts.wait_ended(names):
        assert (end.outcome.end, end.outcome.system) == (End.LOST, True)
        assert end.outcome.reason == EXECUTOR_LOST
    pids = [int(one.read_text()) for one in notes]
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids) or None, "it runs on")
    assert placed(hosts, "exit 4").outcome.exit_code == 4
    assert not hosts.problem


def test_it_is_released_when_it_has_nothing_to_do(mesos: Mesos) -> None:
    with MesosHosts(framework(mesos.address, idle_s=0.5)) as hosts:
        for code in (1, 2):
            assert placed(hosts, f"exit {code}").outcome.exit_code == code
            until(lambda: not executors(mesos) or None, "the executor stays")
        assert not hosts.problem


def test_a_full_host_has_room_for_the_executor(mesos: Mesos, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with MesosHosts(framework(mesos.address)) as hosts:
        host = hosts.host()
        capacity = hosts.capacity[host]
        assert (
            capacity.cpu == 8 * UNIT - EXECUTOR_NEED.cpu
            and capacity.memory == 8192 * UNIT - EXECUTOR_NEED.memory
        )
        halves = [
            order(until_there(gate), cpus=capacity.cpu / UNIT / 2, memory_mb=4064) for _ in "ab"
        ]
        names = hosts.start(host, *halves)
        hosts.wait_started(names)
        assert not hosts.ends
        gate.touch()
        hosts.wait_ended(names)


def test_services_and_who_asks_for_it_have_an_executor_of_mesos(
    mesos: Mesos, hosts: MesosHosts
) -> None:
    by_label = order("exit 3", labels=(Label(CHOICE, COMMAND),))
    names = hosts.start(hosts.host(), order("exit 2", asks=True), by_label)
    ends = hosts.wait_ended(names)
    assert [end.outcome.exit_code for end in ends] == [2, 3], ends
    assert not [one for one in executors(mesos) if one.startswith(PREFIX)]


def test_the_next_subscription_finds_the_executor_that_there_is(
    mesos: Mesos, tmp_path: Path
) -> None:
    known, gate = framework(mesos.address), tmp_path / "gate"
    with MesosHosts(known) as hosts:
        first = hosts.start(hosts.host(), noting(tmp_path, gate, 1))
        hosts.wait_started(first)
    with MesosHosts(known) as hosts:
        second = hosts.start(hosts.host(), noting(tmp_path, gate, 2))
        hosts.wait_started(second)
        assert len(executors(mesos)) == 1
        gate.touch()
        assert [end.outcome.exit_code for end in hosts.wait_ended([*first, *second])] == [1, 2]
    each_ran_once(tmp_path, [*first, *second])


def test_another_framework_has_an_executor_of_its_own(mesos: Mesos) -> None:
    with MesosHosts(framework(mesos.address)) as ours:
        assert placed(ours, "exit 1").outcome.exit_code == 1
        with MesosHosts(framework(mesos.address)) as others:
            assert placed(others, "exit 2").outcome.exit_code == 2
            assert len(executors(mesos)) == 2


def test_where_it_cannot_be_started_tasks_have_an_executor_of_mesos(mesos: Mesos) -> None:
    with MesosHosts(framework(mesos.address, command="exec /no/such/program")) as hosts:
        host: Key = hosts.host()
        lost: list[Any] = []
        until_s = time.monotonic() + 120.0
        while time.monotonic() < until_s:
            (end,) = hosts.wait_ended(hosts.start(host, order("exit 6")))
            if end.outcome.exit_code == 6:
                break
            lost.append(end.outcome)
        assert lost and {(one.end, one.system) for one in lost} == {(End.LOST, True)}
        hosts.wait(
            lambda: "backend.mesos.executor" in hosts.problems.get("cluster east executors", "")
        )
