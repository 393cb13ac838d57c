"""The backend over a real keeper, as hosts and health see it: hangs, nonsense, lost words.

Turns orders of hosts into what they are told. Tests wait for words with a deadline, never for a
time to pass.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.host.machine_messages import PortsInUse, SlackReported
from peloton.actors.host.run_spec import MesosWords, Port, RunSpec, Uri
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import HealthCheck, HttpProbe, LiveRun
from peloton.backends import process
from peloton.backends.gpu_words import gpu_variables
from peloton.backends.keeper.kinds import NO_IMAGES
from peloton.backends.keeper_messages import (
    RUN_BYTES_MAX,
    RunLimits,
    RunReport,
    RunRequest,
    wire_form,
)
from peloton.backends.keeper_requests import KeeperHeartbeat
from peloton.backends.process_runs import KeeperSettings
from peloton.backends.secrets_first import NO_VALUES
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, Message
from tests.fake_engine import install

HOST, OTHER = Key("host/a"), Key("host/b")
DEADLINE_S = float(os.environ.get("PELOTON_TEST_DEADLINE_S", "60"))
SILENT_S = 0.2
"""For a keeper that was stopped; a busy machine keeps any other one silent for longer."""


class Hosts:
    """All that hosts were told, in order, and what health says."""

    def __init__(self) -> None:
        self.words: list[tuple[Key, Message]] = []
        self.troubles: dict[str, str] = {}
        self._changed = threading.Condition()
        self._at = 0

    def tell(self, envelopes: Iterable[Envelope]) -> None:
        with self._changed:
            self.words += [(envelope.to, envelope.message) for envelope in envelopes]
            self._changed.notify_all()

    def trouble(self, name: str, text: str) -> None:
        self.troubles[name] = text

    def next_report(self, kind: type, to: Key = HOST) -> Any:
        """The next word of a kind to a host; those before it are passed over."""

        def there() -> bool:
            while self._at < len(self.words):
                found, message = self.words[self._at]
                self._at += 1
                if found == to and isinstance(message, kind):
                    return True
            return False

        with self._changed:
            assert self._changed.wait_for(there, DEADLINE_S), f"no {kind.__name__}: {self.words}"
            return self.words[self._at - 1][1]


class Machine:
    """The backend of two hosts."""

    def __init__(
        self, folder: Path, *, silent_max_s: float = DEADLINE_S, slack_s: float | None = None
    ) -> None:
        self.hosts = Hosts()
        self.backend = process.ProcessBackend(folder, ["a", "b"], silent_max_s=silent_max_s)
        self.backend.measured_slack_s = slack_s
        self.backend.start(self.hosts.tell, self.hosts.trouble)

    def order(self, *messages: Message) -> None:
        list(
            self.backend.receive(
                [Envelope(process.PROCESS_BACKEND, each) for each in messages], 0.0
            )
        )

    def ends(self, count: int, to: Key = HOST) -> dict[str, RunOutcome]:
        """How the next so many runs of a host ended, by run; one report may tell of several."""
        found: dict[str, RunOutcome] = {}
        while len(found) < count:
            reported = self.hosts.next_report(m.RunsEnded, to)
            found |= {end.run: end.outcome for end in reported.ends}
        return found


def start(run: str, value: str = "true", **environment: str) -> m.StartRun:
    return m.StartRun(run, RunSpec(Resources(UNIT), value, environment=tuple(environment.items())))


@pytest.fixture
def machine(folder: Path) -> Iterator[Machine]:
    made = Machine(folder)
    yield made
    made.backend.close()


def test_a_keeper_is_started_with_the_rules_for_sandboxes(folder: Path) -> None:
    settings = KeeperSettings(sandboxes_kept_max=7, sandboxes_kept_s=60.5, sandboxes_kept_mb=9)
    backend, hosts = process.ProcessBackend(folder, ["a"], keeper=settings), Hosts()
    backend.start(hosts.tell, hosts.trouble)
    try:
        hosts.next_report(m.BackendUp)
        lines = [_words(Path("/proc") / name) for name in os.listdir("/proc") if name.isdigit()]
    finally:
        backend.close()
    told = [words[words.index(str(folder)) + 1 :] for words in lines if str(folder) in words]
    assert len(told) == 2, "the keeper, and its supervisor, which would start another"
    for given in told:
        assert given[: len(settings)] == [str(setting) for setting in settings]


def test_an_epoch_above_ours_that_the_keeper_obeyed_is_told(folder: Path) -> None:
    """As after a restore of the journal: without it the host would wait for a list for ever."""
    later = Machine(folder)
    later.order(m.ListRuns(HOST, 7, 1.0))
    later.hosts.next_report(m.RunsListed)
    later.backend.close()
    seen: list[tuple[Key, int]] = []
    told = threading.Event()
    backend, hosts = process.ProcessBackend(folder, ["a"]), Hosts()
    backend.epoch_obeyed = lambda host, epoch: (seen.append((host, epoch)), told.set())
    backend.start(hosts.tell, hosts.trouble)
    try:
        order = Envelope(process.PROCESS_BACKEND, m.ListRuns(HOST, 3, 1.0))
        list(backend.receive([order], 0.0))
        assert told.wait(DEADLINE_S)
    finally:
        backend.close()
    assert {*seen} == {(HOST, 7)}


def _words(of: Path) -> list[str]:
    try:
        return (of / "cmdline").read_text().split("\0")
    except OSError:  # it has ended
        return []


def test_an_end_is_told_with_its_time(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.StartRuns(HOST, 1, (start("r-0-1", "exit 3"),)))
    (end,) = machine.hosts.next_report(m.RunsEnded).ends
    assert (end.run, end.outcome.exit_code) == ("r-0-1", 3) and end.at > 1e9
    machine.order(m.ListRuns(HOST, 1))
    (listed,) = machine.hosts.next_report(m.RunsListed).ends
    assert replace(listed, started_at=None) == end, "only a list tells of the start as well"
    assert listed.started_at is not None and 1e9 < listed.started_at <= listed.at


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param(start("../escape"), id="no name for a folder"),
        pytest.param(start("big-0-1", A="x" * RUN_BYTES_MAX), id="too large"),
        pytest.param(m.StartRun("odd-0-1", RunSpec(Resources(0, "x"), "")), id="no number"),  # type: ignore[arg-type]
        pytest.param(m.StartRun("odd-0-1", RunSpec(Resources(), b"x")), id="no text"),  # type: ignore[arg-type]
        pytest.param(
            m.StartRun("odd-0-1", RunSpec(Resources(), "true", uris=(Uri("x"),))),
            id="files to fetch",
        ),
        pytest.param(
            m.StartRun("odd-0-1", RunSpec(Resources(), "true", mesos=MesosWords("{}"))),
            id="an executor of Mesos",
        ),
    ],
)
def test_a_poison_order_fails_its_own_run_only(machine: Machine, poison: m.StartRun) -> None:
    machine.hosts.next_report(m.BackendUp)
    runs = (start("r-0-1"), poison, start("r-1-1"))
    machine.order(m.StartRuns(HOST, 1, runs), m.StartRuns(OTHER, 1, (start("o-0-1"),)))
    ends = machine.ends(len(runs))
    refused = ends.pop(poison.run)
    assert refused.end == End.FAILED and refused.message.startswith("cannot be ordered: ")
    assert {run: outcome.end for run, outcome in ends.items()} == dict.fromkeys(
        ("r-0-1", "r-1-1"), End.SUCCEEDED
    )
    assert machine.backend.stop_all(DEADLINE_S)


def test_the_keeper_refuses_one_run_not_the_line(machine: Machine) -> None:
    """What only the keeper sees to be nonsense: the connection and all other runs live on."""
    machine.hosts.next_report(m.BackendUp)
    assert machine.backend._runs is not None
    good, _ = wire_form(RunRequest("r-0-1", "a", "true"))
    runs = [{"run": "bad-0-1", "value": "true"}, {**good, "run": "../x"}, good]
    machine.backend._runs._ask({"q": "launch", "host": "a", "epoch": 1, "runs": runs})
    assert {run: outcome.end for run, outcome in machine.ends(3).items()} == {
        "bad-0-1": End.FAILED,
        "../x": End.FAILED,
        "r-0-1": End.SUCCEEDED,
    }


def test_after_a_kill_of_what_the_keeper_does_not_know_the_host_compares(
    machine: Machine,
) -> None:
    """Else the host would wait for ever for the end of a run whose order was lost."""
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.StopRuns(HOST, 1, ("lost-0-1",), 1.0))
    machine.hosts.next_report(m.BackendUp)


def test_a_host_compares_once_for_all_its_unknown_runs(machine: Machine) -> None:
    for host in (HOST, OTHER):
        machine.hosts.next_report(m.BackendUp, host)
    for at in (1.0, 2.0):
        before = len(machine.hosts.words)
        machine.order(m.StopRuns(HOST, 1, tuple(f"lost-{n}-1" for n in range(50)), 1.0))
        machine.order(m.ListRuns(OTHER, 1, at))
        machine.hosts.next_report(m.RunsListed, OTHER)  # so all kills were answered
        words = [word for word in machine.hosts.words[before:] if word[0] == HOST]
        assert words == [(HOST, m.BackendUp())]
        machine.order(m.ListRuns(HOST, 1, at))
        assert machine.hosts.next_report(m.RunsListed).asked_at == at


def test_a_list_has_the_time_of_its_own_request(machine: Machine, folder: Path, procs: Any) -> None:
    """A list that is made at a reconnect is older than the next request: with that one's time, or
    with ours, it would count as lost what was accepted meanwhile and is about to start."""
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.ListRuns(HOST, 1, 3.0), m.ListRuns(HOST, 1, 4.0))
    assert [machine.hosts.next_report(m.RunsListed).asked_at for _ in range(2)] == [3.0, 4.0]
    os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    machine.hosts.next_report(m.BackendDown)
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.ListRuns(HOST, 1, 9.0))
    times = [machine.hosts.next_report(m.RunsListed).asked_at for _ in range(2)]
    assert times == [-math.inf, 9.0]


def test_a_refused_list_leaves_its_time_to_no_other(folder: Path, machine: Machine) -> None:
    """Another daemon had the host for a while; then it is ours again."""
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.ListRuns(HOST, 1, 3.0))
    assert machine.hosts.next_report(m.RunsListed).asked_at == 3.0
    second = Machine(folder)
    second.hosts.next_report(m.BackendUp)
    second.order(m.ListRuns(HOST, 2, 5.0))
    second.hosts.next_report(m.RunsListed)
    second.backend.close()
    machine.order(m.ListRuns(HOST, 1, 6.0), m.ListRuns(HOST, 3, 7.0))
    assert machine.hosts.next_report(m.RunsListed).asked_at == 7.0


def test_what_was_ordered_for_the_keeper_before_is_not_started_by_the_next(
    folder: Path, machine: Machine
) -> None:
    """The folder may be replaced between the check of the order and its way to the keeper."""
    machine.hosts.next_report(m.BackendUp)
    runs = machine.backend._runs
    assert runs is not None
    runs.hello("a", 1)
    runs.launch("a", 1, runs=[RunRequest("r-0-1", "a", "true")], keeper="the one before")
    runs.launch("a", 1, runs=[RunRequest("r-1-1", "a", "true")], keeper=runs.keeper)
    assert machine.hosts.next_report(m.RunsStarted).runs == ("r-1-1",)
    assert not (folder / "runs" / "r-0-1").exists()


def test_hosts_hear_when_a_process_started_though_they_ask_later(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp)
    before = time.time()
    machine.order(m.StartRuns(HOST, 1, (start("r-0-1", "sleep 60"), start("r-1-1", "true"))))
    reports = [machine.hosts.next_report(m.RunsStarted) for _ in range(2)]
    told = {report.runs[0]: report.at[0] for report in reports}
    machine.hosts.next_report(m.RunsEnded)
    assert all(before - 0.1 <= at <= time.time() for at in told.values())
    machine.order(m.ListRuns(HOST, 1))
    listed = machine.hosts.next_report(m.RunsListed)
    assert (listed.running, listed.started) == (("r-0-1",), (told["r-0-1"],))
    ((end,), both) = listed.ends, (told["r-1-1"], "r-1-1")
    assert (end.started_at, end.run) == both and end.at >= end.started_at
    assert machine.backend.stop_all(DEADLINE_S)


def test_a_run_whose_port_is_in_use_is_not_started(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp)
    spec = RunSpec(Resources(UNIT), 'echo "$PORT"', ports=(Port("http", 0, "PORT"),))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        machine.order(m.StartRuns(HOST, 1, (m.StartRun("r-0-1", spec, (port,)),)))
        told = machine.hosts.next_report(PortsInUse)
        assert told.runs == ("r-0-1",) and port in told.ports
        machine.order(m.ListRuns(HOST, 1))
        assert machine.hosts.next_report(m.RunsListed).running == ()
    machine.order(m.StartRuns(HOST, 1, (m.StartRun("r-0-1", spec, (port,)),)))
    assert machine.ends(1)["r-0-1"].end == End.SUCCEEDED, "the same run, once it is free"


def test_slack_is_told_of_no_host_before_its_runs_are_known(folder: Path) -> None:
    """Else those that run on slack would end whenever a daemon begins anew."""
    former, latter = Machine(folder, slack_s=0.02), None
    try:
        former.hosts.next_report(m.BackendUp)
        former.order(m.ListRuns(HOST, 1), m.StartRuns(HOST, 1, (start("r-0-1", "sleep 60"),)))
        former.hosts.next_report(m.RunsStarted)
        former.backend.close()
        latter = Machine(folder, slack_s=0.02)
        latter.hosts.next_report(m.BackendUp)
        latter.order(m.ListRuns(OTHER, 2))
        assert latter.hosts.next_report(SlackReported, to=OTHER).slack == 0
        told = [to for to, word in latter.hosts.words if isinstance(word, SlackReported)]
        assert HOST not in told
        latter.order(m.ListRuns(HOST, 2))
        assert latter.hosts.next_report(SlackReported).slack > UNIT / 2
    finally:
        assert latter is None or latter.backend.stop_all(DEADLINE_S)
        (latter or former).backend.close()


def test_after_a_reset_every_host_compares(machine: Machine) -> None:
    for host in (HOST, OTHER):
        machine.hosts.next_report(m.BackendUp, host)
    machine.backend.reset()
    for host in (HOST, OTHER):
        machine.hosts.next_report(m.BackendUp, host)


def test_who_asks_is_told_whether_the_keeper_can_be_asked(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp, OTHER)
    machine.order(m.PingBackend(HOST))
    machine.hosts.next_report(m.BackendUp)


def test_a_host_that_is_no_more_is_told_too_once_it_asked(folder: Path) -> None:
    """It asks after the recovery, before the keeper was reached; its old runs are to be killed."""
    made = Machine.__new__(Machine)
    made.hosts, old = Hosts(), Key("host/old")
    made.backend = process.ProcessBackend(folder, ["a"])
    made.order(m.ListRuns(old, 1))
    made.backend.start(made.hosts.tell)
    made.hosts.next_report(m.BackendUp, old)
    made.backend.close()


def test_a_keeper_that_hangs_is_noticed_and_all_is_well_when_it_goes_on(
    machine: Machine, folder: Path, procs: Any
) -> None:
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.StartRuns(HOST, 1, (start("long-0-1", "sleep 60"),)))
    machine.hosts.next_report(m.RunsStarted)
    pid, runs = procs.keeper_pid(folder), machine.backend._runs
    assert runs is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        runs._heartbeat.silent_max_s, runs._heartbeat._next_at_s = SILENT_S, 0.0
        # Orders and questions of this time wait in the one connection, in their order.
        machine.order(m.StartRuns(HOST, 1, (start("late-0-1", "sleep 60"),)))
        down = machine.hosts.next_report(m.BackendDown)
        assert down.text == f"keeper: no answer for {SILENT_S} s"
        assert machine.hosts.troubles == {process.PROCESS_BACKEND: down.text}
        machine.order(m.ListRuns(HOST, 1))
        assert machine.hosts.next_report(m.BackendDown) == down, "who asks meanwhile hears why"
    finally:
        runs._heartbeat.silent_max_s = DEADLINE_S
        os.kill(pid, signal.SIGCONT)
    machine.hosts.next_report(m.BackendUp)
    assert machine.hosts.troubles == {process.PROCESS_BACKEND: ""}
    listed = machine.hosts.next_report(m.RunsListed)
    assert sorted(listed.running) == ["late-0-1", "long-0-1"], "no list overtakes a launch"
    assert machine.backend.stop_all(DEADLINE_S)
    assert {outcome.end for outcome in machine.ends(2).values()} == {End.KILLED}
    assert procs.keeper_pid(folder) == pid, "no second keeper was needed"


def test_a_keeper_that_hung_before_it_was_reached(
    folder: Path, procs: Any, machine: Machine
) -> None:
    """Its socket takes connections all the same: only an answer shows that it is there."""
    machine.hosts.next_report(m.BackendUp)
    pid = procs.keeper_pid(folder)
    os.kill(pid, signal.SIGSTOP)
    second = Machine(folder, silent_max_s=SILENT_S)
    try:
        second.hosts.next_report(m.BackendDown)
        assert [word for _, word in second.hosts.words if isinstance(word, m.BackendUp)] == []
        large = [start(f"large-{n}-1", A="x" * 2_000_000) for n in range(3)]
        second.order(m.StartRuns(HOST, 1, tuple(large)))
        second.backend.close()  # a daemon that leaves does not hang with it, though more is unsent
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_planted_in_the_client_is_told_and_survived(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp)
    runs = machine.backend._runs
    assert runs is not None
    hear = runs._report

    def fails_once(report: RunReport) -> None:
        runs._report = hear
        raise RuntimeError("planted")

    runs._report = fails_once
    machine.order(m.ListRuns(HOST, 1))
    down = machine.hosts.next_report(m.BackendDown)
    assert down.text == "keeper: its client failed: RuntimeError: planted"
    machine.hosts.next_report(m.BackendUp)
    machine.order(m.StartRuns(HOST, 1, (start("r-0-1"),)))
    assert machine.hosts.next_report(m.RunsEnded).ends[0].outcome == RunOutcome(
        End.SUCCEEDED, 0, reason="exited", message="exit code 0"
    )


def test_one_ping_is_unanswered_at_a_time() -> None:
    heartbeat = KeeperHeartbeat(8.0)
    assert heartbeat.asks(100.0) and not heartbeat.asks(101.0)
    assert not heartbeat.is_silent(107.9) and heartbeat.wait_s(107.0) == 1.0
    assert heartbeat.is_silent(108.0)
    heartbeat.received(108.0)
    assert not heartbeat.is_silent(200.0) and not heartbeat.asks(109.9) and heartbeat.asks(110.0)
    heartbeat.begin(200.0)
    assert not heartbeat.asks(207.9), "a new connection began with one"
    assert heartbeat.is_silent(208.0)


@pytest.mark.parametrize("images", [process.IGNORE, process.REFUSE])
def test_a_container_image_is_ignored_or_ends_its_run(machine: Machine, images: str) -> None:
    machine.hosts.next_report(m.BackendUp)
    machine.backend.limits = process.TaskLimits(images=images)
    spec = RunSpec(Resources(UNIT), "true", image="debian")
    machine.order(m.StartRuns(HOST, 1, (m.StartRun("r-0-1", spec), start("r-1-1"))))
    ends = machine.ends(2)
    assert ends["r-1-1"].end is End.SUCCEEDED, "a run without an image"
    if images == process.REFUSE:
        assert (ends["r-0-1"].end, ends["r-0-1"].reason) == (End.FAILED, NO_IMAGES)
        assert ends["r-0-1"].message.startswith("image debian: ")
    else:
        assert ends["r-0-1"].end is End.SUCCEEDED


def test_a_check_by_a_command_does_not_keep_an_image_from_running(machine: Machine) -> None:
    """It is only not carried out: the keeper would look for its program on the host."""
    machine.hosts.next_report(m.BackendUp)
    spec = RunSpec(Resources(UNIT), "true", image="debian", check=HealthCheck("true"))
    for images, checked in ((process.RUN, False), (process.IGNORE, True)):
        machine.backend.limits = process.TaskLimits(images=images, engine="/bin/podman")
        request = machine.backend._request("a", m.StartRun("r-0-1", spec), values=NO_VALUES)
        assert request.checked == checked and (request.container is not None) != checked


def test_the_limits_of_a_run_are_those_of_its_resources() -> None:
    resources = Resources(cpu=UNIT // 2, memory=64 * UNIT, disk=10 * UNIT)
    made = process.TaskLimits("enforce", cpu_quota=True, pids=99)
    assert made.of(resources) == RunLimits("enforce", 0.5, cpu_quota=True, pids=99, disk_mb=10.0)
    assert process.TaskLimits("off", pids=99).of(resources) is None


def test_a_run_is_told_its_gpus_and_sees_none_if_it_has_none(machine: Machine) -> None:
    machine.hosts.next_report(m.BackendUp)
    told = {"r-0-1": (0, 2), "r-1-1": (), "r-2-1": None}
    expected = {"r-0-1": "0,2 0,2", "r-1-1": " void", "r-2-1": "mine unset"}
    runs = tuple(
        m.StartRun(
            name,
            RunSpec(
                Resources(UNIT),
                'test "$CUDA_VISIBLE_DEVICES ${NVIDIA_VISIBLE_DEVICES-unset}" = '
                f'"{expected[name]}"',
                environment=(("CUDA_VISIBLE_DEVICES", "mine"),),
            ),
            (),
            devices,
        )
        for name, devices in told.items()
    )
    machine.order(m.StartRuns(HOST, 1, runs))
    ends = machine.ends(len(told))
    assert {name: end.exit_code for name, end in ends.items()} == dict.fromkeys(told, 0)


def test_the_devices_of_a_container_are_numbered_anew() -> None:
    assert gpu_variables((1, 3), contained=True) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "1,3",
    }
    assert gpu_variables((), contained=True)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not gpu_variables(None, contained=False)


def test_a_command_for_a_container_is_not_carried_out_which_is_said(
    folder: Path, tmp_path: Path
) -> None:
    """As of a job that was made before images were run; else its health is unknown for ever."""
    engine, image = install(tmp_path, "podman", "tiny"), "tiny"
    machine = Machine(folder)
    machine.backend.limits = process.TaskLimits(images=process.RUN, engine=str(engine))
    one = start("r-0-1", "sleep 600")
    check = HealthCheck("true", initial_s=0.001, interval_s=0.01)
    spec = replace(one.spec, image=image, check=check.beside(HealthCheck(http=HttpProbe(1))))
    try:
        machine.order(m.StartRuns(HOST, 1, (replace(one, spec=spec),)))
        (told,) = machine.hosts.next_report(RunsChanged).runs
        text = "not checked: a command in a container of its own is not carried out"
        assert (told.run, told.live) == ("r-0-1", LiveRun(text=text, unchecked=True))
        assert machine.backend.stop_all(DEADLINE_S)
    finally:
        machine.backend.close()
