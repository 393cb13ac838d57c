"""Listings that improve an answer, and must not fail it: they are used if they come soon."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from typing import Any

from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.runtime.vocabulary import Key, Query

READ_S_MAX = 2.0
"""How long an answer waits for them."""


def listed_soon(
    cluster_client: ClusterClient, asks: Sequence[tuple[Key, Query]], *, context: Context
) -> list[tuple[Any, ...]] | None:
    """Return the answers to these listings; None if one does not come, as its shard has no
    owner."""
    monotonic = cluster_client.execution.monotonic
    until = monotonic() + READ_S_MAX
    futures: list[Future[Any]] = [cluster_client.cluster.ask(*ask) for ask in asks]
    found: list[tuple[Any, ...]] = []
    for future in futures:
        try:
            answer = context.await_answer(future, max(until - monotonic(), 0.0))
        except TimesUp:
            return None
        if not isinstance(answer, tuple):
            return None
        found.append(answer)
    return found
