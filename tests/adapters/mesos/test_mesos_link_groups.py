"""Pods of several containers at a master that does what a real one does once in a year.

Whatever becomes of the words about its containers, a pod is begun once and has one end. A test
waits for what is told.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import Container, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End
from peloton.backends.mesos.masters import driver
from tests.adapters.mesos.test_mesos_link import all_well, another_subscription, rig
from tests.adapters.mesos.test_mesos_link import begun as run_begun
from tests.backends.known_sets import known_sets
from tests.contracts.backends import HOST
from tests.contracts.mesos_backends import ScriptedMesosRig
from tests.servers.scripted_http import Reply

__all__ = ["rig"]
POD, TASKS = "p-0-1", ("p-0-1", "p-0-1.1.2")


def pod() -> m.StartRun:
    """Two containers that go on."""
    containers = tuple(Container(name, "sleep 600") for name in ("a", "b"))
    need = Resources(UNIT, 128 * UNIT)
    return m.StartRun(POD, RunSpec(need, "", containers=containers))


def begun(rig: ScriptedMesosRig) -> None:
    """The pod runs, and all that was said of it is acknowledged."""
    rig.order(m.StartRuns(HOST, 1, (pod(),)))
    assert [*rig.next_report(m.RunsStarted).runs] == [POD]
    rig.master.wait_calls("ACKNOWLEDGE", 4)


def ends_with(rig: ScriptedMesosRig, code: int, *, names: tuple[str, str] = ("a", "b")) -> None:
    """Its end is that of its first container, and nothing is left of it; then all is well."""
    ended_with(rig, code, names=names)
    forgotten(rig)


def ended_with(rig: ScriptedMesosRig, code: int, *, names: tuple[str, str]) -> None:
    outcome = rig.ends(POD)[POD].outcome
    assert (outcome.end, outcome.exit_code) == (End.FAILED, code)
    how = [(one.name, one.exit_code, one.signal) for one in outcome.containers]
    assert how == [(names[0], code, ""), (names[1], None, "SIGKILL")]


def forgotten(rig: ScriptedMesosRig, *others: str) -> None:
    count = len(rig.master.wait_calls("ACKNOWLEDGE"))
    rig.order(m.ForgetRuns(HOST, (POD,)))
    rig.master.wait_calls("ACKNOWLEDGE", count + 2)
    assert rig.master.model.tasks.keys() == {*others}
    all_well(rig, *others)


def test_a_pod_is_launched_and_ends_as_one(rig: ScriptedMesosRig) -> None:
    begun(rig)
    (accept,) = rig.master.wait_calls("ACCEPT")
    (operation,) = accept.call["accept"]["operations"]
    infos = operation["launch_group"]["task_group"]["tasks"]
    assert tuple(one["task_id"]["value"] for one in infos) == TASKS
    rig.master.exits(POD, 3)
    ends_with(rig, 3)


def test_updates_of_containers_that_come_twice_are_one_end(rig: ScriptedMesosRig) -> None:
    rig.master.double_updates(3)
    rig.order(m.StartRuns(HOST, 1, (pod(),)))
    rig.next_report(m.RunsStarted)
    rig.master.wait_calls("ACKNOWLEDGE", 12)
    rig.master.double_updates(1)
    rig.master.exits(POD, 3)
    ends_with(rig, 3)


def test_what_was_said_of_containers_the_wrong_way_round(rig: ScriptedMesosRig) -> None:
    """The words of the master, that both run, come after those of their ends."""
    begun(rig)
    rig.master.hold_updates()
    rig.master.obey({"type": "RECONCILE"})
    rig.master.exits(POD, 3)
    assert len(rig.master.release_updates(reverse=True)) == 4
    ended_with(rig, 3, names=("a", "b"))
    run_begun(rig, "r-1-1")  # what is told of it comes after all that
    rig.master.wait_calls("ACKNOWLEDGE", 6)
    forgotten(rig, "r-1-1")
    assert not [got for got in rig.master.calls if got.type == "KILL"]


def test_an_end_that_was_acknowledged_in_vain_is_told_with_the_next_subscription(
    rig: ScriptedMesosRig,
) -> None:
    begun(rig)
    rig.master.ignore("ACKNOWLEDGE")
    rig.master.exits(POD, 3)
    rig.ends(POD)
    rig.order(m.ForgetRuns(HOST, (POD,)))
    rig.master.wait_calls("ACKNOWLEDGE", 6)
    another_subscription(rig)
    outcome = rig.ends(POD)[POD].outcome
    assert (outcome.end, outcome.exit_code) == (End.FAILED, 3)
    rig.order(m.ForgetRuns(HOST, (POD,)))
    rig.master.wait_calls("ACKNOWLEDGE", 8)
    assert not rig.master.model.tasks
    all_well(rig)


def test_a_launch_that_was_done_and_never_answered(
    rig: ScriptedMesosRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that was not, test_mesos_link.py tells."""
    rig.backend.close()
    monkeypatch.setattr(driver, "HTTP_TIMEOUT_S", 2.0)
    rig.reconnect()
    rig.next_report(m.BackendUp)
    rig.master.reply("ACCEPT", Reply(0))
    order = m.StartRuns(HOST, 1, (pod(),))
    rig.order(order)
    rig.master.wait_calls("ACCEPT")
    unanswered = rig.master.calls[-1].call
    rig.master.obey(unanswered)
    assert "ACCEPT: " in rig.next_report(m.BackendDown).text
    rig.next_report(m.BackendUp)
    rig.order(m.ListRuns(HOST, 1, 7.0, known_sets(POD)))
    listed = rig.next_report(m.RunsListed)
    assert ([*listed.running], listed.ends) == ([POD], ())


def test_an_agent_that_is_out_of_reach_comes_back_with_its_pod(rig: ScriptedMesosRig) -> None:
    begun(rig)
    rig.take_away(HOST)
    rig.next_report(m.BackendDown)
    rig.master.exits(POD, 3)
    rig.bring_back(HOST)
    rig.next_report(m.HostAppeared)
    ends_with(rig, 3, names=("", ""))  # its updates alone say what is known of it
