"""Waits for the end of a job over a feed by hand: when a job is read, and when nobody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from peloton.actors.job.messages import JobView
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.gateway.ops.waits import JobWaits
from peloton.runtime.core.reading.inspection import ChangesPage
from peloton.runtime.vocabulary import Key

JOB = Key("job/1")
ENDED = min(TERMINAL_JOB_STATES)


def view(state: Any) -> JobView:
    """As much of a job as is looked at."""
    summary: Any = SimpleNamespace(state=state)
    nothing: Any = None
    return JobView(summary, nothing, nothing, 1, 1, "")


class Feed:
    """Pages come when the test gives them; each read of the job is counted."""

    def __init__(self) -> None:
        self.cluster: Any = self
        self.pages: asyncio.Queue[ChangesPage] = asyncio.Queue()
        self.asked = self.reads = 0
        self.state: Any = None

    def shard_of(self, key: Key) -> Key:
        return Key("shard/jobmgr/0")

    def changes_in(self, read: ChangesPage) -> list[Any]:
        return []

    async def page(self, shard: Key, query: Any, *, patience_s: float | None) -> ChangesPage:
        self.asked += 1
        return await self.pages.get()

    async def answered(self, ask: Callable[[], Future[Any]], *, patience_s: float) -> JobView:
        self.reads += 1
        return view(self.state)


def page(position: int, *, gap: bool = False) -> ChangesPage:
    return ChangesPage((), gap, (position, 0), False)


async def concluded(found: JobView) -> Any:
    return found.summary.state


async def settled() -> None:
    """All that can be done without another page is done."""
    loop = asyncio.get_running_loop()
    for _ in range(20):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def test_a_gap_in_the_feed_makes_a_wait_read_its_job_again() -> None:
    """The end may be among the changes that are no longer kept."""

    async def wait() -> None:
        feed = Feed()
        waits = JobWaits(feed)  # type: ignore[arg-type]
        feed.pages.put_nowait(page(1))
        waiting = asyncio.create_task(waits.until_ended(JOB, 20.0, conclude=concluded))
        await settled()
        assert feed.reads == 1 and not waiting.done()
        feed.pages.put_nowait(page(2))
        await settled()
        assert feed.reads == 1, "nothing has changed"
        feed.state = ENDED
        feed.pages.put_nowait(page(9, gap=True))
        assert await waiting == ENDED

    asyncio.run(wait())


def test_a_job_that_nobody_waits_for_is_read_by_nobody() -> None:
    async def wait() -> None:
        feed = Feed()
        waits = JobWaits(feed)  # type: ignore[arg-type]
        feed.pages.put_nowait(page(1))
        assert await waits.until_ended(JOB, 0.0, conclude=concluded) is None
        await settled()
        asked = feed.asked
        feed.pages.put_nowait(page(2))
        await settled()
        assert feed.asked == asked and feed.pages.qsize() <= 1
        assert not waits._waits, "and it is forgotten"

    asyncio.run(wait())
