"""A bug in a servicer: the client learns that there is one, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from peloton.gateway.access.guard import CallEnded, Guard

CODE = grpc.StatusCode


class Ends:
    """The ends of one call."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, ...]] = []

    def __call__(self, code: int, details: str, *, trailing: Any) -> None:
        self.found.append((code, details, trailing))


def test_a_bug_is_internal_without_its_text() -> None:
    ends = Ends()
    with Guard(ends, "Service.Method"):
        raise KeyError("secret")
    text = "Service.Method failed; see the daemon's log"
    assert ends.found == [(CODE.INTERNAL.value[0], text, ())]


def test_a_call_that_was_ended_on_purpose_keeps_its_status() -> None:
    ends = Ends()
    with Guard(ends, "Service.Method"):
        raise CallEnded(CODE.NOT_FOUND, "job not found", trailing=(("a", "b"),))
    assert ends.found == [(CODE.NOT_FOUND.value[0], "job not found", (("a", "b"),))]


def test_work_that_is_well_or_cancelled_ends_nothing() -> None:
    ends = Ends()
    with Guard(ends, "Service.Method"):
        pass
    with pytest.raises(asyncio.CancelledError), Guard(ends, "Service.Method"):
        raise asyncio.CancelledError
    assert ends.found == []
