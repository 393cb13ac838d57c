"""The numbering of changes of services: what is known since when, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from peloton.actors.job.facts import DeletionOrdered, JobForgotten, JobMade, StopOrdered
from peloton.actors.job.messages import job_key
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import BATCH, SERVICE, JobSpec
from peloton.actors.respool.messages import ROOT
from peloton.actors.task.facts import TaskForgotten
from peloton.gateway.cluster.cluster_client import Code
from peloton.gateway.private.host_watches import MISSED, HostWatch, HostWatches
from peloton.gateway.v1alpha.service_changes import ServiceChanges, Watched, service_changes
from peloton.runtime.core.reading.changes import Change, Mark
from peloton.runtime.core.reading.listing import Listed
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.vocabulary import Fact, Key
from tests.gateway.fleet_fixture import WAIT_S_MAX

A, B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


class Told:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.found: list[tuple[Watched, int]] = []
        self.over = asyncio.Event()

    def changed(self, what: Watched, revision: int) -> None:
        self.found.append((what, revision))

    def missed(self) -> None:
        self.over.set()


def change(key: Key, *facts: Fact, members: int = 0) -> Change:
    return Change(Mark(1, 0), StoryLine(0.0, key, members, "", facts, ""))


def made(job: str, kind: str = SERVICE) -> Change:
    default = TaskConfig()
    spec = JobSpec(
        name="n", owner="", pool=ROOT, instances=1, default=default, job_type=kind, raw=b""
    )
    return change(job_key(job), JobMade(job_key(job), spec, "/p", 0.0))


def stopped(job: str) -> Change:
    return change(job_key(job), StopOrdered(0.0))


@pytest.fixture
def changes() -> ServiceChanges:
    return ServiceChanges(now_ms=1000)


def note(of: ServiceChanges, some: list[Change]) -> None:
    for one in some:
        assert of.note(one)


def test_a_revision_is_known_from_the_beginning_on(changes: ServiceChanges) -> None:
    begin = changes.revision
    assert changes.knows(begin) and changes.since(begin) == []
    assert not any(map(changes.knows, (0, 1, begin - 1, begin + 1, begin + (1 << 20))))
    note(changes, [made(A), stopped(A)])
    assert changes.knows(begin) and changes.knows(changes.revision)
    assert changes.since(begin) == [(Watched(A), changes.revision)], "each object once"


def test_numbers_of_others_are_not_known(changes: ServiceChanges) -> None:
    note(changes, [made(A)])
    identity = (1 << 20) - 1
    other = (changes.revision & ~identity) | ((changes.revision + 1) & identity)
    assert not changes.knows(other)


def test_what_is_forgotten_makes_old_revisions_unknown() -> None:
    changes = ServiceChanges(now_ms=1000, objects_max=2)
    begin = changes.revision
    note(changes, [made(A)])
    first = changes.revision
    note(changes, [change(Key(f"task/{A}/0"), TaskForgotten(), members=0b11)])
    assert not changes.knows(begin) and changes.knows(first)
    assert [what for what, _ in changes.since(first)] == [Watched(A, 0), Watched(A, 1)]


def test_watchers_are_told_of_their_services_alone(changes: ServiceChanges) -> None:
    of_a, of_any = Told(), Told()
    changes.add(of_a, [A])
    changes.add(of_any, None)
    note(changes, [made(A), made(B, BATCH), stopped(B)])
    task = change(Key(f"task/{A}/2"), TaskForgotten(), members=0b10)
    note(changes, [task, change(Key(f"task/{B}/0"), TaskForgotten(), members=1)])
    assert [what for what, _ in of_a.found] == [Watched(A), Watched(A, 2001)]
    assert of_any.found == of_a.found
    changes.remove(of_a, [A])
    changes.remove(of_any, None)
    note(changes, [stopped(A)])
    assert len(of_a.found) == len(of_any.found) == 2 and not changes.in_use


def test_a_deleted_service_is_told_once(changes: ServiceChanges) -> None:
    told = Told()
    note(changes, [made(A)])
    changes.add(told, [A])
    of_a = job_key(A)
    note(changes, [change(of_a, DeletionOrdered(0.0)), stopped(A), change(of_a, JobForgotten())])
    assert [what for what, _ in told.found] == [Watched(A)]
    note(changes, [made(A)])
    assert len(told.found) == 2, "the id is used again"


class Gap:
    """A feed of one shard that ends when it is told to."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self.cluster: Any = SimpleNamespace(shards_of=lambda kind: [Key("shard/jobmgr/0")])
        self.cluster.ask = lambda shard, query: None

    async def mark(self, shard: Key) -> tuple[int, int]:
        return 0, 0

    async def answered(self, ask: Callable[[], Future[Any]], *, patience_s: float | None) -> Any:
        return Listed("job", ())

    async def behind(self, *args: Any, **more: Any) -> AsyncIterator[list[Change]]:
        yield [made(A)]
        await self.ends.wait()


def test_a_gap_ends_the_numbering_and_tells_everybody() -> None:
    async def play() -> None:
        gap, told, of_a = Gap(), Told(), Told()
        feed = service_changes(gap)  # type: ignore[arg-type]
        changes = await feed.present()
        assert await feed.present() is changes
        changes.add(told, None)
        changes.add(of_a, [A])
        gap.ends.set()
        await asyncio.wait_for(asyncio.gather(told.over.wait(), of_a.over.wait()), WAIT_S_MAX)
        gap.ends.clear()
        assert await feed.present() is not changes

    asyncio.run(play())


class GapAtOnce(Gap):
    """A feed that has a gap before whoever waits for the beginning is woken."""

    async def behind(self, *args: Any, **more: Any) -> AsyncIterator[list[Change]]:
        for page in ():
            yield page


def test_watches_of_hosts_share_a_reading_and_who_comes_late_is_told() -> None:
    async def play() -> None:
        gap = Gap()
        watches = HostWatches(gap, None)  # type: ignore[arg-type]
        first = await watches._hosts.present()
        assert await watches._hosts.present() is first, "one reading for all"
        early, late = HostWatch(None), HostWatch(None)  # type: ignore[arg-type]
        first.add(early)
        gap.ends.set()
        await asyncio.wait_for(early.wait(), WAIT_S_MAX)
        first.add(late)
        assert early._over == late._over == (Code.UNAVAILABLE, MISSED)

    asyncio.run(play())


def test_who_comes_after_a_gap_is_told_of_it() -> None:
    async def play() -> None:
        feed, told, of_a = service_changes(GapAtOnce()), Told(), Told()  # type: ignore[arg-type]
        changes = await feed.present()
        changes.add(told, None)
        changes.add(of_a, [A])
        await asyncio.wait_for(asyncio.gather(told.over.wait(), of_a.over.wait()), WAIT_S_MAX)

    asyncio.run(play())
