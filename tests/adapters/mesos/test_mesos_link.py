"""The link to a master that does what a real one does once in a year.

Whatever it does, no run is begun twice or given up, and hosts are told what is true. A test waits
for what is told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.task.messages import End
from peloton.backends.mesos import backend, master_list
from peloton.backends.mesos.masters import driver
from tests.adapters.test_daemon_wiring import until
from tests.backends.known_sets import known_sets
from tests.contracts.backends import HOST, OTHER, run
from tests.contracts.mesos_backends import ScriptedMesosRig
from tests.contracts.mesos_calls import framework
from tests.servers.scripted_http import PATH, Reply
from tests.servers.scripted_master import ScriptedMaster


@pytest.fixture
def rig() -> Iterator[ScriptedMesosRig]:
    made = ScriptedMesosRig()
    made.next_report(m.BackendUp)
    yield made
    made.close()


def begun(rig: ScriptedMesosRig, *names: str) -> None:
    """These run."""
    rig.order(m.StartRuns(HOST, 1, tuple(run(name) for name in names)))
    found: set[str] = set()
    while not found >= {*names}:
        found |= {*rig.next_report(m.RunsStarted).runs}
    rig.master.wait_calls("ACKNOWLEDGE", 2 * len(names))


def all_well(rig: ScriptedMesosRig, *names: str) -> None:
    """The link is subscribed, these run, each was launched once, and another can be."""
    rig.order(m.ListRuns(HOST, 1, 7.0, known_sets(*names)))
    listed = rig.next_report(m.RunsListed)
    assert (sorted(listed.running), listed.ends) == (sorted(names), ())
    rig.order(m.StartRuns(OTHER, 1, (run("o-0-1", 0.01),)))
    assert rig.ends("o-0-1", to=OTHER)["o-0-1"].outcome.end == End.SUCCEEDED
    assert not rig.errors
    found = launched(rig.master)
    assert sorted(found) == sorted({*found}), "none twice"


def launched(master: ScriptedMaster) -> list[str]:
    return [
        task["task_id"]["value"]
        for got in master.calls
        if got.type == "ACCEPT" and got.code == 202
        for operation in got.call["accept"]["operations"]
        for task in _infos(operation)
    ]


def _infos(operation: Mapping[str, Any]) -> list[Any]:
    group = operation.get("launch_group")
    found = operation["launch"]["task_infos"] if group is None else group["task_group"]["tasks"]
    return list(found)


# ---- the stream ----

BREAKS: dict[str, tuple[Callable[[ScriptedMaster], object], str]] = {
    "no JSON": (lambda master: master.send_record(b'{"type": "OFF'), "JSONDecodeError"),
    "no length": (
        lambda master: master.send_bytes(b"nonsense\n{}"),
        "a record does not begin with its length",
    ),
    "no event": (lambda master: master.send_record(b"[1, 2]"), "AttributeError"),
    "cut in a record": (
        lambda master: master.cut_in_record(),
        "no connection to the master",
    ),
    "dropped": (lambda master: master.drop_stream(), "no connection to the master"),
    "an error": (
        lambda master: master.send({"type": "ERROR", "error": {"message": "is full"}}),
        "is full",
    ),
}


def test_what_cannot_be_read_is_skipped_and_does_not_end_the_stream(rig: ScriptedMesosRig) -> None:
    begun(rig, "r-0-1")
    subscriber = rig.master.wait_subscribed()
    rig.master.send({"type": "UPDATE"})
    rig.master.send_record(b'{"type": "MESSAGE", "message": {"data": "\xff\xfe"}}')
    all_well(rig, "r-0-1")
    assert rig.master.wait_subscribed() == subscriber


@pytest.mark.parametrize("name", BREAKS)
def test_a_stream_that_breaks_is_followed_by_another(rig: ScriptedMesosRig, name: str) -> None:
    break_it, why = BREAKS[name]
    begun(rig, "r-0-1")
    subscriber = rig.master.wait_subscribed()
    break_it(rig.master)
    if name == "an error":  # which the master sends before it hangs up
        rig.master.drop_stream()
    assert why in rig.next_report(m.BackendDown).text
    rig.master.wait_subscribed(but=subscriber)
    rig.next_report(m.BackendUp)
    all_well(rig, "r-0-1")


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the link look often, and not be patient for long beyond the heartbeats."""
    monkeypatch.setattr(master_list, "AGAIN_S", 0.05)
    monkeypatch.setattr(backend, "SILENT_MORE_S", 2.0)


def test_heartbeats_that_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    with ScriptedMaster(agents=2, heartbeat_s=0.1) as master:
        rig = ScriptedMesosRig(master)
        rig.next_report(m.BackendUp)
        begun(rig, "r-0-1")
        subscriber = master.wait_subscribed()
        master.silent = True
        assert "no heartbeat of the master" in rig.next_report(m.BackendDown).text
        master.silent = False
        master.wait_subscribed(but=subscriber)
        rig.next_report(m.BackendUp)
        all_well(rig, "r-0-1")
        rig.close()


def test_a_master_that_refuses_a_subscription_is_quoted(rig: ScriptedMesosRig) -> None:
    rig.master.reply("SUBSCRIBE", Reply(401, "who are you"))
    rig.master.drop_stream()
    rig.next_report(m.BackendDown)
    assert "HTTP 401" in rig.next_report(m.BackendDown).text
    rig.next_report(m.BackendUp)


def test_a_framework_that_was_removed_stays_away_and_says_so(rig: ScriptedMesosRig) -> None:
    """By an operator: its tasks are gone, and its id is refused for ever."""
    begun(rig, "r-0-1")
    rig.master.tear_down()
    rig.master.drop_stream()
    rig.next_report(m.BackendDown)
    text = rig.next_report(m.BackendDown).text
    assert f"framework {rig.framework.framework_id} has been removed at the master" in text
    rig.order(m.StartRuns(HOST, 1, (run("r-1-1"),)))
    assert rig.next_report(m.BackendDown).text == text
    assert len(rig.master.wait_calls("SUBSCRIBE")) == 2, "it asks no more"
    assert launched(rig.master) == ["r-0-1"]


# ---- who leads ----


def test_no_leader_and_then_another(rig: ScriptedMesosRig) -> None:
    """A standby sends us to the leader. What ran at the one that we knew is not known there."""
    with ScriptedMaster(agents=2) as other:
        location = f"//{other.address}/master{PATH}"
        sent_on = [Reply(307, location=location)] * 3
        rig.master.reply("SUBSCRIBE", Reply(503, "No leader elected"), *sent_on)
        rig.master.drop_stream()
        rig.next_report(m.BackendDown)
        other.wait_subscribed()
        assert [got.code for got in rig.master.calls if got.type == "SUBSCRIBE"][1:] == [503, 307]
        rig.next_report(m.HostAppeared)
        rig.order(m.StartRuns(HOST, 1, (run("r-0-1", 0.01),)))
        assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.SUCCEEDED
        assert launched(other) == ["r-0-1"]


def test_masters_that_send_us_round_and_round_are_left(rig: ScriptedMesosRig) -> None:
    with ScriptedMaster(agents=2) as other:
        for one, to in ((rig.master, other), (other, rig.master)):
            one.reply("SUBSCRIBE", *[Reply(307, location=f"//{to.address}/master{PATH}")] * 3)
        rig.master.drop_stream()
        rig.next_report(m.BackendDown)
        assert "no connection to the master" in rig.next_report(m.BackendDown).text
        count = [len([got for got in one.calls if got.code == 307]) for one in (rig.master, other)]
        assert sum(count) <= driver.REDIRECTS_MAX + 1


def test_a_subscription_ends_where_zookeeper_names_another_leader() -> None:
    """One that was cut off from ZooKeeper may be the last to know."""
    heard: list[Any] = []
    ended: SimpleQueue[str] = SimpleQueue()
    with ScriptedMaster() as master:
        link = driver.MesosDriver(master.address, framework(), heard=heard.append, ended=ended.put)
        link.start()
        master.wait_subscribed()
        until(lambda: heard)
        assert link.lives
        address = {"ip": "127.0.0.1", "port": 1, "hostname": "other"}
        link.onNewMasterDetectedMessage(json.dumps({"address": address}).encode())
        assert f"no connection to the master at {master.address}" in ended.get(timeout=60)
        assert not link.lives
        link.stop()
        link.join()
        assert ended.empty()


# ---- calls ----


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_a_launch_that_is_never_answered(
    rig: ScriptedMesosRig, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """Nobody knows whether it was, until the master is asked: then it is one run, or a lost one."""
    rig.backend.close()
    monkeypatch.setattr(driver, "HTTP_TIMEOUT_S", 2.0)
    rig.reconnect()
    rig.next_report(m.BackendUp)
    rig.master.reply("ACCEPT", Reply(0))
    order = m.StartRuns(HOST, 1, (run("r-0-1"),))
    rig.order(order)
    rig.master.wait_calls("ACCEPT")
    if done:
        unanswered = rig.master.calls[-1].call
        rig.master.obey(unanswered)
    assert "ACCEPT: " in rig.next_report(m.BackendDown).text
    rig.next_report(m.BackendUp)
    rig.order(order)
    rig.order(m.ListRuns(HOST, 1, 7.0))
    listed = rig.next_report(m.RunsListed)
    if done:
        assert ([*listed.running], listed.ends) == (["r-0-1"], ())
        all_well(rig, "r-0-1")
        return
    (end,) = listed.ends
    assert (end.run, end.outcome.end, end.outcome.system) == ("r-0-1", End.LOST, True)
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    all_well(rig)


def test_a_launch_that_is_accepted_and_lost(rig: ScriptedMesosRig) -> None:
    """The host asks in the end, and is told that nobody knows of it: it has ended."""
    rig.master.ignore("ACCEPT")
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.master.wait_calls("ACCEPT")
    rig.master.ignore()
    rig.order(m.ListRuns(HOST, 1, 7.0, known_sets("r-0-1")))
    (end,) = rig.next_report(m.RunsListed).ends
    assert (end.run, end.outcome.end, end.outcome.system) == ("r-0-1", End.LOST, True)
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    all_well(rig)


def test_a_call_that_is_refused_ends_the_stream_with_the_masters_words(
    rig: ScriptedMesosRig,
) -> None:
    begun(rig, "r-0-1")
    rig.master.reply("KILL", Reply(400, "The stream ID 'x' included in this request didn't match"))
    kill = m.StopRuns(HOST, 1, ("r-0-1",), 5.0)
    rig.order(kill)
    assert "didn't match" in rig.next_report(m.BackendDown).text
    rig.next_report(m.BackendUp)
    rig.order(kill)
    assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.KILLED


def test_a_launch_that_is_refused_is_not_quoted(rig: ScriptedMesosRig) -> None:
    """The text is shown to everybody, and tasks have variables that are not."""
    secret = run("r-0-1")
    secret = replace(secret, spec=replace(secret.spec, environment=(("TOKEN", "hush"),)))
    rig.master.reply("ACCEPT", Reply(400, "Expecting something else"))
    rig.order(m.StartRuns(HOST, 1, (secret,)))
    text = rig.next_report(m.BackendDown).text
    assert "400" in text and "Expecting something else" in text and "hush" not in text
    assert "hush" in str(rig.master.calls), "else nothing is proved"


# ---- updates ----


def test_updates_that_come_twice_are_one_end(rig: ScriptedMesosRig) -> None:
    rig.master.double_updates(3)
    begun(rig, "r-0-1")
    rig.master.exits("r-0-1", 3)
    rig.ends("r-0-1")
    begun(rig, "r-1-1")  # what is told of it comes after all three of the end
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    rig.master.wait_calls("ACKNOWLEDGE", 13)
    all_well(rig, "r-1-1")
    ends = {
        end.outcome.exit_code
        for _, report in rig.reports
        if isinstance(report, m.RunsEnded)
        for end in report.ends
        if end.run == "r-0-1"
    }
    assert ends == {3}


def test_updates_the_wrong_way_round_do_not_bring_a_run_back(rig: ScriptedMesosRig) -> None:
    """What the master knew of it comes after what its executor says."""
    begun(rig, "r-0-1", "r-1-1")
    rig.master.hold_updates()
    rig.master.obey({"type": "RECONCILE"})
    rig.master.exits("r-0-1", 0)
    assert len(rig.master.release_updates(reverse=True)) == 3
    assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.SUCCEEDED
    rig.order(m.ListRuns(HOST, 1, 7.0, known_sets("r-1-1")))
    listed = rig.next_report(m.RunsListed)
    assert [*listed.running] == ["r-1-1"] and [end.run for end in listed.ends] == ["r-0-1"]
    assert not [got for got in rig.master.calls if got.type == "KILL"]


def test_acknowledgements_that_are_lost_are_given_again(rig: ScriptedMesosRig) -> None:
    """The master has taken both, and nothing came of it: the agent says again what it knows."""
    rig.master.ignore("ACKNOWLEDGE")
    rig.order(m.StartRuns(HOST, 1, (run("r-0-1"),)))
    rig.master.wait_calls("ACKNOWLEDGE")
    another_subscription(rig)
    rig.next_report(m.RunsStarted)
    rig.master.wait_calls("ACKNOWLEDGE", 3)
    rig.master.ignore("ACKNOWLEDGE")
    rig.master.exits("r-0-1", 3)
    assert rig.ends("r-0-1")["r-0-1"].outcome.exit_code == 3
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    rig.master.wait_calls("ACKNOWLEDGE", 4)
    another_subscription(rig)
    assert rig.ends("r-0-1")["r-0-1"].outcome.exit_code == 3
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    rig.master.wait_calls("ACKNOWLEDGE", 5)
    assert not rig.master.model.tasks, "it has been heard at last"
    all_well(rig)


def another_subscription(rig: ScriptedMesosRig) -> None:
    """The stream is dropped, and calls have their effect again."""
    rig.master.ignore()
    rig.master.drop_stream()
    rig.next_report(m.BackendDown)
    rig.next_report(m.BackendUp)


def test_an_update_without_its_agent_is_of_nobody(rig: ScriptedMesosRig) -> None:
    begun(rig, "r-0-1")
    status = {"task_id": {"value": "r-0-1"}, "state": "TASK_LOST", "source": "SOURCE_MASTER"}
    rig.master.send({"type": "UPDATE", "update": {"status": status}}, {"type": "NOT_KNOWN_YET"})
    all_well(rig, "r-0-1")


# ---- the list of agents ----


def test_a_slow_list_of_agents_holds_up_no_order_and_loses_no_event(
    rig: ScriptedMesosRig,
) -> None:
    """Events that come meanwhile wait for it, because they may be of agents that are in it."""
    begun(rig, "r-0-1")
    gate = threading.Event()
    rig.master.reply("GET_AGENTS", Reply(200, gate=gate))
    subscriber = rig.master.wait_subscribed()
    rig.master.drop_stream()
    rig.next_report(m.BackendDown)
    rig.master.wait_subscribed(but=subscriber)
    rig.master.wait_calls("GET_AGENTS", 2)
    rig.master.exits("r-0-1", 0)
    rig.order(m.PingBackend(HOST))
    assert rig.next_report(m.BackendDown).text, "not known yet, and said at once"
    gate.set()
    rig.next_report(m.BackendUp)
    assert rig.ends("r-0-1")["r-0-1"].outcome.end == End.SUCCEEDED
    all_well_after_its_end(rig)


def all_well_after_its_end(rig: ScriptedMesosRig) -> None:
    rig.order(m.ForgetRuns(HOST, ("r-0-1",)))
    all_well(rig)


def test_a_list_of_agents_that_never_comes_is_asked_for_again(
    rig: ScriptedMesosRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(rig, "r-0-1")
    monkeypatch.setattr(driver, "HTTP_TIMEOUT_S", 2.0)
    rig.master.reply("GET_AGENTS", Reply(0))
    rig.master.drop_stream()
    rig.next_report(m.BackendDown)
    assert "GET_AGENTS: " in rig.next_report(m.BackendDown).text
    rig.next_report(m.BackendUp)
    all_well(rig, "r-0-1")
