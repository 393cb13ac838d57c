"""The change feed: each change once, in order, only when safe; or a gap."""

from __future__ import annotations

import random

from msgspec.structs import replace

from peloton.runtime.core.reading.changes import CHANGES_PAGE_BYTES_MAX, Changes, Mark
from peloton.runtime.core.turning.story import Story, StoryLine
from peloton.runtime.vocabulary import key
from tests.toy import messages as w
from tests.toy.bench import Bench

X = key("note", "x")


def totals(bench: Bench, after: Mark) -> list[int]:
    page = bench.shard.changes.after(after)
    assert not page.gap
    return [fact.amount for change in page.changes for fact in change.line.facts]


def test_a_change_is_seen_once_its_frame_is_safe():
    bench = Bench()
    begin = bench.shard.changes.after(None).mark
    bench.send(X, w.Add(1))
    bench.send(X, w.Add(2))
    bench.rest()
    assert totals(bench, begin) == [1, 2]
    bench.send(X, w.Add(3))
    ready = bench.ready()
    assert totals(bench, begin) == [1, 2], "the frame is not safe"
    bench.write(ready)
    bench.shard.committed()
    assert totals(bench, begin) == [1, 2, 3]


def test_marks_go_on_across_a_restart():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.rest()
    mark = bench.shard.changes.after(None).mark
    bench.send(X, w.Add(2))
    bench.rest()
    bench.shard = bench.replay()
    bench.send(X, w.Add(3))
    bench.rest()
    assert totals(bench, mark) == [2, 3]
    story = bench.shard.turns.story.of(X)
    assert [fact.amount for line in story for fact in line.facts] == [1, 2, 3]


def test_what_a_checkpoint_swallowed_is_a_gap():
    bench = Bench(checkpoint_bytes_min=300)
    begin = bench.shard.changes.after(None).mark
    for _ in range(40):
        bench.send(X, w.Add(1))
        bench.rest()
    assert len(totals(bench, begin)) == 40
    assert bench.checkpoint[0] > 0
    bench.shard = bench.replay()
    page = bench.shard.changes.after(begin)
    assert page.gap and len(page.changes) < 40
    assert totals(bench, page.mark) == []


def line(at: int) -> StoryLine:
    return StoryLine(float(at), X, 0, "Add", (w.Added(at),), "")


def test_readers_of_any_pace_see_each_change_once_or_a_gap():
    for seed in range(50):
        chance = random.Random(seed)
        feed = Changes(changes_max=20)
        feed.begin(3)
        said, position = 0, 3
        readers: list[tuple[Mark, int]] = [(feed.after(None).mark, 0)] * 3
        for _ in range(100):
            if chance.random() < 0.6:
                position += 1
                count = chance.randrange(5)
                feed.framed(position, [line(said + at) for at in range(count)])
                feed.commit()
                said += count
            number = chance.randrange(3)
            mark, seen = readers[number]
            page = feed.after(mark, limit=chance.randint(1, 6))
            got = [int(change.line.at) for change in page.changes]
            if page.gap:
                seen = got[0] if got else said
            assert got == list(range(seen, seen + len(got))), "in order, none twice, none left out"
            readers[number] = (page.mark, seen + len(got))
            assert page.more == (seen + len(got) < said)


def test_a_mark_ahead_of_the_feed_is_a_gap():
    feed = Changes()
    feed.begin(3)
    assert feed.after(Mark(9, 0)).gap


def fat(at: int, size: int) -> StoryLine:
    return replace(line(at), size=size)


def test_large_changes_are_kept_by_their_bytes_and_the_newest_stay():
    feed = Changes(bytes_max=100)
    begin = feed.after(None).mark
    for at in range(10):
        feed.add(at + 1, (fat(at, 30),))
    page = feed.after(begin)
    assert page.gap and [change.line.at for change in page.changes] == [7.0, 8.0, 9.0]
    feed.add(11, (fat(10, 101),))
    assert feed.after(page.mark).gap, "a frame that is larger than all that is kept is a gap"
    assert feed.after(page.mark).changes == ()


def test_a_page_ends_where_it_would_become_too_large_to_travel():
    feed = Changes()
    begin = feed.after(None).mark
    for at in range(5):
        feed.add(at + 1, (fat(at, CHANGES_PAGE_BYTES_MAX // 2),))
    seen: list[float] = []
    mark, more = begin, True
    while more:
        page = feed.after(mark)
        assert len(page.changes) <= 2
        seen += [change.line.at for change in page.changes]
        mark, more = page.mark, page.more
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_story_is_bounded_by_bytes_too_and_a_turn_says_how_large_it_was():
    story = Story(bytes_max=100)
    for at in range(10):
        story.add(fat(at, 30))
    assert [told.at for told in story.of(X)] == [7.0, 8.0, 9.0]
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.rest()
    (told,) = [one for one in bench.shard.turns.story.of(X) if one.facts]
    assert told.size > 0
    (again,) = [one for one in bench.replay().turns.story.of(X) if one.facts]
    assert again.size > 0, "after a restart too"
