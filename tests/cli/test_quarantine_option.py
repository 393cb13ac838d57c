"""The option of a minicluster that says when a host is quarantined."""

from __future__ import annotations

import pytest

from peloton.processes.archive_options import limits_of
from peloton.settings.limits import QUARANTINE_AFTER


@pytest.mark.parametrize(("text", "count"), [("10", 10), ("1", 1), ("30", 30), ("off", 0)])
def test_a_number_or_off(text: str, count: int) -> None:
    texts: list[str] = []
    assert limits_of({"quarantine_after": text}, texts).quarantine_after == count
    assert not texts


@pytest.mark.parametrize("text", ["0", "31", "-1", "", "many", "1.5"])
def test_anything_else_is_named(text: str) -> None:
    texts: list[str] = []
    assert limits_of({"quarantine_after": text}, texts).quarantine_after == QUARANTINE_AFTER
    assert texts == [f"--quarantine-after: {text!r} is neither a number from 1 to 30 nor 'off'"]
