"""What results of a check come to that Mesos tells only where they change."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.check_progress import ReadyProgress
from peloton.backends.mesos.runs.readiness import SLACK_S, CheckResult, ReadinessCount, told_check
from tests.backends.mesos.words import status

CHECK = HealthCheck("r", initial_s=5.0, interval_s=2.0, timeout_s=1.0, max_failures=3)
LONGEST_S = CHECK.interval_s + CHECK.timeout_s + SLACK_S
"""From the end of one check to that of the next, at most."""
GOOD, BAD, OTHER, NONE = (CheckResult("COMMAND", code) for code in (0, 1, 2, None))


def told(**check: Any) -> CheckResult | None:
    return told_check(status("r", "RUNNING", check_status=check))


@pytest.mark.parametrize(
    ("check", "ok", "text"),
    [
        ({"type": "COMMAND", "command": {"exit_code": 0}}, True, "exit code 0"),
        ({"type": "COMMAND", "command": {"exit_code": 3}}, False, "exit code 3"),
        ({"type": "HTTP", "http": {"status_code": 200}}, True, "status 200"),
        ({"type": "HTTP", "http": {"status_code": 399}}, True, "status 399"),
        ({"type": "HTTP", "http": {"status_code": 400}}, False, "status 400"),
        ({"type": "HTTP", "http": {"status_code": 0}}, False, "status 0"),
        ({"type": "COMMAND", "command": {}}, False, "no result"),
        ({"type": "HTTP", "http": {"status_code": None}}, False, "no result"),
        ({"type": "HTTP"}, False, "no result"),
    ],
)
def test_a_result_is_read_as_on_other_hosts(check: dict[str, Any], ok: bool, text: str) -> None:
    found = told(**check)
    assert found is not None and found.ok is ok and text in found.text


def test_what_was_not_asked_for_says_nothing() -> None:
    assert told_check(status("r", "RUNNING")) is None
    assert told_check(status("r", "RUNNING", check_status=None)) is None
    assert told(type="TCP", tcp={"succeeded": True}) is None


def heard(*found: CheckResult, check: HealthCheck = CHECK) -> tuple[ReadinessCount, list[bool]]:
    """These are told one second after the other; the changes that come of it."""
    it, changes = ReadinessCount(), []
    for at, one in enumerate(found):
        change = it.heard(one, float(at), check=check)
        changes += [] if change is None else [change]
    return it, changes


def test_the_first_result_is_enough() -> None:
    assert heard(GOOD, GOOD)[1] == [True]
    assert heard(BAD, OTHER, BAD)[1] == [False]
    assert heard(BAD, GOOD)[1] == [False, True]


def test_failures_that_are_told_are_counted_as_on_other_hosts() -> None:
    results = [BAD, GOOD, BAD, OTHER, GOOD, BAD, OTHER, BAD, OTHER, GOOD, BAD, NONE, BAD]
    progress = ReadyProgress(CHECK.max_failures)
    expected = [
        change for one in results if (change := progress.result(one.ok)) is not None
    ]  # fmt: skip
    assert heard(*results)[1] == expected == [False, True, False, True, False]


def test_a_failure_that_stays_has_come_again_once_that_is_sure() -> None:
    it, changes = heard(GOOD, BAD)
    assert changes == [True] and it.due_at == 1.0 + 2 * LONGEST_S
    assert it.heard(BAD, 2.0, check=CHECK) is None and it.due_at == 1.0 + 2 * LONGEST_S
    assert it.heard(OTHER, 3.0, check=CHECK) is None and it.due_at == 3.0 + LONGEST_S
    assert it.failed() is False and it.due_at is None and it.text.endswith("exit code 2")
    assert it.failed() is None


def test_a_check_that_passes_again_takes_the_failures_back() -> None:
    it, changes = heard(GOOD, BAD, GOOD)
    assert changes == [True] and it.due_at is None


def test_one_failure_is_enough_where_no_more_are_allowed() -> None:
    one = HealthCheck("r", max_failures=1)
    assert heard(GOOD, NONE, check=one)[1] == [True, False]
    assert heard(GOOD, BAD, check=one)[1] == [True, False]


def test_no_result_is_none_yet_until_the_first_check_must_have_ended() -> None:
    it, changes = heard(NONE, NONE)
    assert changes == [] and it.due_at == CHECK.initial_s + CHECK.timeout_s + SLACK_S
    assert it.failed() is False and "no result" in it.text
    it, changes = heard(NONE, GOOD)
    assert changes == [True] and it.due_at is None


def test_silence_of_which_nobody_hears_counts_for_nothing() -> None:
    it, _ = heard(GOOD, BAD, OTHER)
    it.interrupted()
    assert it.due_at is None
    assert it.heard(OTHER, 9.0, check=CHECK) is None and it.due_at == 9.0 + 2 * LONGEST_S
    it.interrupted()
    assert it.heard(GOOD, 10.0, check=CHECK) is True, "others may have told another thing"
    assert it.heard(GOOD, 11.0, check=CHECK) is None
    assert it.failed() is False
    it.interrupted()
    assert it.heard(BAD, 12.0, check=CHECK) is False and it.due_at is None
