"""Followers of the change feed: told with the frame that concerns them, and by no timer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.reading import followers
from peloton.runtime.core.reading.changes import Changes, Mark
from peloton.runtime.core.reading.followers import FOLLOW_S, Followers
from peloton.runtime.core.reading.inspection import (
    ChangesPage,
    FollowChanges,
    changes_of,
    shard_key,
)
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.vocabulary import Unavailable, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.kinds import KINDS

X, Y = key("note", "x"), key("note", "y")
CODEC = Codec(KINDS)


def follow(bench: Bench, mark: Any, *names: str, ask: Any = None) -> Any:
    """Ask the shard; its answer, if there was one at once."""
    query = FollowChanges(mark, names)
    bench.send(shard_key(bench.id), query, reply_to=ask or object())  # type: ignore[arg-type]
    bench.rest()
    answers = bench.answers()
    return answers[0] if answers else None


def amounts(read: ChangesPage) -> list[int]:
    return [fact.amount for change in changes_of(CODEC, read) for fact in change.line.facts]


def test_a_follower_is_answered_with_the_frame_that_names_it_and_no_sooner() -> None:
    bench = Bench()
    bench.send(X, w.Add(0))
    bench.rest()
    begin = follow(bench, None).mark
    assert follow(bench, begin, "x") is None, "there is nothing to tell yet"
    bench.send(Y, w.Add(1))
    bench.rest()
    assert bench.answers() == [], "not of what it did not ask for"
    bench.send(X, w.Add(2))
    ready = bench.ready()
    bench.write(ready)
    assert bench.answers() == [], "the frame is not safe"
    (read,) = [reply.value for reply in bench.shard.committed()]
    assert amounts(read) == [2] and not read.gap
    assert len(bench.shard.followers) == 0
    bench.send(Y, w.Add(3))
    bench.send(X, w.Add(4))
    bench.rest()
    assert amounts(follow(bench, read.mark, "x")) == [4], "what came meanwhile, at once"
    assert amounts(follow(bench, begin)) == [1, 2, 3, 4], "of all names"


def test_a_query_that_waits_too_long_gets_an_empty_page_and_continues_from_there() -> None:
    bench = Bench()
    begin = follow(bench, None).mark
    assert follow(bench, begin, "x") is None
    bench.send(Y, w.Add(1))
    bench.rest()
    assert bench.shard._wake_at() is not None
    bench.now += FOLLOW_S + 1
    bench.rest()
    (read,) = bench.answers()
    assert isinstance(read, ChangesPage)
    assert read.rows == () and not read.gap and read.mark > begin
    assert follow(bench, read.mark, "x") is None
    bench.send(X, w.Add(2))
    bench.rest()
    (read,) = bench.answers()
    assert isinstance(read, ChangesPage) and amounts(read) == [2]


def test_a_follower_that_was_away_for_too_long_gets_a_gap() -> None:
    bench = Bench()
    begin = follow(bench, None).mark
    bench.shard.changes._max = 3
    for _ in range(5):
        bench.send(X, w.Add(1))
        bench.rest()
    read = follow(bench, begin, "nobody")
    assert read.gap and read.rows == ()
    assert follow(bench, read.mark, "nobody") is None, "a gap is told once"


def test_there_are_so_many_followers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(followers, "FOLLOWERS_MAX", 2)
    begin = follow(bench, None).mark
    assert follow(bench, begin) is None
    assert follow(bench, begin) is None
    assert isinstance(follow(bench, begin), Unavailable)
    bench.now += FOLLOW_S + 1
    bench.rest()
    assert len(bench.answers()) == 2 and bench.shard.followers._by_name == {}
    assert follow(bench, begin) is None, "there is room again"


def line(of: str, amount: int) -> StoryLine:
    return StoryLine(0.0, key("note", of), 0, "Add", (w.Added(amount),), "", size=10)


@pytest.mark.parametrize("seed", range(30))
def test_followers_of_any_pace_and_filter_get_each_change_exactly_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "CHANGES_PAGE_BYTES_MAX", 25)
    chance = random.Random(seed)
    feed = Changes()
    waiting = Followers(feed, CODEC)
    names = [("a",), ("a", "b"), (), ("c",)]
    marks = [feed.end] * len(names)
    heard: list[list[int]] = [[] for _ in names]
    asking = dict.fromkeys(range(len(names)))
    said: list[tuple[str, int]] = []

    def told(replies: list[Any]) -> None:
        for reply in replies:
            asking[reply.reply_to] = None
            heard[reply.reply_to] += amounts(reply.value)
            marks[reply.reply_to] = Mark(*reply.value.mark)
            assert not reply.value.gap

    for position in range(1, 80):
        frame = [(chance.choice("abcd"), len(said) + at) for at in range(chance.randrange(5))]
        said += frame
        feed.framed(position, [line(*one) for one in frame])
        safe = feed.commit()
        assert safe is not None
        told(waiting.framed(*safe))
        told(waiting.expired(float(position)))
        for number in [n for n in asking if chance.random() < 0.5]:
            del asking[number]
            query = FollowChanges(marks[number], names[number], limit=chance.randint(1, 4))
            told(waiting.add(number, query, float(position)))
    for number, wanted in enumerate(names):
        for _ in range(len(said)):
            if number in asking:
                del asking[number]
                told(waiting.add(number, FollowChanges(marks[number], wanted), 80.0))
        assert heard[number] == [at for name, at in said if not wanted or name in wanted]
