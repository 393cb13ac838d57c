"""The health of runs that Mesos checks."""

from __future__ import annotations

from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted, RunChange, RunsChanged
from peloton.actors.task.messages import End
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.backends.run_news import REPEAT_S
from tests.backends.mesos.bench import FIRST_NUMBER, HOST, Talk, name
from tests.backends.mesos.words import agent, reconciled, status

CHECKED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"


def checked(healthy: bool, uuid: str = "h") -> dict[str, Any]:
    return status(name(0), "RUNNING", reason=CHECKED, healthy=healthy, uuid=uuid)


def changes(talk: Talk) -> list[RunChange]:
    return [one for each in talk.told(RunsChanged) for one in each.runs]


def noted(number: int) -> ChangesNoted:
    return ChangesNoted(HOST, (name(0),), number)


def test_changes_are_reported_and_results_are_not() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(True, "1"), checked(True, "2"), checked(False, "3"), checked(False, "4"))
    talk.update(checked(True, "5"))
    lives = [each.live for each in changes(talk)]
    assert [(live.healthy, live.over, bool(live.text)) for live in lives] == [
        (True, False, False), (False, False, True), (True, False, False),
    ]  # fmt: skip
    numbers = [each.number for each in changes(talk)]
    assert numbers == sorted({*numbers}) and numbers[0] > FIRST_NUMBER
    assert [uuid for _, uuid in talk.acknowledged()] == [*"12345"]


def test_the_last_change_is_repeated_until_it_is_noted() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(False))
    talk.until(2.5 * REPEAT_S)
    (change, *again) = changes(talk)
    assert again == [change, change]
    talk.order(noted(change.number))
    talk.clear().until(10 * REPEAT_S)
    assert talk.reports == []
    talk.order(noted(change.number - 1))
    assert changes(talk) == [change], "the task believes another one"


def test_after_an_outage_it_is_told_anew() -> None:
    """Meanwhile another daemon may have been subscribed, and told what is true no more."""
    talk = Talk.begun().running(0)
    talk.update(checked(True))
    talk.order(noted(changes(talk)[0].number))
    talk.disconnect()
    talk.clear().subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", healthy=True), checked(True, "i"))
    assert [each.live.healthy for each in changes(talk)] == [True]


def test_what_was_not_noted_before_an_outage_is_not_told_after_it() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(True))
    talk.disconnect()
    talk.clear().subscribe(agent())
    talk.until(10 * REPEAT_S)
    assert changes(talk) == []


def test_a_run_that_is_found_checked_is_reported_as_it_is() -> None:
    talk = Talk()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", healthy=False, timestamp=3.0))
    assert [each.live.healthy for each in changes(talk)] == [False]


def test_nothing_is_reported_of_a_run_that_is_to_end_or_has() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(True))
    talk.order(m.StopRuns(HOST, 1, (name(0),), 5.0))
    talk.clear().update(checked(False))
    talk.until(10 * REPEAT_S)
    assert talk.reports == []
    talk = Talk.begun().running(0)
    talk.update(checked(False), status(name(0), "FAILED", uuid="e"))
    talk.clear().until(10 * REPEAT_S)
    talk.order(noted(5))
    assert talk.reports == []


def test_what_mesos_kills_for_its_check_has_failed_by_it() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(False), checked(False), status(name(0), "KILLING", uuid="k"))
    text = "Command terminated with signal Terminated"
    talk.update(status(name(0), "KILLED", uuid="e", message=text, healthy=False))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.reason) == (End.FAILED, UNHEALTHY)
    assert (end.outcome.signal, end.outcome.system) == ("SIGTERM", False)


def test_nothing_is_repeated_of_a_host_that_left() -> None:
    talk = Talk.begun().running(0)
    talk.update(checked(False))
    talk.agents()
    talk.clear().until(10 * REPEAT_S)
    assert talk.reports == []
