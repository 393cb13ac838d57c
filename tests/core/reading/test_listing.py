"""Listings: pages of one shard, their best, and what comes of many shards in whatever order."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable

import pytest

from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.reading import listing as l
from peloton.runtime.core.reading.filters import AMONG, BETWEEN, PAIR, PART, Where
from peloton.runtime.core.reading.views import ONE_BY_ONE_MAX, Views
from peloton.runtime.vocabulary import Key, Value, key


class Mood(enum.IntEnum):
    GLAD = 1
    SAD = 2


class Line(Value, frozen=True, gc=False, array_like=True):
    note: Key
    mood: Mood
    at: float
    owner: str
    labels: tuple[tuple[str, str], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


BY_NOTE = l.SortOrder("note")


def line(number: int, chance: random.Random) -> Line:
    return Line(
        key("note", f"{number:05d}"),
        chance.choice([*Mood]),
        float(chance.randrange(50)),
        chance.choice(["ann", "bob", "cleo"]),
        ((chance.choice("ab"), chance.choice("xyz")),),
        (("up", chance.randrange(3)), ("down", 1)),
    )


def put(views: Views, *lines: Line, gone: tuple[Key, ...] = ()) -> None:
    """What a frame does, once it is safe."""
    views._next = {each.note: each for each in lines} | dict.fromkeys(gone)
    views.commit()


def drawn(chance: random.Random) -> l.ListViews:
    tests = chance.sample(
        [
            Where("mood", AMONG, numbers=(1.0,)),
            Where("owner", AMONG, words=("ann", "bob")),
            Where("at", BETWEEN, numbers=(10.0, 30.0)),
            Where("owner", PART, words=("o",)),
            Where("labels", PAIR, words=("a", "x")),
            Where("labels", PAIR, words=("", "y")),
        ],
        chance.randrange(3),
    )
    fields = chance.sample(["mood", "at", "owner"], chance.randrange(4))
    orders = [l.SortOrder(field, chance.random() < 0.5) for field in fields]
    limit = chance.choice([0, 1, 7, 100, l.UNLIMITED])
    return l.ListViews("note", tuple(tests), (*orders, BY_NOTE), limit, ("mood", "counts"))


def naive(query: l.ListViews, lines: list[Line]) -> tuple[list[Line], int]:
    """The same question to all at once, the slow way."""
    found = sorted(l.matching(query, lines), key=lambda each: each.note)
    for order in reversed(query.order):
        found.sort(key=lambda each, field=order.field: getattr(each, field), reverse=order.down)
    return found[: query.limit], len(found)


def whole(views: Views, query: l.ListViews) -> tuple[l.Listed, int]:
    """All pages of one shard, and how many there were."""
    pages = [views.page(query)]
    while pages[-1].after:
        pages.append(views.page(l.onwards(query, pages[-1])))
    return merged(query, pages), len(pages)


def merged(query: l.ListViews, pages: Iterable[l.Listed]) -> l.Listed:
    best = l.Best(query)
    for page in pages:
        best.add(page)
    return best.listed()


@pytest.mark.parametrize("seed", range(30))
def test_pages_of_many_shards_come_to_what_one_sort_of_all_would(seed: int):
    chance = random.Random(seed)
    lines = [line(number, chance) for number in range(chance.choice([0, 5, 2500]))]
    shards = [Views() for _ in range(3)]
    for each in lines:
        put(shards[chance.randrange(3)], each)
    query = drawn(chance)
    found = merged(query, [whole(views, query)[0] for views in shards])
    items, matched = naive(query, lines)
    assert ([*found.items], found.matched) == (items, matched)
    moods, counts = (dict(tally) for tally in found.tallies)
    matching = l.matching(query, lines)
    for mood in Mood:
        assert moods.get(mood.name, 0) == sum(each.mood is mood for each in matching)
    assert counts.get("down", 0) == matched


def test_one_question_looks_at_no_more_than_a_page():
    chance = random.Random(1)
    keys = [key("note", number) for number in range(5000)]
    looked: list[Key] = []

    def summary(of: Key) -> Line:
        looked.append(of)
        return line(len(looked), chance)

    page = l.page_of(l.ListViews("note", limit=3), keys, summary=summary)
    assert len(looked) == l.SCAN_MAX and page.after == keys[l.SCAN_MAX - 1]
    assert (len(page.items), page.matched) == (3, l.SCAN_MAX)


def test_a_page_of_fat_lines_is_made_of_fewer():
    fat = "x" * (l.LISTING_PAGE_BYTES_MAX // 50)
    views = Views()
    lines = [Line(key("note", f"{n:03d}"), Mood.SAD, 0.0, fat) for n in range(200)]
    put(views, *lines)
    query = l.ListViews("note", order=(BY_NOTE,))
    assert len(encode(views.page(query).items)) <= l.LISTING_PAGE_BYTES_MAX
    found, pages = whole(views, query)
    assert [*found.items] == lines and 1 < pages < 200
    huge = Line(key("note", "fattest"), Mood.SAD, 0.0, fat * 60)
    put(views, huge)
    assert whole(views, query)[0].matched == 201, "one that is too fat by itself is no end"


@pytest.mark.parametrize("seed", range(10))
def test_who_is_there_all_the_time_is_seen_once_whatever_comes_and_goes(seed: int):
    chance = random.Random(seed)
    views = Views()
    numbers = chance.sample(range(10_000), 4000)
    staying, others = numbers[:2500], numbers[2500:]
    put(views, *(line(n, chance) for n in staying + others[:700]))
    query = l.ListViews("note", order=(BY_NOTE,))
    seen: list[Key] = []
    page = views.page(query)
    while True:
        seen += [each.note for each in page.items]
        if not page.after:
            break
        some = chance.sample(others, 20 if chance.random() < 0.5 else 3 * ONE_BY_ONE_MAX)
        put(views, *(line(n, chance) for n in some))
        views.drop([key("note", f"{n:05d}") for n in chance.sample(others, 30)])
        put(views, gone=tuple(key("note", f"{n:05d}") for n in chance.sample(others, 200)))
        # Those that stay change, and so would move in any order but that of their keys.
        put(views, *(line(n, chance) for n in chance.sample(staying, 50)))
        page = views.page(l.onwards(query, page))
    assert len(seen) == len(set(seen))
    assert {key("note", f"{n:05d}") for n in staying} <= set(seen)
    assert views._keys["note"] == sorted(views._safe)


def test_kinds_are_kept_apart():
    views = Views()
    chance = random.Random(1)
    put(views, line(1, chance))
    views._next = {key("notebook", 1): "other"}
    views.commit()
    assert views.page(l.ListViews("note")).matched == 1
    assert views.page(l.ListViews("notebook")).items == ("other",)
    assert views.page(l.ListViews("nothing")) == l.Listed("nothing", ())


def test_what_cannot_be_meant_is_refused_and_not_passed_over():
    chance = random.Random(1)
    for wrong in (Where("at", "newest"), Where("colour", AMONG, words=("red",))):
        with pytest.raises((ValueError, AttributeError)):
            l.matching(l.ListViews("note", (wrong,)), [line(1, chance)])


def test_the_best_of_very_many_pages_holds_few_more_than_are_wanted():
    chance = random.Random(1)
    lines = [line(number, chance) for number in range(6000)]
    query = l.ListViews("note", order=(l.SortOrder("at", down=True), BY_NOTE), limit=50)
    best = l.Best(query)
    for start in range(0, len(lines), 50):
        best.add(l.Listed("note", tuple(lines[start : start + 50]), 50))
        assert len(best._items) <= 2 * query.limit + l.SCAN_MAX
    items, matched = naive(query, lines)
    assert ([*best.listed().items], best.listed().matched) == (items, matched)
