"""A call whose client left, or whose deadline has passed, asks the cluster for nothing more."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from peloton.actors.job.messages import DeleteJob, GetJob, job_key
from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.cluster.cluster_client import ASKS_IN_FLIGHT_MAX, ClusterClient
from peloton.gateway.server.calls import CallContext

JOB = job_key("0" * 36)


class Client(CallContext):
    """The context of a call whose client leaves when it is told to."""

    left = False

    @property
    def cancelled(self) -> bool:
        return self.left

    def time_remaining(self) -> float | None:
        return None


class Counting:
    """A cluster that answers at once, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, *_: Any, **__: Any) -> Future[Any]:
        self.asked += 1
        future: Future[Any] = Future()
        future.set_result("answer")
        return future


def test_what_nobody_waits_for_is_not_begun() -> None:
    cluster, client = Counting(), Client()
    asks = ClusterClient(cluster)  # type: ignore[arg-type]
    assert asks.ask(JOB, GetJob(), context=client) == "answer"  # type: ignore[arg-type]
    client.left = True
    for message in (GetJob(), DeleteJob()):
        with pytest.raises(CallEnded) as ended:
            asks.ask(JOB, message, context=client)  # type: ignore[arg-type]
        assert ended.value.code is CallCode.CANCELLED
    assert cluster.asked == 1


def test_a_long_listing_stops_when_its_client_leaves() -> None:
    cluster, client = Counting(), Client()
    asks = ClusterClient(cluster)  # type: ignore[arg-type]
    answers = asks.each(((JOB, GetJob()) for _ in range(1000)), client)  # type: ignore[arg-type]
    assert next(answers) == "answer"
    client.left = True
    with pytest.raises(CallEnded):
        next(answers)
    assert cluster.asked <= ASKS_IN_FLIGHT_MAX + 2
