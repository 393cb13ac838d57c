"""Listings of a kind with ranks: the newest first, whole pages of any order, and words in texts."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from peloton.runtime.core.reading import listing as l
from peloton.runtime.core.reading import ranked_views as r
from peloton.runtime.core.reading.blocks import SEPARATOR, Block
from peloton.runtime.core.reading.filters import AMONG, BETWEEN, PAIR, PART, TEXT, Where
from peloton.runtime.core.reading.views import Views
from peloton.runtime.vocabulary import Key, Value, key

WORDS = ("alpha", "beta", "Gamma-7", "delta", "epsilon=1", "be")
NEWEST = (l.SortOrder("at", down=True), l.SortOrder("note"))


class Line(Value, frozen=True, gc=False, array_like=True):
    note: Key
    at: float
    owner: str
    size: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    text: tuple[str, ...] = ()  # beside it in a shard; here for the slow way


KINDS: Any = {"note": SimpleNamespace(name="note", listing=SimpleNamespace(ranked=("at", "note")))}


def line(number: int, chance: random.Random) -> Line:
    """Ties of ranks are many; a line that comes back has its rank, as an entity that changes."""
    words = [word.lower() for word in chance.choices(WORDS, k=3)]
    return Line(
        key("note", f"{number:05d}"),
        float(number * 7919 % 40),
        chance.choice(["ann", "bob", "cleo"]),
        chance.randrange(5),
        ((chance.choice("ab"), chance.choice("xyz")),),
        (" ".join(words[:2]), words[2]),
    )


def put(views: Views, lines: Sequence[Line] = (), gone: Sequence[Key] = ()) -> None:
    """What a frame does, once it is safe."""
    views._next = {each.note: each for each in lines} | dict.fromkeys(gone)
    views._next_texts = {each.note: each.text for each in lines}
    views.commit()


def drawn(chance: random.Random) -> l.ListViews:
    tests = chance.sample(
        [
            Where("owner", AMONG, words=("ann", "bob")),
            Where("owner", PART, words=("o",), others=(Where("size", AMONG, (), (1.0,)),)),
            Where("at", BETWEEN, numbers=(10.0, 30.0)),
            Where("at", BETWEEN, numbers=(float("-inf"), 20.0)),
            Where("labels", PAIR, words=("a", "x")),
            Where("labels", PAIR, words=("", "y")),
            Where("", TEXT, words=(chance.choice(["alpha", "be", "ta", "nowhere"]),)),
            Where("", TEXT, words=("*m*", "d?lta")),
            Where("", TEXT, words=("*",)),
        ],
        chance.choice([0, 1, 1, 2, 3]),
    )
    fields = chance.sample(["size", "at", "owner"], chance.randrange(4))
    orders = [l.SortOrder(field, chance.random() < 0.5) for field in fields]
    order = chance.choice([NEWEST, (*orders, l.SortOrder("note"))])
    limit = chance.choice([0, 1, 7, 100, l.UNLIMITED])
    enough = max(limit, chance.choice([1, 20, 300, l.UNLIMITED]))
    tally = chance.choice([(), ("owner",)]) if enough == l.UNLIMITED else ()
    return l.ListViews("note", tuple(tests), order, limit, tally, ranked=True, enough=enough)


def has(word: str, texts: Sequence[str]) -> bool:
    if "*" not in word and "?" not in word:
        return any(word in text for text in texts)
    return any(fnmatch.fnmatchcase(one, word) for text in texts for one in text.split())


def naive(query: l.ListViews, lines: Sequence[Line]) -> list[Line]:
    """The same question to all at once, the slow way."""
    plain = tuple(test for test in query.tests if test.rule != TEXT)
    words = [word for test in query.tests if test.rule == TEXT for word in test.words]
    found = l.matching(l.ListViews("note", plain), lines)
    found = [each for each in found if all(has(word, each.text) for word in words)]
    found.sort(key=lambda each: each.note)
    for order in reversed(query.order):
        found.sort(key=lambda each, field=order.field: getattr(each, field), reverse=order.down)
    return found


def pages(views: Views, query: l.ListViews) -> list[l.Listed]:
    found = [views.page(query)]
    while found[-1].after:
        found.append(views.page(l.onwards(query, found[-1])))
    return found


def check(views: Views, query: l.ListViews, lines: Sequence[Line]) -> None:
    best = l.Best(query)
    for page in pages(views, query):
        best.add(page)
    found, wanted = best.listed(), naive(query, lines)
    assert [*found.items] == wanted[: query.limit], query
    assert min(found.matched, query.enough) == min(len(wanted), query.enough), query
    for (counts,) in [found.tallies] if query.tally else []:
        owners = [each.owner for each in wanted]
        assert dict(counts) == {owner: owners.count(owner) for owner in dict.fromkeys(owners)}


@pytest.mark.parametrize("seed", range(15))
def test_pages_are_what_one_sort_of_all_would_be_whatever_comes_and_goes(seed: int) -> None:
    chance = random.Random(seed)
    views = Views(KINDS)
    there: dict[Key, Line] = {}
    for _ in range(5):
        some = [line(n, chance) for n in chance.sample(range(6000), chance.choice([1, 40, 2500]))]
        gone = chance.sample([*there], len(there) // chance.choice([2, 50]))
        gone = [each for each in gone if each not in {one.note for one in some}]
        put(views, some, gone)
        evicted = chance.sample([*there], len(there) // 9)
        there |= {each.note: each for each in some}
        views.drop(evicted)
        for each in dict.fromkeys([*gone, *evicted]):
            there.pop(each, None)
        assert len(views._rankings["note"]) == len(there)
        for _ in range(4):
            check(views, drawn(chance), [*there.values()])


def test_the_newest_of_very_many_are_found_without_looking_at_all() -> None:
    views = Views(KINDS)
    lines = [Line(key("note", f"{n:06d}"), float(n), "ann") for n in range(20_000)]
    put(views, lines)
    query = l.ListViews("note", (), NEWEST, 10, ranked=True, enough=100)
    (page,) = pages(views, query)
    assert [each.at for each in page.items] == [float(n) for n in range(19_999, 19_989, -1)]
    assert 100 <= page.matched < 300, "it stops soon after it has enough"
    none = l.ListViews("note", (Where("owner", AMONG, ("bob",)),), NEWEST, 10, ranked=True)
    assert len(pages(views, none)) == 20, "and one page examines a thousand"
    few = Where("at", BETWEEN, numbers=(19_000.0, 19_001.0))
    (page,) = pages(views, l.ListViews("note", (few,), NEWEST, 10, ranked=True))
    assert page.matched == 2, "ranks that are not wanted are not examined"


def test_an_entity_that_comes_back_with_another_rank_is_there_once() -> None:
    views = Views(KINDS)
    old, new = Line(key("note", 1), 1.0, "ann"), Line(key("note", 1), 9.0, "ann")
    put(views, [old])
    put(views, [new])
    check(views, l.ListViews("note", (), NEWEST, 10, ranked=True), [new])


def test_many_that_come_or_go_leave_blocks_of_a_bounded_size() -> None:
    chance = random.Random(1)
    views = Views(KINDS)
    lines = [Line(key("note", f"{n:05d}"), float(n), "ann") for n in range(5000)]
    for start in range(0, 5000, 50):
        put(views, lines[start : start + 50])
    sizes = [len(block) for block in views._rankings["note"]._blocks]
    assert max(sizes) <= r.BLOCK_MAX and len(sizes) <= 5000 // (r.BLOCK_MAX // 2) + 2
    left = chance.sample(lines, 100)
    put(views, gone=[each.note for each in lines if each not in left])
    sizes = [len(block) for block in views._rankings["note"]._blocks]
    assert sum(sizes) == 100 and len(sizes) <= 100 // r.BLOCK_MIN + 1


def test_a_word_does_not_begin_in_one_text_and_end_in_another() -> None:
    views = Views(KINDS)
    put(views, [Line(key("note", 1), 1.0, "ann", text=("one", "two"))])
    for word, found in (("onetwo", 0), (f"e{SEPARATOR}t", 0), ("one", 1), ("tw?", 1), ("*o", 1)):
        query = l.ListViews("note", (Where("", TEXT, (word,)),), NEWEST, ranked=True)
        assert views.page(query).matched == found, word


class Changing:
    """A summary of which the first look at a field changes its block, as another thread may."""

    def __init__(self, block: Block, change: Callable[[], None]) -> None:
        self._block, self._change = block, change
        self._looked = False

    @property
    def owner(self) -> str:
        if not self._looked:
            self._looked = True
            self._change()
        return "slow"


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_made_of_data_half_changed_does_not_stay(gone: bool) -> None:
    """Of a summary and of a column that a reader on another thread makes meanwhile."""
    first = Line(key("note", 1), 1.0, "ann", text=("one",))
    new = Line(key("note", 0), 0.0, "bob", text=("new",))
    block = Block([(1.0, first.note)], [first], texts=[first.text])

    def change() -> None:
        if gone:
            block.remove((1.0, first.note))
        else:
            block.put((0.0, new.note), new, texts=new.text)

    block.put((2.0, key("note", 2)), Changing(block, change), texts=("two",))
    assert block.having("one"), "made before the change"
    block.column("owner")
    assert block.column("owner") == [each.owner for each in block.summaries]
    assert [*block.having("two")] == [len(block) - 1]
    assert bool(block.having("one")) is not gone
    block.put((3.0, key("note", 3)), new, texts=("three",))
    assert block.column("owner") == [each.owner for each in block.summaries]
    assert [*block.having("three")] == [len(block) - 1]


def test_texts_are_searched_as_they_are_after_a_change() -> None:
    views = Views(KINDS)
    first = Line(key("note", 1), 1.0, "ann", text=("one",))
    put(views, [first])
    query = l.ListViews("note", (Where("", TEXT, ("two",)),), NEWEST, ranked=True)
    assert not views.page(query).matched
    put(views, [Line(key("note", 1), 1.0, "ann", text=("two",))])
    assert views.page(query).matched == 1


def test_a_page_ends_where_very_much_text_was_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "CHARS_MAX", 10_000)
    views = Views(KINDS)
    lines = [
        Line(key("note", f"{n:05d}"), float(n), "ann", text=(f"{n:05d}" * 20,)) for n in range(3000)
    ]
    put(views, lines)
    query = l.ListViews("note", (Where("", TEXT, ("00007",)),), NEWEST, ranked=True)
    assert len(pages(views, query)) >= 3
    check(views, query, lines)
