"""Restarts of single instances within the SLA: what a slice answers, as the call's end."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from peloton.actors.job.messages import StartInstances
from peloton.actors.job.slice.budget_messages import (
    ASKED_JOB,
    VIOLATES_SLA,
    VIOLATES_TEXT,
    MemberRestarted,
    RestartIfSpared,
)
from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.spared_restarts import TRIES_MAX, restart_within_sla
from peloton.runtime.vocabulary import Key, Refused

JOB = Key("job/j")
ASKS, REFUSES = (Refused(code, VIOLATES_TEXT, again=True) for code in (ASKED_JOB, VIOLATES_SLA))


class Slices:
    """Answers in this order, and the last one for good."""

    def __init__(self, *answers: Any) -> None:
        self._answers = [*answers]
        self.asked: list[tuple[Key, Any]] = []

    def ask(self, to: Key, message: Any, *, context: Any) -> Any:  # noqa: ARG002
        self.asked.append((to, message))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Ended(Exception):
    """The call has ended."""


class Call:
    """A call that only ends."""

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Ended(code, text)

    def abort_with_status(self, status: grpc.Status) -> None:
        raise Ended(status.code, status.details)


def restart(slices: Slices, instance: int = 1002) -> None:
    client, call = cast(ClusterClient, slices), cast(Context, Call())
    restart_within_sla(client, JOB, instance=instance, context=call)


def test_a_slice_that_can_spare_it_is_asked_once() -> None:
    slices = Slices(MemberRestarted(wanted=True))
    restart(slices)
    assert slices.asked == [(Key("slice/j/1"), RestartIfSpared(2))]


def test_one_that_asks_its_job_is_asked_again() -> None:
    slices = Slices(ASKS, ASKS, MemberRestarted(wanted=True))
    restart(slices)
    assert len(slices.asked) == 3


@pytest.mark.parametrize(("answer", "times"), [(REFUSES, 1), (ASKS, TRIES_MAX)])
def test_what_cannot_be_spared_is_aborted(answer: Refused, times: int) -> None:
    slices = Slices(answer)
    with pytest.raises(Ended) as ended:
        restart(slices)
    assert ended.value.args == (grpc.StatusCode.ABORTED, "pod restart would violate SLA")
    assert len(slices.asked) == times


def test_one_that_was_stopped_is_started() -> None:
    slices = Slices(MemberRestarted(wanted=False))
    restart(slices, 5)
    assert slices.asked[-1] == (JOB, StartInstances(((5, 6),), again=True))
