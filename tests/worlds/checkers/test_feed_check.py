"""The checker of change feeds: a page that differs from the journal in anything is named.

Frames and pages are written by hand. That storms find wrong feeds is in `test_planted.py`.
"""

from __future__ import annotations

import pytest

from peloton.chaos.cluster.rules.feed_check import FeedCheck
from peloton.chaos.cluster.world.feed_readers import FeedReader, Read
from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.core.reading.changes import ALL
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import key
from tests.toy import messages as w
from tests.toy.kinds import KINDS

SHARD = ShardId("house", 0)
CODEC = Codec(KINDS)
ANSWERED = RequestAnswered("c1-1", b"", b"", 0.0)
X, Y = key("note", "x"), key("note", "y")
ENTRIES = [
    [Entry(X, (w.Added(1), ANSWERED)), Entry(Y, (w.Added(2),))],
    [Entry(X, (ANSWERED,)), Entry(X, (w.Added(3),))],  # an answer alone is no change
    [Entry(Y, (w.Added(4),))],
]
END = (3, ALL)
ALL_OF_IT = ((1, 0), (1, 1), (2, 0), (3, 0))


def check(kinds: tuple[str, ...] = ()) -> tuple[FeedCheck, FeedReader]:
    world = World(KINDS, seed=1, sizes={"house": 1, "city": 1})
    reader = FeedReader(world, SHARD, query=FollowChanges(kinds=kinds), pause_s=0.0)
    found = FeedCheck([reader], CODEC)
    for at, entries in enumerate(ENTRIES):
        found.apply(DecodedFrame(SHARD, at + 1, 0.0, entries))
    return found, reader


def page(
    *at: tuple[int, int], gap: bool = False, mark: tuple[int, int] = END, other: int = 0
) -> ChangesPage:
    """A page with the changes of these positions; `other` is added to what they say."""
    facts = dict(zip(ALL_OF_IT, (1, 2, 3, 4), strict=True))
    rows = []
    for where in at:
        of = X if where in ((1, 0), (2, 0)) else Y
        entry = Entry(of, (w.Added(facts.get(where, 9) + other),))
        rows.append((*where, 0.0, CODEC.encode_entry(entry)))
    return ChangesPage(tuple(rows), gap, mark, more=False)


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ((0, ALL), page(*ALL_OF_IT)),
        ((0, ALL), page((1, 0), mark=(1, 0))),
        ((1, 0), page((1, 1), (2, 0), (3, 0))),
        (END, page()),
        ((0, ALL), page((2, 0), (3, 0), gap=True)),
        ((0, ALL), page(gap=True)),
    ],
)
def test_a_page_of_what_was_journaled_is_right(after: tuple[int, int], shown: ChangesPage) -> None:
    feeds, reader = check()
    reader.pages.append(Read(after, shown))
    feeds.step()
    assert feeds.pages == 1 and feeds.gaps == shown.gap and not reader.pages


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ((0, ALL), page((1, 0), (2, 0), (3, 0))),  # one is missing
        ((0, ALL), page((1, 0), (1, 1), (2, 0))),  # the last is missing
        ((0, ALL), page((2, 0), (3, 0))),  # the first are missing, and no gap is told
        ((1, 0), page(*ALL_OF_IT)),  # one is there a second time
        ((0, ALL), page((1, 1), (1, 0), (2, 0), (3, 0))),  # not in order
        ((0, ALL), page((2, 0), gap=True)),  # one behind a gap is missing
        ((0, ALL), page((1, 1), (2, 0), (3, 0), gap=True)),  # a gap within a frame
        ((2, ALL), page((3, 0), (4, 0), mark=(4, ALL))),  # it was never journaled
        ((3, 0), page(mark=(1, 0))),  # back to the beginning
        ((0, ALL), page(*ALL_OF_IT, other=5)),  # another content
    ],
)
def test_any_other_page_is_found(after: tuple[int, int], shown: ChangesPage) -> None:
    feeds, reader = check()
    reader.pages.append(Read(after, shown))
    with pytest.raises(Contradiction, match=r"^R16"):
        feeds.step()


def test_a_reader_of_some_kinds_gets_these_and_no_others() -> None:
    feeds, reader = check(("book",))
    reader.pages.append(Read((0, ALL), page()))
    feeds.step()
    reader.pages.append(Read((0, ALL), page((1, 0))))
    with pytest.raises(Contradiction, match=r"^R16"):
        feeds.step()


def test_a_reader_has_caught_up_when_it_has_the_last_change() -> None:
    feeds, reader = check()
    for mark, done in ((None, False), ((2, ALL), False), ((3, 0), True), (END, True)):
        reader.mark = mark
        assert feeds.caught_up() is done
