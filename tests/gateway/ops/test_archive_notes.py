"""What health says of an archive that lags."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.archive.messages import GetPeriods, PeriodsListed
from peloton.gateway.ops.health_notes import (
    FORGOTTEN_LATE_S,
    LEAVES_LATE_S,
    archive_notes,
    leaves_late_s,
)
from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.vocabulary import Key, Query, key

NOW_S = 1_000_000.0


class Lagging:
    """A cluster of which one shard holds ended jobs, and one archive has some."""

    def __init__(self, *, leaves_at: float | None, forgotten_at: float) -> None:
        self.leaves_at, self.forgotten_at = leaves_at, forgotten_at

    def shards_of(self, kind: str) -> list[Key]:
        return [key("shard", f"{kind}-0"), key("shard", f"{kind}-1")]

    def read(self, shard: Key, query: Query) -> Any:
        assert isinstance(query, GetPeriods)
        if shard.endswith("/1"):
            return None  # it is elsewhere
        return PeriodsListed((), 3, 4, due_at=self.forgotten_at)

    def ended_retained(self, kind: str) -> list[RetainedEnded]:
        return [RetainedEnded(), RetainedEnded(2, 20, due_s=self.leaves_at)]


@pytest.mark.parametrize(
    ("leaves_late", "forgotten_late", "texts"),
    [
        (None, 0.0, []),
        (-500.0, -500.0, []),
        (LEAVES_LATE_S, FORGOTTEN_LATE_S, []),
        (LEAVES_LATE_S + 1, 0.0, ["archive: ended jobs should have left memory 901 s ago"]),
        (
            None,
            FORGOTTEN_LATE_S + 1,
            ["archive: archived jobs should have been deleted 3601 s ago"],
        ),
    ],
)
def test_what_is_late_by_more_than_the_margin_is_named(
    leaves_late: float | None, forgotten_late: float, texts: list[str]
) -> None:
    leaves_at = NOW_S - leaves_late if leaves_late is not None else None
    cluster: Any = Lagging(leaves_at=leaves_at, forgotten_at=NOW_S - forgotten_late)
    assert [*map(str, archive_notes(cluster, NOW_S))] == texts
    assert leaves_late_s(cluster, NOW_S) == max(leaves_late or 0.0, 0.0)


def test_an_archive_that_deletes_nothing_is_never_late() -> None:
    cluster: Any = Lagging(leaves_at=None, forgotten_at=float("inf"))
    assert archive_notes(cluster, NOW_S) == ()
