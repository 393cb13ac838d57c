"""What a daemon repeats to the successor of a keeper that was killed, and what it does not."""

from __future__ import annotations

from typing import Any

from peloton.backends.keeper_calling import UnansweredRequests


def launch(run: str, epoch: int) -> dict[str, Any]:
    return {"q": "launch", "host": "h", "epoch": epoch, "runs": [{"run": run}]}


def kill(run: str) -> dict[str, Any]:
    return {"q": "kill", "host": "h", "runs": [[run, 1.0]]}


def asked(requests: UnansweredRequests) -> list[tuple[str, str]]:
    found = []
    for each in requests.repeats():
        run = each["runs"][0] if "runs" in each else ""
        found.append((each["q"], run["run"] if isinstance(run, dict) else run[0] if run else ""))
    return found


def test_all_without_an_answer_is_repeated_and_lists_come_last() -> None:
    """A list that overtook a launch would not show its run, and its host would call it lost."""
    requests = UnansweredRequests()
    requests.record(launch("r-0-1", 3))
    requests.record(kill("r-0-1"))
    assert asked(requests) == [("hello", ""), ("launch", "r-0-1"), ("kill", "r-0-1"), ("list", "")]


def test_an_answer_settles_its_request() -> None:
    requests = UnansweredRequests()
    requests.record(launch("r-0-1", 3))
    requests.record(kill("r-0-1"))
    requests.settle({"a": "started", "host": "h", "run": "r-0-1"})
    assert ("launch", "r-0-1") not in asked(requests) and ("kill", "r-0-1") in asked(requests)
    requests.settle({"a": "ended", "host": "h", "run": "r-0-1"})
    assert asked(requests) == [("hello", ""), ("list", "")]


def test_a_late_refusal_takes_nothing_of_a_newer_claim_along() -> None:
    requests = UnansweredRequests()
    requests.record(launch("r-0-1", 3))
    requests.record(launch("r-1-1", 5))
    requests.settle({"a": "refused", "host": "h", "epoch": 3, "known": 4})
    assert asked(requests) == [("hello", ""), ("launch", "r-1-1"), ("list", "")]
    assert [each["epoch"] for each in requests.repeats()] == [5, 5, 5]


def test_without_a_claim_nothing_is_sent() -> None:
    requests = UnansweredRequests()
    assert requests.record(kill("r-0-1")) is None
    requests.record(launch("r-0-1", 3))
    sent = requests.record(kill("r-0-1"))
    assert sent is not None and sent["epoch"] == 3


def test_values_of_secrets_are_not_kept_for_a_repeat() -> None:
    """The run is missing in the list, and its host orders it again."""
    requests = UnansweredRequests()
    secret = {"memory_mb": 1.0, "files": [["token", "aHVzaA=="]], "refusal": None}
    refused = {**secret, "files": [], "refusal": ["KILLED", "why", "text"]}
    sent = launch("r-0-1", 3)
    sent["runs"] = [
        {"run": "r-0-1", "secrets": secret},
        {"run": "r-1-1"},
        {"run": "r-2-1", "secrets": refused},
    ]
    assert requests.record(sent) == sent
    assert asked(requests) == [
        ("hello", ""), ("launch", "r-1-1"), ("launch", "r-2-1"), ("list", ""),
    ]  # fmt: skip
    assert "aHVzaA==" not in repr(vars(requests))
