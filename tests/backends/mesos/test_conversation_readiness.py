"""The readiness of runs that Mesos checks, beside their health."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import (
    ChangesNoted,
    CheckedSet,
    KnownSet,
    RunChange,
    RunsChanged,
)
from peloton.actors.host.run_spec import Container, MesosWords, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.run_messages import HealthCheck, TaskHealth
from peloton.backends.mesos.runs.groups import executor_id, task_id
from peloton.backends.mesos.runs.readiness import SLACK_S
from peloton.backends.mesos.wellbeing import told_health
from peloton.backends.run_news import REPEAT_S
from peloton.runtime.vocabulary import Bits, Key
from tests.backends.mesos.bench import HOST, JOB, Talk, name, start
from tests.backends.mesos.words import Json, agent, reconciled, status

CHECK = HealthCheck("r", initial_s=5.0, interval_s=2.0, timeout_s=1.0, max_failures=2)
SURE_S = CHECK.interval_s + CHECK.timeout_s + SLACK_S
"""After which a second failure has come, if nothing else was told."""
UPDATED = "REASON_TASK_CHECK_STATUS_UPDATED"
READY, UNREADY, UNTOLD = TaskHealth.HEALTHY, TaskHealth.UNHEALTHY, TaskHealth.DISABLED


def result(code: int | None = None) -> Json:
    """What an update says of the check; without a code there is no result."""
    return {"type": "COMMAND", "command": {} if code is None else {"exit_code": code}}


def found(code: int | None = None, state: str = "RUNNING", **more: Any) -> Json:
    """An update that comes of the check."""
    words = {"reason": UPDATED, "check_status": result(code), "uuid": f"c-{code}", **more}
    return status(name(0), state, **words)


def begun(check: HealthCheck | None = None) -> Talk:
    """A run with a readiness check that has begun, as its executor says it."""
    talk = Talk.begun()
    talk.start(start(0, check=check or HealthCheck(readiness=CHECK)))
    talk.offer()
    first = {"uuid": "u", "timestamp": 1.0, "check_status": result()}
    talk.update(status(name(0), "STARTING", uuid="s", check_status=result()))
    talk.update(status(name(0), "RUNNING", **first))
    return talk.clear()


def changes(talk: Talk) -> list[RunChange]:
    return [one for each in talk.told(RunsChanged) for one in each.runs]


def readiness(talk: Talk) -> list[TaskHealth]:
    """What was told last of each change."""
    return [one.live.ready for one in {one.number: one for one in changes(talk)}.values()]


def note(talk: Talk) -> Talk:
    """All that was told is known."""
    talk.order(*(ChangesNoted(HOST, (one.run,), one.number) for one in changes(talk)[-1:]))
    return talk.clear()


def listed(talk: Talk, check: HealthCheck = CHECK) -> None:
    """Its host compares, and says how its run is checked."""
    crowd = Key(f"task/{JOB}/0")
    known = KnownSet(crowd, 1, Bits.of(0), 0.0)
    some = CheckedSet(crowd, 1, Bits.of(0), HealthCheck(readiness=check), 0.0)
    talk.order(m.ListRuns(HOST, 1, 7.0, (known,), (some,)))


def test_changes_are_reported_and_results_are_not() -> None:
    talk = begun()
    talk.update(found(0), found(0, uuid="again"), found(1))
    assert readiness(talk) == [READY]
    talk.until(SURE_S - 0.1)
    assert readiness(talk) == [READY]
    talk.until(SURE_S)
    assert readiness(talk) == [READY, UNREADY]
    last = changes(talk)[-1].live
    assert (last.unready_text, last.over) == ("the check of Mesos: exit code 1", False)
    assert last.healthy is None, "nothing is known of its health"
    talk.update(found(0))
    assert readiness(talk) == [READY, UNREADY, READY] and changes(talk)[-1].live.unready_text == ""
    assert [uuid for _, uuid in talk.acknowledged()] == ["c-0", "again", "c-1", "c-0"]


def test_one_that_passes_in_time_stays_ready() -> None:
    talk = begun()
    talk.update(found(0), found(1))
    talk.until(SURE_S - 0.1)
    talk.update(found(0))
    talk.until(10 * SURE_S)
    assert readiness(talk) == [READY]


def test_of_one_that_was_not_checked_yet_nothing_is_told() -> None:
    talk = begun()
    talk.update(status(name(0), "RUNNING", uuid="v", healthy=True, check_status=result()))
    assert readiness(talk) == [UNTOLD] and changes(talk)[0].live.healthy
    note(talk).until(CHECK.initial_s)
    assert changes(talk) == []


def test_one_without_a_result_is_not_ready_once_a_check_must_have_ended() -> None:
    talk = begun()
    talk.until(CHECK.initial_s + CHECK.timeout_s + SLACK_S)
    (change,) = changes(talk)
    assert change.live.ready is UNREADY and "no result" in change.live.unready_text


def test_a_check_that_takes_too_long_has_failed() -> None:
    talk = begun(HealthCheck(readiness=HealthCheck("r", max_failures=1)))
    talk.update(found(0), found())
    assert readiness(talk) == [READY, UNREADY]


def test_health_and_readiness_are_told_beside_each_other() -> None:
    talk = begun(HealthCheck("h").beside(CHECK))
    checked = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
    talk.update(found(1))
    talk.update(found(1, reason=checked, healthy=True))
    talk.update(found(0, healthy=True), found(0, reason=checked, healthy=False))
    assert [(one.live.healthy, one.live.ready) for one in changes(talk)] == [
        (None, UNREADY), (True, UNREADY), (True, READY), (False, READY),
    ]  # fmt: skip


def test_an_update_that_says_neither_says_nothing() -> None:
    talk = begun()
    talk.update(found(0))
    note(talk).update(status(name(0), "RUNNING", uuid="v"), reconciled(name(0), "RUNNING"))
    assert changes(talk) == []


@pytest.mark.parametrize("state", ["RUNNING", "KILLING"])
def test_nothing_is_told_of_a_run_that_is_to_end(state: str) -> None:
    talk = begun()
    talk.update(found(0), found(1))
    talk.order(m.StopRuns(HOST, 1, (name(0),), 60.0))
    talk.clear().update(found(2, state))
    talk.until(10 * REPEAT_S)
    assert changes(talk) == []


def test_what_mesos_kills_for_its_health_is_told_no_other_readiness() -> None:
    talk = begun()
    talk.update(found(0), found(1))
    note(talk).update(found(1, "KILLING", healthy=False))
    note(talk).until(10 * SURE_S)
    assert changes(talk) == []


def test_nothing_is_told_of_a_run_that_has_ended() -> None:
    talk = begun()
    talk.update(found(0), found(1), found(1, "FAILED"))
    talk.clear().until(10 * SURE_S)
    assert changes(talk) == []


def test_silence_while_nobody_listens_counts_for_nothing() -> None:
    talk = begun()
    talk.update(found(0), found(1))
    note(talk).disconnect()
    talk.until(10 * SURE_S)
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", check_status=result(1)))
    talk.until(11 * SURE_S - 0.1)
    assert changes(talk) == []
    talk.until(11 * SURE_S)
    assert readiness(talk) == [UNREADY]


@pytest.mark.parametrize("code", [0, 1])
def test_after_an_outage_it_is_told_anew(code: int) -> None:
    """Meanwhile another daemon may have been subscribed, and told what is true no more."""
    talk = begun()
    talk.update(found(0), found(code))
    talk.until(SURE_S)
    note(talk).disconnect()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", check_status=result(code)))
    assert readiness(talk) == [READY if code == 0 else UNREADY]


def test_what_was_ready_before_an_outage_is_not_told_with_the_health_after_it() -> None:
    talk = begun(HealthCheck("h").beside(CHECK))
    talk.update(found(0, healthy=True))
    note(talk).disconnect()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", check_status=result(1), healthy=True))
    talk.update(reconciled(name(0), "RUNNING", check_status=result(1), healthy=False))
    assert [(one.live.healthy, one.live.ready) for one in changes(talk)] == [
        (True, UNTOLD),
        (False, UNTOLD),
    ]


def test_silence_of_an_agent_that_has_left_counts_for_nothing() -> None:
    talk = begun()
    talk.update(found(0), found(1))
    talk.agents()
    talk.clear().until(10 * SURE_S)
    assert talk.reports == []


@pytest.mark.parametrize("code", [0, 1])
def test_another_daemon_tells_it_anew(code: int) -> None:
    talk = Talk()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", check_status=result(code), timestamp=3.0))
    assert readiness(talk) == [READY if code == 0 else UNREADY]


def test_another_daemon_finds_one_whose_check_never_has_a_result() -> None:
    """Its task may believe that it is ready: what was told of that before is forgotten here."""
    talk = Talk()
    talk.subscribe(agent())
    listed(talk)
    talk.update(reconciled(name(0), "RUNNING", check_status=result(), timestamp=3.0))
    assert changes(talk) == []
    talk.until(CHECK.initial_s + CHECK.timeout_s + SLACK_S)
    assert readiness(talk) == [UNREADY]


def test_another_daemon_is_told_by_its_host_how_often_a_check_may_fail() -> None:
    talk = Talk()
    talk.subscribe(agent())
    listed(talk)
    talk.update(reconciled(name(0), "RUNNING", check_status=result(0), timestamp=3.0), found(1))
    talk.until(SURE_S)
    assert readiness(talk) == [READY, UNREADY]
    (known,) = talk.it.agents.by_host.values()
    talk.order(m.ListRuns(HOST, 1, 8.0))
    assert known.runs.checks == {name(0): CHECK}
    talk.update(status(name(0), "FINISHED", uuid="e"))
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert known.runs.checks == {}


def test_what_an_executor_of_a_tasks_own_says_of_checks_is_not_asked_for() -> None:
    talk = Talk.begun()
    talk.start(start(0, mesos=MesosWords(executor='{"data":"AP8="}')))
    talk.offer()
    talk.update(found(1))
    talk.until(10 * SURE_S)
    assert changes(talk) == []


def test_the_readiness_of_a_container_is_that_of_its_pod() -> None:
    run, check = name(0), HealthCheck("r", max_failures=1, container="b")
    containers = (Container("a", "true"), Container("b", "true"))
    talk = Talk.begun()
    need = Resources(UNIT, 128 * UNIT)
    spec = RunSpec(need, "", containers=containers, check=HealthCheck(readiness=check))
    talk.start(m.StartRun(run, spec))
    talk.offer()
    executor = {"executor_id": {"value": executor_id(run, of=2)}}
    first, second = (task_id(run, at, of=2) for at in range(2))
    talk.update(status(first, "RUNNING", uuid="a", **executor))
    talk.update(status(second, "RUNNING", uuid="b", check_status=result(), **executor))
    talk.update(status(second, "RUNNING", uuid="c", check_status=result(0), **executor))
    talk.update(status(second, "RUNNING", uuid="d", check_status=result(3), **executor))
    assert [(one.run, one.live.ready) for one in changes(talk)] == [(run, READY), (run, UNREADY)]


def test_health_is_told_of_what_runs() -> None:
    assert told_health(status("r", "RUNNING", healthy=True)) is True
    assert told_health(status("r", "RUNNING", healthy=False)) is False
    assert told_health(status("r", "RUNNING")) is None
    assert told_health(status("r", "KILLED", healthy=False)) is None
